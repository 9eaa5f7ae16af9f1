"""The computation of the smallest program: allocate, add, synchronize and copy back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from accel_core import Accelerator, build, isolation
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox.guard import stdout_to_stderr, steps_sent_to
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_core.verdict import Verdict

#: The number of elements of the tensor: enough for torch to start its threads on the CPU, and few enough that
#: a float holds their sum exactly.
_ELEMENTS = 1 << 17


def compute_on_all_devices(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Compute on each device of the backend `job["verdict"]`, and return the results.

    The result has two keys. `count` is the number of devices, or `None` if the devices cannot be counted.
    `devices` is a list with one dictionary per device, which has the keys `device` (the device's name),
    `error` (the vendor's error), `reason` (a plugin's explanation of the error) and `hint` (the next step).
    The last three are empty strings if the device computed the correct result. `program.main` describes all
    keys of `job`.
    """
    verdict = isolation.decode(job["verdict"])
    other_verdicts = [isolation.decode(encoded) for encoded in job["other_verdicts"]]
    group = build.Group((verdict, *other_verdicts), imports_to_explain=True)
    devices: list[dict[str, str]] = []
    with steps_sent_to(lambda step: stage(step.text)), stdout_to_stderr():
        try:
            accelerator = build.create(verdict, group)
            stage("device_count()")
            count = accelerator.device_count()
        except PLUGIN_ERRORS as error:
            row = {"device": verdict.name, **_describe_error(verdict, error, group)}
            return {"count": None, "devices": [row]}
        if job["counts_only"]:
            return {"count": count, "devices": []}
        for index in range(count):
            name = _device_name(accelerator, index)
            stage(f"computation on {name}")
            row = {"device": name, "error": "", "reason": "", "hint": ""}
            try:
                row["error"] = _compute_on(accelerator, index)
            except PLUGIN_ERRORS as error:
                row |= _describe_error(verdict, error, group)
            devices.append(row)
    return {"count": count, "devices": devices}


def _device_name(accelerator: Accelerator, index: int) -> str:
    """Return torch's name of the device, even if the vendor's code fails."""
    with contextlib.suppress(*PLUGIN_ERRORS):
        return str(accelerator.device(index))
    return f"{accelerator.device_name()}:{index}"


def _compute_on(accelerator: Accelerator, index: int) -> str:
    """Compute on one device, and check the result.

    Returns the error if the result is wrong, and otherwise an empty string. If the computation fails, the
    vendor's exception is raised.
    """
    torch = import_torch()
    ones = torch.ones(_ELEMENTS, device=accelerator.device(index))
    twos = ones + ones
    accelerator.synchronize(index)
    result = float(twos.cpu().sum())
    expected = 2 * _ELEMENTS
    if result != expected:
        return f"the sum of {_ELEMENTS} results of 1 + 1 is {result:g}, expected {expected}"
    return ""


def _describe_error(
    verdict: Verdict, error: BaseException, group: build.Group
) -> dict[str, str]:
    """Return the error, the plugin's explanation of the error, and the next step."""
    explanation = build.explain_error(verdict, error, group)
    return {
        "error": one_line(root_cause(error)) or type(error).__name__,
        "reason": one_line(explanation.reason),
        "hint": one_line(explanation.hint or getattr(error, "hint", "")),
    }
