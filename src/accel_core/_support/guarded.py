"""A plugin's and a vendor's code runs guarded: announced, its output and its changes contained.

`begin` says what is about to run, `stdout_to_stderr` keeps its output away from the program's, `preserved`
puts back what it changes: the working directory, `os.environ`, `sys.path`, `sys.meta_path`, the recursion
limit, the interval timer, signal handlers, `sys.modules["torch"]` and `torch.cuda`. The rest stays as it was
left: the umask, the locale, patched functions, threads, memory.
"""

from __future__ import annotations

# The C module below `signal`: asking that one for 64 handlers costs ten times as much.
import _signal  # type: ignore[import-not-found]
import contextlib
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from accel_core._support import fork_safe_lock
from accel_core.errors import raised_by

__all__ = ["Kept", "begin", "captured_stdout", "preserved", "reported", "stdout_to_stderr"]

_log = logging.getLogger(__name__)

# --- Announced -----------------------------------------------------------------------------------------

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("accel_core_steps", default=None)


def begin(step: str) -> None:
    """Announce `step`, which begins now: `"importing torch_npu (accel-npu 0.1)"`."""
    _log.info("%s", step)
    listener = _listener.get()
    if listener is not None:
        listener(step)


@contextlib.contextmanager
def reported(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with each step that this thread or task begins, until the block ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


# --- Output --------------------------------------------------------------------------------------------
# `contextlib.redirect_stdout` would do it for the whole process: other threads' output would go astray, and
# two threads that leave in the wrong order would lose stdout for good.

_lock = fork_safe_lock()
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
def stdout_to_stderr() -> Iterator[None]:
    """Send what this thread prints to stderr until the block ends."""
    with _redirected(lambda: sys.stderr):
        yield


@contextlib.contextmanager
def captured_stdout() -> Iterator[io.StringIO]:
    """Keep what this thread prints until the block ends, and print nothing of it."""
    printed = io.StringIO()
    with _redirected(lambda: printed):
        yield printed


@contextlib.contextmanager
def _redirected(target: Callable[[], Any]) -> Iterator[None]:
    global _active
    before = getattr(_thread, "target", None)
    with _lock:
        _active += 1
        if not isinstance(sys.stdout, _Router):
            sys.stdout = _Router(sys.stdout)
        router: Any = sys.stdout
    _thread.target = target
    try:
        yield
    finally:
        _thread.target = before
        with _lock:
            _active -= 1
            if not _active and (sys.stdout is None or isinstance(sys.stdout, _Router)):
                sys.stdout = router._stream


def _count_again() -> None:
    """In a forked child there is this thread alone."""
    global _active
    _active = int(getattr(_thread, "target", None) is not None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_again)


# --- Changes -------------------------------------------------------------------------------------------


class Kept:
    """Whether the changes that the chosen vendor's package needs are kept."""

    #: Set in the block: the environment, additions to both import paths, and `torch.cuda` stay.
    stays = False


@contextlib.contextmanager
def preserved(who: object) -> Iterator[Kept]:
    """Put back what the block changes; the log names `who` and what it changed.

    Any `BaseException` but `SystemExit` and `KeyboardInterrupt` (PyO3's `PanicException`, say) is re-raised
    as `RuntimeError`. While other threads run the environment stays: one of them may have changed it.
    """
    noted = {part: note() for part, (note, _) in _PARTS.items()}
    kept = Kept()
    try:
        yield kept
    except BaseException as error:
        kept.stays = False
        if isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):
            raise
        if raised_by(noted["signal handlers"], error):  # the program's own, as pytest's `fail` in a deadline
            raise
        raise RuntimeError(f"{who} raised {type(error).__name__}") from error
    finally:
        theirs = _FOR_VENDORS if kept.stays else {}
        changed = [p for p in noted if _put_back(theirs.get(p, _PARTS[p][1]), noted[p])]
        if changed:
            _log.info("%s changed %s: put back", who, ", ".join(changed))


def _put_back(restore: Callable[[Any], bool], before: Any) -> bool:
    """Restore one part; whether it had changed."""
    try:
        return before is not None and restore(before)
    except (OSError, ValueError):  # the directory is gone, or this is not the main thread
        return False


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib is not imported for every choice
    except OSError:
        return None


def _enter(directory: str) -> bool:
    if _directory() == directory:
        return False
    os.chdir(directory)
    return True


def _environment() -> tuple[Any, dict[Any, Any]] | None:
    # As `os.environ` holds them: to decode each variable costs more than all else here.
    variables = getattr(os.environ, "_data", None)
    alone = threading.active_count() == 1
    return (os.environ, variables.copy()) if alone and variables is not None else None


