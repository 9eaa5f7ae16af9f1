"""Make torch.compile use the accelerator's compiler by default, in a block or while a framework trains.

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
from accel_train.device_interface import register_device_interface

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = [
    "COMPILER_NAME",
    "default_compiler",
    "default_compiler_for_integration",
    "has_inductor_code",
    "no_inductor_code_error",
    "require_listed_compiler",
    "select_compiler",
]

#: The name of accel_train's torch.compile backend, which calls the chosen accelerator's compiler.
COMPILER_NAME = "accel"
_INDUCTOR = "inductor"
#: Device types for which inductor generates code in every release of torch.
_INDUCTOR_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "mtia")


@contextmanager
def default_compiler(accelerator: Accelerator | None = None) -> Iterator[str]:
    """Make `torch.compile` use the accelerator's compiler by default, within a `with` block.

    The default affects calls to `torch.compile` without `backend=`, in all threads. This function also works
    as a decorator. If `accelerator` is `None`, the current accelerator is used. Yields the compiler's name.
    The previous default is restored at the end of the block, even if blocks in several threads overlap. A
    function that was compiled in the block keeps its compiler.

    Raises `UnsupportedError` if torch does not list the compiler, or if the compiler is inductor and inductor
    cannot generate code for the device type. Also raises `UnsupportedError` if the compiler is not inductor
    and torch is older than 2.13, which introduced the required setting.
    """
    if accelerator is None:
        accelerator = accel_core.get_accelerator()
    compiler = select_compiler(accelerator)
    register_device_interface(accelerator)
    torch = import_torch()
    if hasattr(torch.compiler, "set_default_backend"):
        with _set_torch_default(compiler):
            yield compiler
    elif compiler == _INDUCTOR:  # An older torch always uses inductor by default.
        yield compiler
    else:
        raise UnsupportedError(
            f"torch {torch.__version__} cannot change its default compiler, because "
            "torch.compiler.set_default_backend needs torch 2.13. Next step: name the compiler: "
            f'torch.compile(model, backend="{COMPILER_NAME}")'
        )


@contextmanager
def default_compiler_for_integration(accelerator: Accelerator) -> Iterator[None]:
    """Set torch's default compiler within a `with` block, if torch's own default does not suit the device.

    This function is called by integrations. The compiler is looked up when `torch.compile` is first called,
    so a program that compiles nothing loses no time and gets no error. A default that the program has set is
    kept.
    """
    torch = import_torch()
    # torch's own default is inductor.
    is_default_suitable = accelerator.device_type in _INDUCTOR_DEVICE_TYPES
    can_change_default = hasattr(torch.compiler, "set_default_backend")
    if is_default_suitable or not can_change_default:
        yield
        return
    default = torch.compiler.get_default_backend()
    is_set_by_program = default not in (_INDUCTOR, COMPILER_NAME)
    if is_set_by_program:
        yield
        return
    register_device_interface(accelerator)
    with _set_torch_default(COMPILER_NAME):
        yield


def select_compiler(accelerator: Accelerator, requested: str = "") -> str:
    """Return the name of the compiler to use, and check that torch can compile with it on the device.

    The result is `requested` or, if `requested` is empty or `"accel"`, the accelerator's compiler. Raises
    `UnsupportedError` if torch does not list the accelerator's compiler, or if the compiler is inductor and
    inductor cannot generate code for the device type. If the backend declares inductor, code generation is
    not checked, because a vendor may register its code generator only when inductor is called.
    """
    if requested in ("", COMPILER_NAME):
        compiler = require_listed_compiler(accelerator)
    else:
        compiler = requested
    # A vendor that declares inductor may register its code generator only when inductor is called.
    declares_inductor = accelerator.backend.compile_backend == _INDUCTOR
    if compiler != _INDUCTOR or declares_inductor:
        return compiler
    if not has_inductor_code(accelerator.device_type):
        raise no_inductor_code_error(accelerator.device_type)
    return compiler


def require_listed_compiler(accelerator: Accelerator) -> str:
    """Return the name of the accelerator's compiler.

    Raises `UnsupportedError` if torch does not list this compiler.
    """
    from torch._dynamo import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    compiler = accelerator.get_compile_backend()
    next_step = (
        "Next step: choose another compiler for this process: "
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )
    if compiler == COMPILER_NAME:
        raise UnsupportedError(
            f"{accelerator.name} declares the compiler {compiler!r}, but this name is only an alias for the "
            f"compiler that an accelerator declares. {next_step}"
        )
    try:
        lookup_backend(compiler)
    except InvalidBackend:
        raise UnsupportedError(
            f"{accelerator.name} declares the compiler {compiler!r}, but torch._dynamo.list_backends(None) "
            f"does not list this compiler. {next_step}"
        ) from None
    return compiler


def has_inductor_code(device_type: str) -> bool:
    """Return whether inductor can generate code for the device type.

    For types other than cpu, cuda, xpu, mps and mtia, this function imports inductor, which takes seconds.
    """
    if device_type in _INDUCTOR_DEVICE_TYPES:
        return True
    from torch._inductor.codegen import common

    # Before torch 2.9, inductor itself filled this table when it lowered a graph.
    if hasattr(common, "init_backend_registration"):
        common.init_backend_registration()
    return common.get_scheduling_for_device(device_type) is not None


def no_inductor_code_error(device_type: str) -> UnsupportedError:
    """Return the error to raise if inductor cannot generate code for the device type."""
    return UnsupportedError(
        f"inductor cannot generate code for device type {device_type!r}, because neither torch nor the "
        "vendor registers a code generator. Next step: use the compiler aot_eager, which supports every "
        'device: torch.compile(model, backend="aot_eager"), or '
        'accel_core.get_accelerator().set_compile_backend("aot_eager")'
    )


class _DefaultBlock:
    """An active `with` block that sets torch's default compiler, and the default to restore at its end."""

    def __init__(self, previous_default: Any) -> None:
        self.previous_default = previous_default


#: The lock is reentrant, because the garbage collector may end a block in a thread that holds the lock.
_lock = threading.RLock()
#: The blocks of all threads, in the order in which they were entered.
_default_blocks: list[_DefaultBlock] = []


@contextmanager
def _set_torch_default(compiler: str) -> Iterator[None]:
    """Set torch's default compiler within a `with` block, and restore the previous default afterwards.

    Blocks of several threads may end in any order. When a block ends, it restores the default only if it is
    the newest active block. Otherwise, it passes the default that it would restore to the next newer block.
    """
    torch = import_torch()
    with _lock:
        block = _DefaultBlock(torch.compiler.get_default_backend())
        _default_blocks.append(block)
        torch.compiler.set_default_backend(compiler)
    try:
        yield
    finally:
        # While the interpreter shuts down, nothing compiles, and torch can no longer import its modules.
        if not sys.is_finalizing():
            with _lock:
                index = _default_blocks.index(block)
                if block is _default_blocks[-1]:
                    torch.compiler.set_default_backend(block.previous_default)
                else:
                    # A later block of another thread is still active. It restores this block's default.
                    next_block = _default_blocks[index + 1]
                    next_block.previous_default = block.previous_default
                del _default_blocks[index]
