"""A plugin's and a vendor's code runs guarded: announced, quiet, its changes put back.

`announce` says what is about to run, `choosing` keeps it from asking what is chosen, `quiet` keeps its output
away from the program's, `restoring` puts back the five parts of the process that vendors' packages are known
to change: the working directory, `os.environ`, `sys.path`, `torch.cuda` and the filters of `warnings`.
Everything else stays as they leave it.
"""

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, TextIO

from accel_core.errors import RecursiveChoiceError
from accel_core.locks import ForkSafeLock
from accel_core.log import LOGGER

# --- Announced -----------------------------------------------------------------------------------------

_listener: ContextVar[Callable[[str], object]] = ContextVar("accel_core_steps", default=lambda _: None)


#: The step that began last in this thread or task.
last_step: ContextVar[str] = ContextVar("accel_core_last_step", default="")


def announce(step: str) -> None:
    """Announce `step`, which begins now: `"importing torch_npu (accel-npu 0.1)"`."""
    LOGGER.debug("%s", step)
    last_step.set(step)
    _listener.get()(step)


@contextlib.contextmanager
def announcing_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with each step that this thread or task announces, until the block ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


# --- Alone ---------------------------------------------------------------------------------------------

#: The process in which a choice is under way: a forked child may choose, though its parent was choosing.
_choosing = 0


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """The time of one choice, in which a plugin or a vendor's package must not ask for its outcome."""
    global _choosing
    if _choosing == os.getpid():
        raise RecursiveChoiceError(
            "get_accelerator() was called while the accelerator was being chosen, by a plugin or by the "
            "vendor package it imports. A plugin must not call it at import or in a hook."
        )
    _choosing = os.getpid()
    try:
        yield
    finally:
        _choosing = 0


# --- Quiet ---------------------------------------------------------------------------------------------
# `contextlib.redirect_stdout` would do it for the whole process: other threads' output would go astray, and
# two threads that leave in the wrong order would lose stdout for good.

_lock = ForkSafeLock()
#: `target`: gives the stream that takes this thread's output; `None`, or missing, outside every block.
_thread = threading.local()
_active = 0


class _Router:
    """Stands in for `sys.stdout`: a thread's output goes to its target, everybody else's where it was."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        target = getattr(_thread, "target", None)
        return getattr(self._stream if target is None else target(), name)


@contextlib.contextmanager
def quiet(into: TextIO | None = None) -> Iterator[None]:
    """Send what this thread prints to stderr until the block ends, or `into` another stream."""
    global _active
    before = getattr(_thread, "target", None)
    with _lock.held():
        _active += 1
        if not isinstance(sys.stdout, _Router):
            sys.stdout = _Router(sys.stdout)
        router: Any = sys.stdout
    _thread.target = lambda: sys.stderr if into is None else into
    try:
        yield
    finally:
        _thread.target = before
        with _lock.held():
            _active -= 1
            if not _active and (sys.stdout is None or isinstance(sys.stdout, _Router)):
                sys.stdout = router._stream


# --- Put back ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def restoring(who: object) -> Iterator[SimpleNamespace]:
    """Put back what the block changes of the five parts; the log names `who` and what it changed.

    Where the block sets `stays`, as for the chosen vendor's package, the environment, additions to `sys.path`
    and `torch.cuda` stay.

    Any `BaseException` but `SystemExit` and `KeyboardInterrupt` (PyO3's `PanicException`, say) is re-raised
    as `RuntimeError`, unless the program's own signal handler raised it. While other threads run the
    environment stays: one of them may have changed it.
    """
    before = vars(sys.modules.get("torch") or sys).get("cuda")
    directory, environ, path, entries = _directory(), os.environ, sys.path, [*sys.path]
    # As `os.environ` holds them: to decode each variable costs more than all else here.
    variables = {**getattr(environ, "_data", {})} if threading.active_count() == 1 else {}
    kept, changed = SimpleNamespace(stays=False), []
    with warnings.catch_warnings():
        filters = [*warnings.filters]
        try:
            yield kept
        except BaseException as error:
            kept.stays = False
            if isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):
                raise
            raise RuntimeError(f"{who} raised {type(error).__name__}") from error
        finally:
            if directory and _directory() != directory:
                with contextlib.suppress(OSError):  # it is gone
                    os.chdir(directory)
                    changed.append("the working directory")
            if not kept.stays and variables and _put_back(environ, variables):
                changed.append("the environment")
            left = [*sys.path]
            sys.path = path
            path[:] = [*left, *(e for e in entries if e not in left)] if kept.stays else entries
            if path != left:
                changed.append("sys.path")
            cuda = before or sys.modules.get("torch.cuda")  # torch may have come in the block
            if (torch := sys.modules.get("torch")) and not kept.stays and vars(torch).get("cuda") is not cuda:
                vars(torch)["cuda"] = cuda
                changed.append("torch.cuda")
            if warnings.filters != filters:
                changed.append("the filters of warnings")
            if changed:
                LOGGER.debug("%s changed %s: put back", who, ", ".join(changed))


def _directory() -> str | None:
    with suppress(OSError):
        return os.getcwd()  # noqa: PTH109 - pathlib is not imported for every choice
    return None


def _put_back(environ: Any, before: dict[Any, Any]) -> bool:
    """Make `environ` the environment again, with the variables of `before`; whether it was another."""
    now: dict[Any, Any] = environ._data
    if os.environ is environ and now == before:
        return False
    os.environ = environ  # noqa: B003 - the very object that was there
    environ.clear()
    environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in before.items()})
    return True
