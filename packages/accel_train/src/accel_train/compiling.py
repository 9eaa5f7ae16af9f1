"""Make torch.compile use the accelerator's compiler by default: for a block, or while a framework trains.

Importing this module does not import torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import accel_core
from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_train.device_interface import register

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = [
    "COMPILER_NAME", "checked_compiler", "default_compiler", "default_compiler_for_integration",
    "has_inductor_code", "listed_compiler", "no_inductor_code_error",
]  # fmt: skip

#: accel_train's name among torch.compile's backends: it compiles with the chosen accelerator's compiler.
COMPILER_NAME = "accel"
_INDUCTOR = "inductor"
#: Device types for which every inductor generates code.
_INDUCTOR_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "mtia")


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
    if accelerator is None:
        accelerator = accel_core.get_accelerator()
    compiler = checked_compiler(accelerator)
    register(accelerator)
    torch = import_torch()
    if hasattr(torch.compiler, "set_default_backend"):
        with _torch_default(compiler):
            yield compiler
    elif compiler == _INDUCTOR:  # torch's default in any case
        yield compiler
    else:
        raise UnsupportedError(
            f"torch {torch.__version__} cannot change its default compiler: "
            f"torch.compiler.set_default_backend needs torch 2.13. Name the compiler: "
            f'torch.compile(model, backend="{COMPILER_NAME}")'
        )


@contextmanager
def default_compiler_for_integration(accelerator: Accelerator) -> Iterator[None]:
    """Set torch's default compiler within the block, if the present one does not suit the device.

    For integrations: the compiler is looked up by the first `torch.compile`, so a program that compiles
    nothing loses no time and gets no error. A default that the program has set is kept.
    """
    torch = import_torch()
    if (
        accelerator.device_type in _INDUCTOR_DEVICE_TYPES
        or not hasattr(torch.compiler, "set_default_backend")
        or torch.compiler.get_default_backend() not in (_INDUCTOR, COMPILER_NAME)
    ):
        yield
        return
    register(accelerator)
    with _torch_default(COMPILER_NAME):
        yield


def checked_compiler(accelerator: Accelerator, named: str = "") -> str:
    """Return `named`, or the name of the accelerator's compiler if that is empty, after checking it.

    Raises `UnsupportedError` if the compiler is inductor and has no code for the device type. If the backend
    declares inductor, this is not checked: a vendor may register its code only when inductor is called.
    """
    if named in ("", COMPILER_NAME):
        compiler = listed_compiler(accelerator)
    else:
        compiler = named
    is_declared = accelerator.backend.compile_backend == _INDUCTOR
    if compiler != _INDUCTOR or is_declared:
        return compiler
    if not has_inductor_code(accelerator.device_type):
        raise no_inductor_code_error(accelerator.device_type)
    return compiler


def listed_compiler(accelerator: Accelerator) -> str:
    """Return the name of the accelerator's compiler. Raises `UnsupportedError` if torch does not list it."""
    from torch._dynamo import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    compiler = accelerator.get_compile_backend()
    if compiler == COMPILER_NAME:
        problem = "a name that stands for that compiler"
    else:
        problem = "which torch._dynamo.list_backends(None) lacks"
        with suppress(InvalidBackend):
            lookup_backend(compiler)
            return compiler
    raise UnsupportedError(
        f"{accelerator.name} declares the compiler {compiler!r}, {problem}. Choose another for this process: "
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )


def has_inductor_code(device_type: str) -> bool:
    """Return whether inductor has code for tensors of that type. Importing its table takes seconds."""
    if device_type in _INDUCTOR_DEVICE_TYPES:
        return True
    from torch._inductor.codegen import common

    # Before torch 2.9 inductor filled its table by itself, when it lowered a graph.
    if hasattr(common, "init_backend_registration"):
        common.init_backend_registration()
    return common.get_scheduling_for_device(device_type) is not None


def no_inductor_code_error(device_type: str) -> UnsupportedError:
    """Return the error for inductor on a device type that it has no code for."""
    return UnsupportedError(
        f"inductor has no code for device type {device_type!r}: neither torch nor the vendor registers any. "
        'aot_eager compiles for every device: torch.compile(model, backend="aot_eager"), or '
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )


class _DefaultBlock:
    """A block that has been entered and not left, with the default compiler to restore at its end."""

    def __init__(self, previous_default: Any) -> None:
        self.previous_default = previous_default


#: Reentrant: the garbage collector may end a block anywhere, also in a thread that holds the lock.
_lock = threading.RLock()
#: The blocks of all threads, in the order in which they were entered.
_default_blocks: list[_DefaultBlock] = []


@contextmanager
def _torch_default(compiler: str) -> Iterator[None]:
    """Set torch's default compiler within the block, and restore the previous one.

    Blocks of several threads may end in any order. The block that was entered last restores the default; an
    earlier one passes what it would restore on to the block after it.
    """
    torch = import_torch()
    with _lock:
        block = _DefaultBlock(torch.compiler.get_default_backend())
        _default_blocks.append(block)
        torch.compiler.set_default_backend(compiler)
    try:
        yield
    finally:
        # At the interpreter's end nothing compiles any more, and torch cannot import what it needs.
        if not sys.is_finalizing():
            with _lock:
                index = _default_blocks.index(block)
                if block is _default_blocks[-1]:
                    torch.compiler.set_default_backend(block.previous_default)
                else:
                    next_block = _default_blocks[index + 1]
                    next_block.previous_default = block.previous_default
                del _default_blocks[index]
