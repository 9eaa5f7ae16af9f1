"""The computation of the smallest program, in its process: allocate, add, copy back, synchronise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from accel_core import Accelerator, build, isolation
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox.guard import stdout_to_stderr, steps_to
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_core.verdict import Verdict

#: Elements of the tensor that is computed.
_SIZE = 1024


def compute(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """Return the number of devices of the backend, and what comes of each.

    A row for each device: its name, its error in the vendor's words, what a plugin says
    of the error, and the next step; the three are empty where it computed.
    """
    asked = isolation.decode(job["verdict"])
    others = map(isolation.decode, job["others"])
    group = build.Group((asked, *others), imports_to_explain=True)
    devices: list[dict[str, str]] = []
    with steps_to(stage), stdout_to_stderr():
        try:
            accelerator = build.create(asked, group)
            stage("device_count()")
            count = accelerator.device_count()
        except PLUGIN_ERRORS as error:
            row = {"device": asked.name, **_explained(asked, error, group)}
            return {"count": None, "devices": [row]}
        for index in range(0 if job["counts_only"] else count):
            name = _name(accelerator, index)
            stage(f"computation on {name}")
            row = {"device": name, "error": "", "reason": "", "hint": ""}
            try:
                row["error"] = _compute_on(accelerator, index)
            except PLUGIN_ERRORS as error:
                row |= _explained(asked, error, group)
            devices.append(row)
    return {"count": count, "devices": devices}


def _name(accelerator: Accelerator, index: int) -> str:
    with contextlib.suppress(*PLUGIN_ERRORS):
        return str(accelerator.device(index))
    return f"{accelerator.device_name()}:{index}"


def _compute_on(accelerator: Accelerator, index: int) -> str:
    """Return what is wrong with the result; empty if it is right."""
    torch = import_torch()
    ones = torch.ones(_SIZE, device=accelerator.device(index))
    total = ones + ones
    accelerator.synchronize(index)
    result = float(total.cpu().sum())
    if result != 2 * _SIZE:
        return f"1 + 1, {_SIZE} times, gave {result:g} in all, not {2 * _SIZE}"
    return ""


def _explained(
    verdict: Verdict, error: BaseException, group: build.Group
) -> dict[str, str]:
    answer = build.explain_error(verdict, error, group)
    return {
        "error": one_line(root_cause(error)) or type(error).__name__,
        "reason": one_line(answer.reason),
        "hint": one_line(answer.hint or getattr(error, "hint", "")),
    }