def _set_environment(before: tuple[Any, dict[Any, Any]]) -> bool:
    environ, variables = before
    replaced = os.environ is not environ
    os.environ = environ  # noqa: B003 - the very object that was there
    now = vars(environ)["_data"]
    if now == variables:
        return replaced
    for name in now.keys() - variables.keys():
        del environ[os.fsdecode(name)]
    for name, value in variables.items():
        if now.get(name) != value:
            environ[os.fsdecode(name)] = os.fsdecode(value)
    return True


def _path() -> tuple[list[str], list[str]]:
    return sys.path, list(sys.path)


def _set_path(before: tuple[list[str], list[str]]) -> bool:
    path, entries = before
    changed = sys.path is not path or path != entries
    sys.path = path
    path[:] = entries
    return changed


def _finders() -> tuple[list[Any], list[Any]]:
    return sys.meta_path, list(sys.meta_path)


def _set_finders(before: tuple[list[Any], list[Any]]) -> bool:
    """Put the finders back; those that were appended stay, as modules such as `six` need theirs later on."""
    meta_path, finders = before
    if sys.meta_path is meta_path and meta_path[: len(finders)] == finders:
        appended = meta_path[len(finders) :]
    else:
        appended = []
    wanted = finders + [finder for finder in appended if hasattr(finder, "find_spec")]
    changed = sys.meta_path is not meta_path or meta_path != wanted
    sys.meta_path = meta_path
    meta_path[:] = wanted
    return changed


def _complete_path(before: tuple[list[str], list[str]]) -> bool:
    """Put back what is missing; what was added stays, as the chosen vendor's package may need it."""
    missing = [entry for entry in before[1] if entry not in sys.path]
    sys.path += missing
    return bool(missing)


def _complete_finders(before: tuple[list[Any], list[Any]]) -> bool:
    """Put back what is missing, and take out what is no finder; what was added stays."""
    wanted = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    wanted += [finder for finder in before[1] if finder not in wanted]
    changed = sys.meta_path != wanted
    sys.meta_path[:] = wanted
    return changed


def _set_recursion_limit(before: int) -> bool:
    changed = sys.getrecursionlimit() != before
    sys.setrecursionlimit(before)
    return changed


_SIGNALS = range(1, _signal.NSIG)


def _handlers() -> list[Any]:
    return [_signal.getsignal(number) for number in _SIGNALS]


def _set_handlers(before: list[Any]) -> bool:
    changed = False
    for number, handler in zip(_SIGNALS, before, strict=True):
        # One that no Python code has installed is `None`, and cannot be set again.
        if handler is not None and _signal.getsignal(number) is not handler:
            _signal.signal(number, handler)
            changed = True
    return changed


def _timer() -> tuple[float, float, float] | None:
    """Seconds that are left, the interval, and when that was."""
    if not hasattr(_signal, "getitimer"):
        return None
    return (*_signal.getitimer(_signal.ITIMER_REAL), time.monotonic())


def _set_timer(before: tuple[float, float, float]) -> bool:
    """Disarm one that was armed, arm again what was stopped; one that runs on, or rang, is left alone."""
    left, interval = _signal.getitimer(_signal.ITIMER_REAL)
    due = before[0] and max(0.0, before[0] - (time.monotonic() - before[2]))
    changed = bool(left) != bool(due or before[1]) or interval != before[1]
    if changed:
        _signal.setitimer(_signal.ITIMER_REAL, due or before[1], before[1])
    return changed


def _torch() -> Any:
    return sys.modules.get("torch")


def _set_torch(before: Any) -> bool:
    changed = sys.modules.get("torch") is not before
    sys.modules["torch"] = before
    return changed


def _cuda() -> tuple[Any, Any] | None:
    torch = sys.modules.get("torch")
    return (torch, vars(torch).get("cuda")) if torch is not None else None


def _set_cuda(before: tuple[Any, Any]) -> bool:
    torch, cuda = before
    if vars(torch).get("cuda") is cuda:
        return False
    torch.cuda = cuda
    return True


#: Each part's name for the log, how it is read and how it is set.
_PARTS: dict[str, tuple[Callable[[], Any], Callable[[Any], bool]]] = {
    "the working directory": (_directory, _enter),
    "the environment": (_environment, _set_environment),
    "sys.path": (_path, _set_path),
    "sys.meta_path": (_finders, _set_finders),
    "the recursion limit": (sys.getrecursionlimit, _set_recursion_limit),
    "the interval timer": (_timer, _set_timer),
    "signal handlers": (_handlers, _set_handlers),
    "sys.modules['torch']": (_torch, _set_torch),
    "torch.cuda": (_cuda, _set_cuda),
}

#: What is left to the vendor's package of the backend that is chosen, and what is still put back of it.
_FOR_VENDORS: dict[str, Callable[[Any], bool]] = {
    "the environment": lambda _: False,
    "sys.path": _complete_path,
    "sys.meta_path": _complete_finders,
    "torch.cuda": lambda _: False,
}
