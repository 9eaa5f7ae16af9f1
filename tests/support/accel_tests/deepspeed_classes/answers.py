"""Asks an object of DeepSpeed's class and one of ours the same, in one process.

A case is a member with arguments. Its answer is put into text; an exception becomes its type and first line.
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from types import ModuleType

#: Of `memory_stats`, the keys that every backend has as far as it counts; vendors add hundreds.
_STATISTICS = [
    f"{of}_bytes.all.{what}"
    for of in ("allocated", "reserved")
    for what in ("current", "peak")
]
#: A tensor with more elements is told by its digest.
_FEW = 8


def describe(value):
    """An answer as text: what it is and what it says, without addresses."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {value.device} {_elements(value.cpu())}".replace(
            "torch.", ""
        )
    if isinstance(value, torch.Generator):
        return f"generator {value.device}"
    if isinstance(value, torch.Stream):
        return f"stream {value.device}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} {[describe(item) for item in value]}"
    if isinstance(value, Mapping):
        return (
            f"mapping {[f'{key}={value[key]}' for key in _STATISTICS if key in value]}"
        )
    if isinstance(
        value, (bool, int, float, str, type(None), torch.dtype, torch.device)
    ):
        return f"{type(value).__name__} {value}"
    return f"object {type(value).__module__}.{type(value).__qualname__}"


def _elements(tensor):
    if tensor.numel() <= _FEW:
        return tensor.tolist()
    return f"{tuple(tensor.shape)} {hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:12]}"


def answer(case, accelerator):
    """What the case gives, or raises, with the kinds of warnings other than `UserWarning`.

    Of those torch gives many once in a process, whoever asks first.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = describe(case(accelerator))
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            text = f"{type(error).__name__}: {lines[0]}"
    kinds = sorted({warning.category.__name__ for warning in caught} - {"UserWarning"})
    return text + (f" with {', '.join(kinds)}" if kinds else "")


def compare(theirs, ours, cases):
    """By case both answers, and the members of DeepSpeed's class that no case asks for.

    The cases are asked in their order, DeepSpeed's object first.
    """
    answers = {
        name: {"theirs": answer(case, theirs), "ours": answer(case, ours)}
        for name, case in cases.items()
    }
    members = {name for name in dir(type(theirs)) if not name.startswith("_")}
    asked = {name.partition(":")[0] for name in cases}
    return {
        "answers": answers,
        "members": len(members),
        "not asked": sorted(members - asked),
    }


def leave(report):
    """Print the report as JSON and end the process, without waiting for a device's threads."""
    print(json.dumps(report))
    sys.stdout.flush()
    os._exit(0)
