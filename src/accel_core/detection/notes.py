"""Notes of what processes try, as files: written, found again, read and removed.

One file a process, in `trying/` in the user's cache folder, held by a lock that ends with the process: no
process number is believed, which another process, or another container, may have. Locks of lockf(3) are not
inherited by a fork, so that a child which outlives its parent does not keep its note alive. Where anything
about the folder or a file is not as it should be, there are no notes, and no error.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import NamedTuple

from accel_core._text import clean
from accel_core.backend import Provenance
from accel_core.machine.folders import user_cache

__all__ = ["Death", "Notes"]

_MARK = "accel-core 1"
#: Bytes of the longest note, and how many are looked at.
_LONGEST = 4096
_MOST = 256
_DAY = 86400.0
#: Seconds after which a note of what is no longer installed is removed.
_OLD = 30 * _DAY
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK if hasattr(os, "lockf") else 0

#: What stands in the way of notes: the folder, no home that is known, a setting that cannot be understood.
_UNFIT = (OSError, RuntimeError, ValueError)


class Death(NamedTuple):
    """The note of a process that did not survive what it tried."""

    distribution: str
    version: str
    #: The backend, or the entry point, by name.
    name: str
    #: `LOADING` or `PROBING`.
    kind: str
    host: str
    pid: str
    #: Seconds since the epoch.
    time: int
    step: str

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.time))
        return f"an earlier process (number {self.pid}, {when}) died at: {self.step}"


class Notes:
    """The file of this process's note, and the notes of those that died; `end` closes it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._folder = -1
        self._file = -1
        self._name = ""
        self._given_up = not hasattr(os, "lockf")
        #: The notes that were found, by their files' names.
        self._deaths: dict[str, Death] | None = None
        self._survived: set[tuple[str, str, str]] = set()

    def step(self, source: Provenance, name: str, kind: str, what: str) -> None:
        """`what` begins, which runs code of that distribution's, or of its vendor's, in this process."""
        if self._given_up or os.getpid() != self._process:
            return
        try:
            if self._file < 0:
                self._create()
            os.pwrite(self._file, _written(source, name, kind, what), 0)
        except _UNFIT:
            self.end(keep=False)
            self._given_up = True

    def survived(self, source: Provenance, kind: str) -> None:
        """That distribution has come through all steps of that kind in this process."""
        self._survived.add((source.distribution, source.version, kind))

    def earlier(self, source: Provenance, kind: str) -> Death | None:
        """An earlier process that did not survive those steps of that version of that distribution."""
        if self._given_up:
            return None
        try:
            deaths = self._found()
        except _UNFIT:
            self._given_up = True
            return None
        return next(
            (
                death
                for death in deaths.values()
                if (death.distribution, death.version, death.kind)
                == (source.distribution, source.version, kind)
            ),
            None,
        )

    def installed(self, source: Provenance) -> None:
        """That version of that distribution is what is installed; notes of another one are void."""
        for file, death in list((self._deaths or {}).items()):
            if death.distribution == source.distribution and death.version != source.version:
                self._forget(file, death)

    # --- the folder ------------------------------------------------------------------------------------

    def _found(self) -> dict[str, Death]:
        """The notes of processes that have ended; what is too old, or there twice, is removed."""
        if self._deaths is not None:
            return self._deaths
        self._deaths = {}
        if not self._open_folder(make=False):
            return self._deaths
        now = time.time()
        newest: dict[tuple[str, str, str], str] = {}
        for file in sorted(os.listdir(self._folder))[:_MOST]:
            death = _read(self._folder, file)
            if death is None:
                continue
            key = (death.distribution, death.version, death.kind)
            twice = newest.get(key)
            if now - death.time > _OLD:
                self._forget(file, death)
            elif twice is None or self._deaths[twice].time < death.time:
                newest[key] = file
                self._deaths[file] = death
                if twice is not None:
                    self._forget(twice, self._deaths[twice])
            else:
                self._forget(file, death)
        return self._deaths

    def _forget(self, file: str, death: Death) -> None:
        """Remove a note; that of another host, which may fare otherwise, after a day."""
        (self._deaths or {}).pop(file, None)
        if death.host == _host() or time.time() - death.time > _DAY:
            _remove(self._folder, file)

    def _open_folder(self, *, make: bool) -> bool:
        """Open the folder; whether it is there. Raises `OSError` where it is not this user's alone."""
        if self._folder >= 0:
            return True
        path = f"{user_cache(os.environ)}/trying"
        if make:
            _make(path)
        try:
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except FileNotFoundError:
            return False
        status = os.fstat(self._folder)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is not this user's alone")
        return True

    def _create(self) -> None:
        self._open_folder(make=True)
        self._name = os.urandom(8).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        self._file = os.open(self._name, flags, 0o600, dir_fd=self._folder)
        os.lockf(self._file, os.F_TLOCK, 0)

    def end(self, *, keep: bool) -> None:
        """Close the note and remove it, and those that what survived has refuted; `keep`: leave it."""
        if self._file >= 0:
            if not keep and os.getpid() == self._process:
                _remove(self._folder, self._name)
            os.close(self._file)
        if self._folder >= 0:
            if os.getpid() == self._process:
                for file, death in list((self._deaths or {}).items()):
                    if (death.distribution, death.version, death.kind) in self._survived:
                        self._forget(file, death)
            os.close(self._folder)
        self._file = self._folder = -1


def _written(source: Provenance, name: str, kind: str, what: str) -> bytes:
    fields = (
        _MARK,
        source.distribution,
        source.version,
        name,
        kind,
        _host(),
        os.getpid(),
        int(time.time()),
        what,
    )
    # The empty line ends it: what an earlier, longer note left behind it does not count.
    return ("\n".join(map(str, fields)) + "\n\n").encode("utf-8", "replace")[:_LONGEST]


def _read(folder: int, file: str) -> Death | None:
    """The note of a process that has ended; `None` for that of one that lives, and for what is no note."""
    try:
        descriptor = os.open(file, os.O_RDONLY | _FLAGS, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _LONGEST:
            return None
        os.lockf(descriptor, os.F_TEST, 0)  # raises while its process lives
        mark, *fields = os.read(descriptor, _LONGEST).decode().partition("\n\n")[0].split("\n")
        if mark != _MARK or len(fields) != len(Death._fields):
            return None
        distribution, version, name, kind, host, pid, seconds, step = map(clean, fields)
        return Death(distribution, version, name, kind, host, pid, int(seconds), step)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _make(path: str) -> None:
    """Make the folder, and those above it that are missing, below one of this user's."""
    missing: list[str] = []
    above = path
    while not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)  # noqa: PTH120
    # Nobody makes a whole home, nor root a folder in that of a user who then cannot write there.
    if len(missing) > 3 or (missing and os.stat(above).st_uid != os.geteuid()):  # noqa: PTH116
        raise PermissionError(f"{above} is not this user's")
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)  # noqa: PTH102
        except FileExistsError:  # another process was faster
            continue


def _remove(folder: int, file: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file, dir_fd=folder)


def _host() -> str:
    return os.uname().nodename
