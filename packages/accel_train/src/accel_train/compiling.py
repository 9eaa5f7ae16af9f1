"""torch.compile's default compiler: set to the accelerator's for a block, or while a framework trains.

Importing this module does not import torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import accel_core
from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_train.device_interface import register

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = [
    "DOOR", "checked_compiler", "compiler_of", "default_compiler", "known_to_inductor", "refused",
    "while_training",
]  # fmt: skip

#: Our name among torch.compile's backends, an entry point in `torch_dynamo_backends`.
DOOR = "accel"
_INDUCTOR = "inductor"
#: Device types for which every inductor generates code.
_INDUCTORS_OWN = ("cpu", "cuda", "xpu", "mps", "mtia")


@contextmanager
def default_compiler(accelerator: Accelerator | None = None) -> Iterator[str]:
    """Make `torch.compile` without `backend=` use the accelerator's compiler; also works as a decorator.

    `accelerator`: `None` means the current one. Yields the compiler's name. Sets torch's default, which holds
    for all threads; the end of the block restores the old default, even if blocks of several threads overlap.
    A function compiled in the block keeps its compiler.

    Raises `UnsupportedError` in three cases: torch does not list the compiler; the compiler is inductor,
    which has no code for the device type; or torch is older than 2.13, which has no default to set, and the
    compiler is not inductor.
    """
    asked = accel_core.get_accelerator() if accelerator is None else accelerator
    compiler = checked_compiler(asked)
    register(asked)
    torch = import_torch()
    if hasattr(torch.compiler, "set_default_backend"):
        with _default(compiler):
            yield compiler
    elif compiler == _INDUCTOR:  # what torch takes anyway
        yield compiler
    else:
        raise UnsupportedError(
            f"torch {torch.__version__} cannot change its default compiler: "
            f"torch.compiler.set_default_backend needs torch 2.13. Name the compiler: "
            f'torch.compile(model, backend="{DOOR}")'
        )


@contextmanager
def while_training(accelerator: Accelerator) -> Iterator[None]:
    """Do as `default_compiler` does, for integrations: only if torch's default is wrong for the device.

    The first `torch.compile` looks up the compiler, so a program that compiles nothing costs nothing and gets
    no error. A default that somebody has set is kept.
    """
    torch = import_torch()
    if (
        accelerator.device_type in _INDUCTORS_OWN
        or not hasattr(torch.compiler, "set_default_backend")
        or torch.compiler.get_default_backend() not in (_INDUCTOR, DOOR)
    ):
        yield
        return
    register(accelerator)
    with _default(DOOR):
        yield


def checked_compiler(accelerator: Accelerator, named: str = "") -> str:
    """Return the name of the accelerator's compiler, or `named`, checked before anything compiles.

    If the backend declares inductor, inductor is not checked: a vendor may register its code only when
    inductor is called. Raises `UnsupportedError`.
    """
    compiler = named if named not in ("", DOOR) else compiler_of(accelerator)
    declared = accelerator.backend.compile_backend == _INDUCTOR
    if (
        compiler == _INDUCTOR
        and not declared
        and not known_to_inductor(accelerator.device_type)
    ):
        raise refused(accelerator.device_type)
    return compiler


def compiler_of(accelerator: Accelerator) -> str:
    """Return the name of the accelerator's compiler. Raises `UnsupportedError` if torch does not list it."""
    from torch._dynamo import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    compiler = accelerator.get_compile_backend()
    own = compiler == DOOR
    try:
        if not own:
            lookup_backend(compiler)
            return compiler
    except InvalidBackend:
        pass
    why = (
        "a name that stands for that compiler"
        if own
        else "which torch._dynamo.list_backends(None) lacks"
    )
    raise UnsupportedError(
        f"{accelerator.name} declares the compiler {compiler!r}, {why}. Choose another for this process: "
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )


def known_to_inductor(device_type: str) -> bool:
    """Return whether inductor has code for tensors of that type. Importing its table takes seconds."""
    if device_type in _INDUCTORS_OWN:
        return True
    from torch._inductor.codegen import common

    # Before torch 2.9 it was called where the graph is lowered, under another name.
    getattr(common, "init_backend_registration", lambda: None)()
    return common.get_scheduling_for_device(device_type) is not None


def refused(device_type: str) -> UnsupportedError:
    """Return the error for inductor on a device type that it has no code for."""
    return UnsupportedError(
        f"inductor has no code for device type {device_type!r}: neither torch nor the vendor registers any. "
        'aot_eager compiles for every device: torch.compile(model, backend="aot_eager"), or '
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )


class _Block:
    """One block that is entered, and what was torch's default before it."""

    def __init__(self, before: Any) -> None:
        self.before = before


_lock = threading.RLock()  # a block that is collected as garbage ends anywhere
_blocks: list[_Block] = []


@contextmanager
def _default(compiler: str) -> Iterator[None]:
    """Set torch's default. Blocks may end in any order: each leaves its own mark alone."""
    torch = import_torch()
    with _lock:
        block = _Block(torch.compiler.get_default_backend())
        _blocks.append(block)
        torch.compiler.set_default_backend(compiler)
    try:
        yield
    finally:
        if (
            not sys.is_finalizing()
        ):  # else nobody compiles any more, and torch cannot import what it would
            with _lock:
                place = _blocks.index(block)
                if place == len(_blocks) - 1:
                    torch.compiler.set_default_backend(block.before)
                else:
                    _blocks[place + 1].before = block.before
                del _blocks[place]
