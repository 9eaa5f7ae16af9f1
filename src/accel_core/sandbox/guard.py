"""Provide context managers for third-party code that runs in this process.

They log its steps, send its output to stderr and restore the parts of the process that
vendors' packages are known to change.
"""

import contextlib
import enum
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from accel_core.errors import RecursiveChoiceError
from accel_core.log import LOGGER

# --- Steps ----------------------------------------------------------------------------


class CodeOwner(str, enum.Enum):
    """The owner of the code that runs in a step of a probe. If the step crashes, the
    advice to the user depends on the owner.
    """

    TORCH = "torch"
    VENDOR = "vendor"
    PLUGIN = "plugin"

    __str__ = str.__str__


@dataclass(frozen=True)
class Step:
    """A step in the probe of a backend, such as the import of a vendor's package."""

    #: A clause on the step, such as `"importing torch_npu (accel-npu 0.1)"`.
    text: str = ""
    #: Whose code the step runs.
    owner: CodeOwner = CodeOwner.VENDOR


#: The step that began last in this thread or task.
current_step: ContextVar[Step] = ContextVar(
    "accel_core_current_step",
    default=Step(),  # noqa: B039 - a step is frozen
)

_listener: ContextVar[Callable[[Step], object] | None] = ContextVar(
    "accel_core_step_listener", default=None
)


def log_step(text: str, owner: CodeOwner = CodeOwner.VENDOR) -> None:
    """Log that a step of a probe begins. `text` describes the step, and `owner` is the
    owner of the code that it runs.
    """
    LOGGER.debug("%s", text)
    step = Step(text, owner)
    current_step.set(step)
    listener = _listener.get()
    if listener is not None:
        listener(step)


@contextlib.contextmanager
def steps_sent_to(listener: Callable[[Step], object]) -> Iterator[None]:
    """Call `listener` with each probe step in this thread or task until the block ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


# --- Selection ------------------------------------------------------------------------

#: The id of the process that is selecting. A child that is forked meanwhile may select
#: too.
_selecting_pid: int | None = None


@contextlib.contextmanager
def selection_in_progress() -> Iterator[None]:
    """Mark the selection of a backend as in progress until the block ends.

    Raises `RecursiveChoiceError` if this process is selecting a backend already.
    """
    global _selecting_pid
    if _selecting_pid == os.getpid():
        raise RecursiveChoiceError(
            "get_accelerator() was called while the accelerator was being chosen, by a "
            "plugin or by the vendor package it imports. A plugin must not call it at "
            "import or in a hook."
        )
    _selecting_pid = os.getpid()
    try:
        yield
    finally:
        _selecting_pid = None


# --- Output ---------------------------------------------------------------------------


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr within the block.

    All threads share `sys.stdout`, so output of other threads goes to stderr too.
    """
    if sys.stdout is sys.stderr:
        # An outer block, or a block of another thread, restores stdout. If this block
        # restored the present value, stdout would stay redirected.
        yield
    else:
        with contextlib.redirect_stdout(sys.stderr):
            yield


# --- State ----------------------------------------------------------------------------


class PreservedState:
    """Lets a block in `preserved_state` keep its changes to this process."""

    def __init__(self) -> None:
        self.is_kept = False

    def keep(self) -> None:
        """Keep the changes that the block makes to the environment and to `torch.cuda`.

        The vendor's package of the chosen backend may need these changes.
        """
        self.is_kept = True


@contextlib.contextmanager
def preserved_state(who: object) -> Iterator[PreservedState]:
    """Restore the environment, the warning filters and `torch.cuda` after the block.

    The log names `who` and the part of the state that the block changed. While other
    threads run, the environment is not restored, because another thread may have
    changed it.

    A panic of a Rust extension is raised as `RuntimeError`, so that it is caught like
    any other error of a package. Other exceptions propagate unchanged.
    """
    environment = None
    is_only_thread = threading.active_count() == 1
    if is_only_thread:
        environment = dict(os.environ)
    cuda = _torch_cuda()
    state = PreservedState()
    try:
        with warnings.catch_warnings():
            yield state
    except BaseException as error:
        if _is_rust_panic(error):
            raise RuntimeError(f"{who} raised {type(error).__name__}") from error
        raise
    finally:
        if not state.is_kept:
            if environment is not None and os.environ != environment:
                _restore_environment(environment)
                LOGGER.debug("%s changed environment variables: restored", who)
            if _is_cuda_replaced(cuda):
                _restore_cuda(cuda)
                LOGGER.debug("%s changed torch.cuda: restored", who)


def _is_rust_panic(error: BaseException) -> bool:
    # PyO3 defines the class, which derives from BaseException, in each extension.
    return type(error).__module__ == "pyo3_runtime"


def _restore_environment(previous: dict[str, str]) -> None:
    added = os.environ.keys() - previous.keys()
    for name in added:
        del os.environ[name]
    os.environ.update(previous)


def _torch_cuda() -> types.ModuleType | None:
    return getattr(sys.modules.get("torch"), "cuda", None)


def _is_cuda_replaced(previous: types.ModuleType | None) -> bool:
    """Return whether `torch.cuda` is another module than `previous`."""
    original = _original_cuda(previous)
    is_torch_imported = sys.modules.get("torch") is not None
    return is_torch_imported and original is not None and _torch_cuda() is not original


def _restore_cuda(previous: types.ModuleType | None) -> None:
    torch = sys.modules["torch"]
    torch.cuda = _original_cuda(previous)  # type: ignore[attr-defined]


def _original_cuda(previous: types.ModuleType | None) -> types.ModuleType | None:
    # If the block has imported torch, `sys.modules` contains the original module.
    return previous or sys.modules.get("torch.cuda")
