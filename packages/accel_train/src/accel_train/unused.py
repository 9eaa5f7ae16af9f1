"""Say that the chosen accelerator was not used, or that each rank trained alone.

Who forgets a line trains on the CPU, or several times, without a word. `accel_train_startup` calls `tell` at
the end of a process. Only rank 0 speaks, so a job says it once.

A device is used if a parameter lies on it. A program that has dropped its parameters by then, or has none, is
judged by the most bytes that it had there at one time: what a barrier allocates is not use.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

import accel_core
from accel_core.errors import AccelError
from accel_core.settings import Variable
from accel_core.text import escape_control_chars
from accel_train.doors.catalogue import DOORS, OF_DEVICE
from accel_train.launch.variables import RANK, WORLD_SIZE
from accel_train.private_names import (
    accelerate_state,
    deepspeed_accelerator,
    had_process_group,
)
from accel_train_startup import VARIABLE

__all__ = ["ACCEL_UNUSED", "tell"]


def _ignore(text: str) -> bool:
    if text.lower() != "ignore":
        raise ValueError("ignore")
    return True


#: `ignore`: for those who mean the CPU.
ACCEL_UNUSED = Variable("ACCEL_UNUSED", _ignore, False)
#: Seconds of CPU time after which a process counts as a training.
_LONG = 60.0
#: Modules that only launchers import.
_LAUNCHERS = (
    "torch.distributed.launcher.api", "accelerate.commands.launch", "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
)  # fmt: skip
_ANY_LINE = "device = accel_core.get_accelerator().device()"
#: Bytes that a program has at most on a device that it does not use: a scalar or two, as for a barrier.
_SCALARS = 1 << 10


def tell() -> None:
    """Write a line to stderr if an accelerator was chosen and the program did not use it, and one if several
    ranks ran and none of them met another.
    """
    if not _speaks():
        return
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        device_types = _parameter_device_types()
        on_cpu = "cpu" in device_types
        # A program that failed before it had a model may have been on its way to the device.
        accelerator = _chosen() if on_cpu or not hasattr(sys, "last_type") else None
        if accelerator is not None and _is_unused(accelerator, device_types):
            line = _line(accelerator, on_cpu=on_cpu)
            sys.stderr.write(f"{escape_control_chars(line)}\n")
        if device_types and _trained_alone():
            sys.stderr.write(f"{_line_of_copies()}\n")


def _speaks() -> bool:
    with suppress(AccelError):
        is_ours = (
            multiprocessing.parent_process() is None
            and "torch" in sys.modules
            and not _is_launcher()
        )
        return (
            is_ours and not ACCEL_UNUSED.read(os.environ) and RANK.read(os.environ) == 0
        )
    return False


def _is_launcher() -> bool:
    """Whether this process starts ranks (torchrun, `accelerate launch`, `deepspeed`) and computes nothing."""
    main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
    return any(name == main or name in sys.modules for name in _LAUNCHERS)


def _chosen() -> Any:
    """The accelerator, unless it is the CPU, or nobody who would use it is here."""
    was_launched = bool(os.environ.get(VARIABLE))
    current = sys.modules.get("accel_core.current")
    if not was_launched and (
        getattr(current, "_chosen", None) is None
        or not (_imported() or time.process_time() > _LONG)
    ):
        return None
    accelerator = accel_core.get_accelerator()
    return None if accelerator.device().type == "cpu" else accelerator


def _is_unused(accelerator: Any, device_types: set[str]) -> bool:
    """Whether the program left the device idle; False where the backend cannot tell.

    `device_types`: those of the parameters that are alive.
    """
    if not accelerator.is_initialized():
        return True
    if accelerator.device().type in device_types:
        return False
    peaks = [_peak(accelerator, i) for i in range(accelerator.device_count())]
    return all(peak is not None and peak <= _SCALARS for peak in peaks)


def _peak(accelerator: Any, index: int) -> int | None:
    """The most bytes allocated at one time; `None` where the backend does not say."""
    peak = accelerator.memory_stats(index).get("allocated_bytes.all.peak")
    return None if peak is None else int(peak)


def _parameter_device_types() -> set[str]:
    """Device types of the parameters that are alive, in modules, in optimizers or alone."""
    torch = sys.modules["torch"]
    found = set()
    for each in gc.get_objects():
        # Not `isinstance`, which would ask stand-ins and lazy objects what they are.
        kind = type(each)
        if issubclass(kind, torch.Tensor) and (
            issubclass(kind, torch.nn.Parameter)
            or (each.requires_grad and each.is_leaf)
        ):
            found.add(each.device.type)
    return found


def _imported() -> list[tuple[str, str]]:
    """Frameworks that this process has imported, each with the line that it needs, the likeliest first."""
    doors = [(door.module, door.name, door.line) for door in DOORS if door.line]
    found = [
        row
        for row in (*OF_DEVICE, *sorted(doors, key=_is_whole))
        if row[0] in sys.modules
    ]
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    device = accelerate_state(state).get("device") if state is not None else None
    idle = []
    # Imported alone, or on a device other than the CPU: then another line is missing.
    if device is None or device.type != "cpu":
        idle += ["accelerate", "transformers.trainer"]
    if isinstance(deepspeed_accelerator(), accel_core.Accelerator):
        idle.append("deepspeed")
    return [(name, line) for module, name, line in found if module not in idle]


def _is_whole(row: tuple[str, str, str]) -> bool:
    """Whether the framework's module is a package, which others import too: its parts say more."""
    return "." not in row[0]


def _trained_alone() -> bool:
    """Whether `accel run` started several ranks and this one never had a process group."""
    if not os.environ.get(VARIABLE) or hasattr(sys, "last_type"):
        return False
    return WORLD_SIZE.read(os.environ) > 1 and not had_process_group()


def _line_of_copies() -> str:
    ranks = WORLD_SIZE.read(os.environ)
    return (
        f"accel: {ranks} ranks ran this program, and none started a process group: each trained alone. For "
        "one process: accel run --nproc-per-node 1. For ranks that train together: "
        "accel_train.init_process_group(). ACCEL_UNUSED=ignore if copies are meant."
    )


def _line(accelerator: Any, *, on_cpu: bool) -> str:
    who = f"{accelerator.name} ({accelerator.backend.provenance})"
    known = {accelerator.name, accelerator.device().type}
    shut = [door.name for door in DOORS if known.intersection(door.own)]
    frameworks = [(name, line) for name, line in _imported() if name not in shut]
    if not frameworks:
        where = ": the parameters of this program are on the CPU" if on_cpu else ""
        return (
            f"accel: {who} was chosen, and nothing was allocated on it{where}. Move the model and the data "
            f"there: {_ANY_LINE}. ACCEL_UNUSED=ignore if the CPU is meant."
        )
    name, line = frameworks[0]
    also = (
        f" (also imported: {', '.join(n for n, _ in frameworks[1:])})"
        if frameworks[1:]
        else ""
    )
    return (
        f"accel: {who} was chosen, and nothing was allocated on it: {name} took the CPU{also}. "
        f"Add: {line}. ACCEL_UNUSED=ignore if the CPU is meant."
    )
