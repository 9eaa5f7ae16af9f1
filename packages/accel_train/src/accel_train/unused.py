"""Say that the chosen accelerator was not used: who forgets a line trains on the CPU without a word.

`accel_train_startup` calls `tell` at the end of a process and, in one that a launcher started, when it has
trained for a minute. Only rank 0 speaks, so a job says it once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import accel_core
from accel_core.errors import AccelError
from accel_core.settings import Variable
from accel_core.text import escape_control_chars
from accel_train.doors.catalogue import DOORS, OF_DEVICE
from accel_train.launch.variables import RANK
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
_told = False


def tell(*, in_training: bool = False) -> None:
    """Write one line to stderr, once, if an accelerator was chosen and nothing was allocated on it.

    `in_training`: other threads run meanwhile. (No search for an optimizer: in a thread `gc.get_objects()`
    breaks a tuple that another thread is building.)
    """
    global _told
    if _told or not _speaks():
        return
    # The filters of warnings are those of all threads: they are left alone while a program runs.
    quietly = contextlib.nullcontext() if in_training else _ignoring()
    with suppress(Exception), quietly:
        accelerator = _chosen()
        if accelerator is not None and _is_unused(accelerator):
            _told = True
            sys.stderr.write(f"{escape_control_chars(_line(accelerator))}\n")


@contextlib.contextmanager
def _ignoring() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _speaks() -> bool:
    with contextlib.suppress(AccelError):
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


def _is_unused(accelerator: Any) -> bool:
    """Whether nothing was ever allocated on any device; not where the backend cannot tell."""
    if not accelerator.is_initialized():
        return True
    for index in range(accelerator.device_count()):
        stats = accelerator.memory_stats(index)
        known = [
            stats.get(f"allocated_bytes.all.{what}") for what in ("allocated", "peak")
        ]
        if any(known) or all(amount is None for amount in known):
            return False
    return True


def _imported() -> list[tuple[str, str]]:
    """Frameworks that this process has imported, each with the line that it needs, the likeliest first."""
    doors = [(door.module, door.name, door.line) for door in DOORS if door.line]
    found = [
        row
        for row in (*OF_DEVICE, *sorted(doors, key=_is_whole))
        if row[0] in sys.modules
    ]
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    idle = (
        []
        if state is not None and state._shared_state
        else ["accelerate", "transformers.trainer"]
    )
    theirs = sys.modules.get("deepspeed.accelerator.real_accelerator")
    if isinstance(getattr(theirs, "ds_accelerator", None), accel_core.Accelerator):
        idle.append("deepspeed")
    return [(name, line) for module, name, line in found if module not in idle]


def _is_whole(row: tuple[str, str, str]) -> bool:
    """Whether the framework's module is a package, which others import too: its parts say more."""
    return "." not in row[0]


def _line(accelerator: Any) -> str:
    who = f"{accelerator.name} ({accelerator.backend.provenance})"
    known = {accelerator.name, accelerator.device().type}
    shut = [door.name for door in DOORS if known.intersection(door.own)]
    frameworks = [(name, line) for name, line in _imported() if name not in shut]
    if not frameworks:
        return (
            f"accel: {who} was chosen, and nothing was allocated on it: this program ran on the CPU. "
            f"Move the model and the data there: {_ANY_LINE}. ACCEL_UNUSED=ignore if the CPU is meant."
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
