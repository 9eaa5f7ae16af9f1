"""The folder for what is compiled here: private to the user, one build for each set of inputs.

`<cache>/ops/<name>-<key>/` holds a library and `manifest.json` with its digest. The folder appears in one
step, when the library is complete: no reader sees half a build, and a builder that was killed leaves only a
folder that nobody loads from, which the next builder removes. Builders of one entry wait for each other by a
lock of the operating system, which ends with its holder.

What lies in another user's folder, or in one that others can write, is never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from accel_core import settings
from accel_core.errors import OpCacheError

__all__ = ["Entry", "default_root", "entry", "has_any"]

_MANIFEST = "manifest.json"


def default_root(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where compiled operators go: `ACCEL_CACHE`, else `accel-core` in the platform's cache folder.

    Raises `OpCacheError` where neither is known, as for a user without a home.
    """
    chosen = settings.ACCEL_CACHE.read(environ)
    if chosen:
        return Path(os.path.abspath(Path(chosen).expanduser()))  # noqa: PTH100 — resolve() follows links
    given = settings.XDG_CACHE_HOME.read(environ)
    try:
        if platform == "win32":
            return Path.home() / "AppData" / "Local" / "accel-core" / "Cache"
        if platform == "darwin":
            return Path.home() / "Library" / "Caches" / "accel-core"
        # The XDG specification: a relative path is to be ignored.
        return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "accel-core"  # noqa: PTH117
    except RuntimeError as error:
        raise OpCacheError(
            f"no folder for compiled operators is known: {error} Set ACCEL_CACHE to a folder of your own."
        ) from None


def entry(name: str, inputs: Mapping[str, object]) -> Entry:
    """The place for what is compiled as `name` from `inputs`: all that decides what comes out, JSON-able."""
    text = json.dumps(inputs, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:20]
    return Entry(default_root(os.environ), f"{name}-{key}", dict(inputs))


