"""Locks of torch's JIT builds, which stay when their holder is killed: torch then waits for them for ever.

torch's `FileBaton` creates a file `lock` in an operator's folder, and keeps it open until it is
removed. So a lock that no process has open is stale, if this process can see every process that may have it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from accel_core.hardware import placement

__all__ = ["Lock", "found", "locked", "prepare", "remove", "wait"]

#: File systems of this host alone, and of those the ones that containers do not share.
_LOCAL = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs")
_PRIVATE = ("overlay", "tmpfs")
#: Nothing compiles one file for longer without writing anything.
_LONG = 3600.0
_PAUSE = 0.5


class Lock(NamedTuple):
    """A lock, and who holds it."""

    path: Path
    #: The file, not only its name: another process may replace it.
    identity: tuple[int, int, int]
    #: The holder in words: `"process 12 (python train.py)"`; empty if no process of this host has it.
    holder: str
    #: Whether the holder is gone: no other host and no other container can be it.
    is_stale: bool

    @property
    def removal(self) -> str:
        """The command that removes it."""
        return f"rm {shlex.quote(str(self.path))}"


def locked(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders of compiled operators that torch keeps and has locked; torch is not imported."""
    given = environ.get("TORCH_EXTENSIONS_DIR")
    root = Path(
        given
        or Path(
            environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions"
        )
    )
    return [lock.parent for lock in (*root.glob("*/lock"), *root.glob("*/*/lock"))]


def found(folders: Iterable[Path], *, pause: float = _PAUSE) -> list[Lock]:
    """Return the locks in these folders, after two looks: torch closes a lock before it removes it."""
    first = {
        lock.path: lock for folder in folders if (lock := _examined(folder / "lock"))
    }
    if any(not lock.holder for lock in first.values()):
        time.sleep(pause)
    second = [
        _examined(path) if not lock.holder else lock for path, lock in first.items()
    ]
    return [
        lock for lock in second if lock and lock.identity == first[lock.path].identity
    ]


def wait(
    folders: Callable[[], Iterable[Path]], name: str, say: Callable[[str], None]
) -> None:
    """Return when none of these folders is locked: remove stale locks, and say who holds the others.

    `name`: the operator, in messages.
    """
    told = None
    while locks := found(folders()):
        for lock in locks:
            if lock.is_stale:
                remove(lock)
                say(
                    f"removed {lock.path}: the process that was compiling {name} is gone"
                )
            elif lock != told:
                told = lock
                whom = lock.holder or "another host or container"
                also = (
                    ""
                    if lock.holder
                    else f". If nothing compiles it there: {lock.removal}"
                )
                say(f"waiting for {whom}, which compiles {name}{also}")
        time.sleep(_PAUSE)


def prepare() -> None:
    """Remove stale locks when a program imports torch's code for JIT builds, which would wait for them."""
    for lock in found(locked(os.environ)):
        if lock.is_stale:
            remove(lock)
            sys.stderr.write(
                f"accel: removed {lock.path}: the process that was compiling there is gone\n"
            )


def remove(lock: Lock) -> None:
    """Remove the file, unless another one has its name by now."""
    with contextlib.suppress(OSError):
        if _identity(lock.path.stat()) == lock.identity:
            lock.path.unlink()


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _examined(path: Path) -> Lock | None:
    try:
        status = path.stat()
        newest = max(file.stat().st_mtime for file in path.parent.iterdir())
    except (OSError, ValueError):
        return None
    holder = _holder(status)
    is_stale = not holder and (
        _is_seen(path, status.st_uid) or time.time() - newest > _LONG
    )
    return Lock(path, _identity(status), holder, is_stale)


def _holder(status: os.stat_result) -> str:
    """The process that has the file open, in words."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if any(_is(file, status) for file in (process / "fd").iterdir()):
                command = (
                    (process / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                )
                return f"process {process.name} ({' '.join(command.split()):.80})"
    return ""


def _is(file: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(file.stat(), status)
    except OSError:  # closed by now
        return False


def _is_seen(path: Path, owner: int) -> bool:
    """Whether each process that may hold a lock of `owner` there is one whose open files we can read."""
    if not hasattr(os, "geteuid") or os.geteuid() not in (0, owner):
        return False
    mounted = {}
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
        ):
            _, place, kind, *_ = line.split(" ")
            mounted[place] = kind
    parents = (str(parent) for parent in path.resolve().parents)
    kind = next((mounted[parent] for parent in parents if parent in mounted), "")
    return kind in (
        _PRIVATE if placement.placement(environ=os.environ).container else _LOCAL
    )
