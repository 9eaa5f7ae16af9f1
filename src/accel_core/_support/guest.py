"""A plugin's code, and a vendor's, runs as a guest: what it leaves changed in the user's process is put back.

The working directory, the umask, the environment and how it is read, the locale, signal handlers, and which
torch and `torch.cuda` everybody sees: noted before, put back after. Threads, child processes, memory and what
was read from stdin stay as they are: nobody can put them back.
"""

from __future__ import annotations

# The C modules below `signal` and `locale`: to ask those of 64 signals costs ten times as much.
import _locale
import _signal  # type: ignore[import-not-found]
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Guest"]

_log = logging.getLogger(__name__)


class Guest:
    """`with Guest(who):` around the code of a plugin or a vendor; `who` is named in the log.

    Where the block ends, what it has changed is put back. Where `stays` was set in it, and it ended without
    an error, the environment and `torch.cuda` stay: the vendor's package of the backend that is chosen may
    need what it has set. While other threads run the environment stays too: they may have changed it.

    What the block raises comes out as an `Exception`, whatever it was, `SystemExit` and Ctrl-C apart: a panic
    of Rust's is a `BaseException` that no caller expects.

    One that is `watched` leaves everything as it made it, for whoever looks. It may be entered again, `who`
    being another: it notes at the first time. 5 microseconds, and 5 each time.
    """

    __slots__ = ("_noted", "_watched", "stays", "who")

    def __init__(self, who: object = "", *, watched: bool = False) -> None:
        self.who = who
        self.stays = False
        self._watched = watched
        self._noted: dict[str, Any] = {}

    def __enter__(self) -> Guest:
        self._noted = self._noted or _note()
        return self

    def __exit__(self, kind: object, failure: BaseException | None, _: object) -> None:
        if not self._watched:
            changed = _put_back(self._noted, to_the_vendor=self.stays and failure is None)
            if changed:
                _log.info("%s changed %s: put back", self.who, ", ".join(changed))
        if failure is not None and not isinstance(failure, (Exception, SystemExit, KeyboardInterrupt)):
            raise RuntimeError(f"{self.who} raised {type(failure).__name__}") from failure


def _note() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "the working directory": _directory(),
        "the umask": _umask(),
        "how the environment is read": (os.environ, vars(os.environ).copy(), dict(vars(type(os.environ)))),
        "the environment": _environment().copy() if threading.active_count() == 1 else None,
        "the locale": _locale.setlocale(_locale.LC_ALL, None),
        "signal handlers": [_signal.getsignal(n) for n in _SIGNALS],
        "sys.modules['torch']": torch,
        "torch.cuda": vars(torch).get("cuda") if torch else None,
    }


_SIGNALS = range(1, _signal.NSIG)


def _put_back(noted: dict[str, Any], *, to_the_vendor: bool) -> list[str]:
    """What was another than noted; it is as noted again."""
    changed = []
    for what, put_back in _PUT_BACK.items():
        before = noted[what]
        if before is None or (to_the_vendor and what in _FOR_VENDORS):
            continue
        try:
            if put_back(before):
                changed.append(what)
        except (OSError, ValueError):  # the directory is gone, or this is not the main thread
            continue
    return changed


#: What is left to the vendor's package of the backend that is chosen.
_FOR_VENDORS = ("the environment", "torch.cuda")


def _directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib is not imported for every choice
    except OSError:
        return None


def _umask() -> int:
    # It can only be read by setting it. What another thread makes in between is private rather than open.
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _environment() -> dict[Any, Any]:
    """The variables as `os.environ` holds them: to decode each costs more than all else here."""
    return getattr(os.environ, "_data", None) or dict(os.environ)


def _enter(directory: str) -> bool:
    if _directory() == directory:
        return False
    os.chdir(directory)
    return True


def _mask(umask: int) -> bool:
    return os.umask(umask) != umask


def _read_as(before: tuple[Any, dict[str, Any], dict[str, Any]]) -> bool:
    environ, own, of_type = before
    replaced = os.environ is not environ
    os.environ = environ  # noqa: B003 - the very object that was there
    return _attributes(environ, own) | _attributes(type(environ), of_type) | replaced


def _attributes(owner: Any, before: dict[str, Any]) -> bool:
    if vars(owner) == before:
        return False
    now = dict(vars(owner))
    for name in now.keys() - before.keys():
        delattr(owner, name)
    for name, value in before.items():
        if now.get(name) is not value:
            setattr(owner, name, value)
    return True


def _set_environment(before: dict[Any, Any]) -> bool:
    now = _environment()
    if now == before:
        return False
    for name in [name for name in now if name not in before]:
        del os.environ[os.fsdecode(name)]
    for name, value in before.items():
        if now.get(name) != value:
            os.environ[os.fsdecode(name)] = os.fsdecode(value)
    return True


def _set_locale(before: str) -> bool:
    if _locale.setlocale(_locale.LC_ALL, None) == before:
        return False
    _locale.setlocale(_locale.LC_ALL, before)
    return True


def _set_handlers(before: list[Any]) -> bool:
    changed = False
    for number, handler in zip(_SIGNALS, before, strict=True):
        # One that no Python code has installed is `None`, and cannot be set again.
        if handler is not None and _signal.getsignal(number) is not handler:
            _signal.signal(number, handler)
            changed = True
    return changed


def _set_torch(before: object) -> bool:
    changed = sys.modules.get("torch") is not before
    sys.modules["torch"] = before  # type: ignore[assignment]
    return changed


def _set_cuda(before: object) -> bool:
    torch: Any = sys.modules["torch"]
    if vars(torch).get("cuda") is before:
        return False
    torch.cuda = before
    return True


_PUT_BACK: dict[str, Callable[[Any], bool]] = {
    "the working directory": _enter,
    "the umask": _mask,
    "how the environment is read": _read_as,
    "the environment": _set_environment,
    "the locale": _set_locale,
    "signal handlers": _set_handlers,
    "sys.modules['torch']": _set_torch,
    "torch.cuda": _set_cuda,
}