def has_any(name: str) -> bool:
    """Whether anything is kept as `name`, whatever it was built from: a quick no before `entry`.

    Raises `OpCacheError` as `default_root` does.
    """
    folder = default_root(os.environ) / "ops"
    try:
        return any(found.startswith(f"{name}-") for found in os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # what is wrong with it, `Entry.find` says


class Entry(NamedTuple):
    """One build's place in the cache."""

    root: Path
    name: str
    inputs: dict[str, object]

    @property
    def folder(self) -> Path:
        """Where the finished build is, or will be."""
        return self.root / "ops" / self.name

    @property
    def log(self) -> Path:
        """Where the compiler's output of a build that failed is kept."""
        return self.folder.with_name(f"{self.name}.log")

    def find(self) -> Path | None:
        """The library of the finished build; `None` when there is none.

        Raises `OpCacheError` when it, or a folder above it, is not ours alone or not what was built.
        """
        for folder in (self.root, self.folder.parent, self.folder):
            if not os.path.lexists(folder):
                return None
            _check(folder, stat.S_ISDIR, "folder")
        manifest = self.folder / _MANIFEST
        if not os.path.lexists(manifest):
            return None
        _check(manifest, stat.S_ISREG, "file")
        try:
            noted = json.loads(manifest.read_bytes())
            library, digest = self.folder / Path(noted["library"]).name, noted["sha256"]
            _check(library, stat.S_ISREG, "file")
            intact = _digest(library) == digest
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, OpCacheError):
                raise
            raise OpCacheError(f"{manifest} cannot be read: {error}. {_remove(self.folder)}") from error
        if not intact:
            raise OpCacheError(
                f"{library} is not what was built there: its SHA-256 differs from the one in {_MANIFEST}. "
                f"It was not loaded. {_remove(self.folder)}"
            )
        return library

    def fault(self) -> str:
        """Why nothing can be built here, as one sentence; empty where it can."""
        try:
            self._prepare()
        except OpCacheError as error:
            return str(error)
        return ""

    def build(self, make: Callable[[Path], Path], *, waiting: Callable[[], None] = lambda: None) -> Path:
        """The library: the one that is there, else the one that `make(folder)` leaves in an empty folder.

        One process builds; the others wait and take what it built. `waiting` is called once when another
        process builds already. What `make` raises passes through, and nothing is kept.
        """
        self._prepare()
        with self._locked(waiting):
            cached = self.find()
            if cached is not None:
                return cached
            for left in self.folder.parent.glob(f".{self.name}-*"):  # the lock's last holder was killed
                shutil.rmtree(left, ignore_errors=True)
            staging = Path(tempfile.mkdtemp(prefix=f".{self.name}-", dir=self.folder.parent))
            try:
                made = make(staging)
                self._publish(staging, made)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            self.log.unlink(missing_ok=True)
            return self.folder / made.name

    def _publish(self, staging: Path, library: Path) -> None:
        os.chmod(library, 0o700)  # noqa: PTH101 — a linker follows the umask, which may let a group write
        noted = {"library": library.name, "sha256": _digest(library), "inputs": self.inputs}
        manifest = staging / _MANIFEST
        manifest.touch(0o600)
        manifest.write_text(json.dumps(noted, indent=1), encoding="utf-8")
        for path in (library, manifest):  # a machine that goes down must not leave an entry of zeros
            with path.open("r+b") as file:
                os.fsync(file.fileno())
        shutil.rmtree(self.folder, ignore_errors=True)  # a folder without manifest is nobody's build
        staging.rename(self.folder)

    def _prepare(self) -> None:
        """Make the folders above, and see that they are ours and can be written."""
        for folder in (self.root, self.folder.parent):
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                if not os.path.lexists(folder):
                    raise _unwritable(folder, error) from error
            _check(folder, stat.S_ISDIR, "folder")
        try:
            with tempfile.TemporaryFile(dir=self.folder.parent):
                pass
        except OSError as error:
            raise _unwritable(self.folder.parent, error) from error

    @contextlib.contextmanager
    def _locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        from filelock import FileLock, Timeout  # comes with torch

        # The operating system drops it when its holder ends, however that ends.
        lock = FileLock(self.folder.with_name(f"{self.name}.lock"))
        try:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                waiting()
                lock.acquire()
        except OSError as error:
            raise _unwritable(self.folder.parent, error) from error
        try:
            yield
        finally:
            lock.release()


def _check(path: Path, right_kind: Callable[[int], bool], kind: str) -> None:
    """Raise `OpCacheError` unless this is a file or folder of this user that nobody else can write."""
    try:
        status = path.lstat()
    except OSError as error:
        raise OpCacheError(f"{path} cannot be examined: {error.strerror}. {_elsewhere()}") from error
    if stat.S_ISLNK(status.st_mode):
        raise OpCacheError(
            f"{path} is a symbolic link, and what is loaded must not be somewhere else. "
            f"Set ACCEL_CACHE to the real folder, or remove the link: rm {shlex.quote(str(path))}"
        )
    if not right_kind(status.st_mode):
        raise OpCacheError(f"{path} is not a {kind}. {_elsewhere()}")
    if not hasattr(os, "geteuid"):
        return  # Windows: the profile's access lists keep others out
    if status.st_uid != os.geteuid():
        raise OpCacheError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}: "
            f"nothing is loaded from there. {_elsewhere()}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OpCacheError(
            f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o}): nothing is loaded "
            f"from there. If you trust what is in it: chmod go-w {shlex.quote(str(path))}. "
            f"Else: rm -r {shlex.quote(str(path))}"
        )


def _unwritable(folder: Path, error: OSError) -> OpCacheError:
    return OpCacheError(f"{folder} cannot be written: {error.strerror or error}. {_elsewhere()}")


def _elsewhere() -> str:
    return "Set ACCEL_CACHE to a folder of your own, as in ACCEL_CACHE=$HOME/accel-cache."


def _remove(folder: Path) -> str:
    return f"To have it built again: rm -r {shlex.quote(str(folder))}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
