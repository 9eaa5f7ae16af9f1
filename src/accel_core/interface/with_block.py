"""Warn about `with accelerator.device(i):`, which selects no device.

A `torch.device` cannot be subclassed, and entering it cannot be observed. Therefore the
caller's next bytecode instruction is read.
"""

from __future__ import annotations

import dis
import sys
import warnings
from traceback import walk_stack
from types import FrameType

from accel_core.exceptions import is_own_frame, user_stacklevel

#: The instructions that enter a `with` block in Python 3.10, and in 3.11 to 3.13.
_WITH_INSTRUCTIONS = ("SETUP_WITH", "BEFORE_WITH")
#: The instructions that enter a `with` block from Python 3.14 on. Source: CPython 3.14,
#: Python/codegen.c, `codegen_with_inner`.
_WITH_INSTRUCTIONS_314 = ["COPY", "LOAD_SPECIAL"]
#: The number of instructions to read after a call. A call has at most 4 cache entries.
_MAX_INSTRUCTIONS = 10


def warn_if_entered(accelerator: str, device: object) -> None:
    """Warn if the nearest caller outside this package is about to enter the result in a `with`
    statement.

    `device` is the argument of `device()`, which the warning quotes.
    """
    for frame, _ in walk_stack(sys._getframe(1)):
        if not is_own_frame(frame):
            break
    if not _enters_result(frame):
        return
    warnings.warn(
        f"{accelerator}: `with accelerator.device({device!r}):` does not select the "
        "device, because device() returns a torch.device. "
        f"Write `with accelerator.device_guard({device!r}):`",
        stacklevel=user_stacklevel(),
    )


def _enters_result(frame: FrameType) -> bool:
    """Return whether the frame's instruction after the running call enters a `with`
    block.
    """
    # An instruction consists of two bytes, of which the first is the opcode.
    size = 2
    start = frame.f_lasti + size
    end = start + size * _MAX_INSTRUCTIONS
    opcodes = frame.f_code.co_code[start:end:size]
    names = [dis.opname[opcode] for opcode in opcodes]
    following = [name for name in names if name != "CACHE"]
    if not following:
        return False
    if following[0] in _WITH_INSTRUCTIONS:
        return True
    return following[:2] == _WITH_INSTRUCTIONS_314
