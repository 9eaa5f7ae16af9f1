"""The cache of compiled operators: private to the user, with one build for each set of inputs.

`<cache>/ops/<name>-<key>/` holds a library and `manifest.json` with its digest. The folder appears in one
step when the library is complete, so no reader sees half a build. A builder that is killed leaves only a
folder that is never loaded from; the next builder removes it. Builders of one entry wait for each other by an
operating-system lock, which ends with the process that holds it.

Nothing is loaded from another user's folder, from a folder that others can write to, or from below a folder
in which others could replace the content. The checked file is the loaded file: it is opened once, and loaded
by its descriptor.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from accel_core.errors import OpCacheError
from accel_train.ops.folders import user_cache
from accel_train.ops.ownership import check, check_above, check_opened, elsewhere

__all__ = ["Entry", "Library", "default_root", "entries", "entry", "has_any"]

_MANIFEST = "manifest.json"


def default_root(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the folder of compiled operators: `ACCEL_CACHE`, or our folder in the platform's cache folder.

    Raises `OpCacheError` if neither is known, as for a user without a home folder.
    """
    try:
        return Path(user_cache(environ, platform, lambda: str(Path.home())))
    except RuntimeError as error:
        raise OpCacheError(
            f"the folder for compiled operators is not known: {error} "
            "Set ACCEL_CACHE to a folder of your own."
        ) from None


def entry(name: str, inputs: Mapping[str, object]) -> Entry:
    """Return the cache entry for `name` built from `inputs`: all that affects the result, JSON-able."""
    text = json.dumps(inputs, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:20]
    return Entry(default_root(os.environ), f"{name}-{key}", dict(inputs))


def entries(name: str) -> Iterator[Entry]:
    """Yield every cache entry for `name`, with the inputs from its manifest.

    Raises `OpCacheError` as `default_root` does.
    """
    root = default_root(os.environ)
    for manifest in sorted((root / "ops").glob(f"{name}-*/{_MANIFEST}")):
        try:
            inputs = dict(json.loads(manifest.read_text(encoding="utf-8"))["inputs"])
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ):  # nobody's that we know; nobody loads it
            continue
        yield Entry(root, manifest.parent.name, inputs)


def has_any(name: str) -> bool:
    """Return whether the cache has any entry for `name`, from any inputs: a quick check before `entry`.

    Raises `OpCacheError` as `default_root` does.
    """
    folder = default_root(os.environ) / "ops"
    try:
        return any(found.startswith(f"{name}-") for found in os.listdir(folder))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # what is wrong with it, `Entry.find` says


class Library(NamedTuple):
    """A library whose ownership and digest were checked."""

    #: Where it lies, for people; another file may lie there by now.
    path: Path
    #: The name by which the loader gets what was checked, as long as the library is held.
    loadable: str


class Entry(NamedTuple):
    """The place of one build in the cache."""

    root: Path
    name: str
    inputs: dict[str, object]

    @property
    def folder(self) -> Path:
        """Return the folder of the finished build."""
        return self.root / "ops" / self.name

    @property
    def log(self) -> Path:
        """Return the file with the compiler's output of a failed build."""
        return self.folder.with_name(f"{self.name}.log")

    def find(self) -> Path | None:
        """Return the library of the finished build; `None` if there is none.

        Raises `OpCacheError` if others can write to the library or to a folder above it, or if its content is
        not what was built.
        """
        with self._opened() as found:
            return None if found is None else found[0]

    @contextlib.contextmanager
    def held(self) -> Iterator[Library | None]:
        """Yield the checked library, to load in the block even if its path changes meanwhile; else `None`."""
        with self._opened() as found:
            if found is None:
                yield None
                return
            with _loadable(*found) as name:
                yield Library(found[0], name)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Path, BinaryIO] | None]:
        """The library's path and the very file whose digest was taken."""
        if not check_above(self.root):
            yield None
            return
        for folder in (self.root, self.folder.parent, self.folder):
            if not os.path.lexists(folder):
                yield None
                return
            check(folder, stat.S_ISDIR, "folder")
        manifest = self.folder / _MANIFEST
        if not os.path.lexists(manifest):
            yield None
            return
        with contextlib.ExitStack() as stack:
            try:
                noted = json.loads(stack.enter_context(_open(manifest)).read())
                path, digest = (
                    self.folder / Path(noted["library"]).name,
                    noted["sha256"],
                )
                library = stack.enter_context(_open(path))
                intact = _digest(library) == digest
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                if isinstance(error, OpCacheError):
                    raise
                raise OpCacheError(
                    f"{manifest} cannot be read: {error}. {_remove(self.folder)}"
                ) from error
            if not intact:
                raise OpCacheError(
                    f"{path} is not what was built: its SHA-256 differs from the one in {_MANIFEST}. "
                    f"It was not loaded. {_remove(self.folder)}"
                )
            yield path, library

    def fault(self) -> str:
        """Return why nothing can be built here, as one sentence; empty if it can."""
        try:
            self._prepare()
        except OpCacheError as error:
            return str(error)
        return ""

    def build(
        self,
        make: Callable[[Path], Path],
        *,
        waiting: Callable[[], None] = lambda: None,
    ) -> Path:
        """Return the library; if the entry has none, `make(folder)` builds it in an empty folder.

        One process builds; the others wait and use its result. `waiting` is called once if another process is
        building already. If `make` raises, the exception passes through, and nothing is kept.
        """
        self._prepare()
        with self._locked(waiting):
            cached = self.find()
            if cached is not None:
                return cached
            for left in self.folder.parent.glob(
                f".{self.name}-*"
            ):  # the lock's last holder was killed
                shutil.rmtree(left, ignore_errors=True)
            staging = Path(
                tempfile.mkdtemp(prefix=f".{self.name}-", dir=self.folder.parent)
            )
            try:
                made = make(staging)
                self._publish(staging, made)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            self.log.unlink(missing_ok=True)
            return self.folder / made.name

    def _publish(self, staging: Path, library: Path) -> None:
        os.chmod(library, 0o700)  # noqa: PTH101 — a linker follows the umask, which may let a group write
        with library.open("rb") as file:
            noted = {
                "library": library.name,
                "sha256": _digest(file),
                "inputs": self.inputs,
            }
        manifest = staging / _MANIFEST
        manifest.touch(0o600)
        manifest.write_text(json.dumps(noted, indent=1), encoding="utf-8")
        for path in (
            library,
            manifest,
        ):  # a machine that goes down must not leave an entry of zeros
            with path.open("r+b") as file:
                os.fsync(file.fileno())
        shutil.rmtree(
            self.folder, ignore_errors=True
        )  # a folder without manifest is nobody's build
        staging.rename(self.folder)

    def _prepare(self) -> None:
        """Make the folders above, and see that they are ours and can be written."""
        for folder in (self.root, self.folder.parent):
            try:
                check_above(folder, make=True)
                folder.mkdir(mode=0o700, exist_ok=True)
            except OpCacheError:
                raise
            except OSError as error:
                if not os.path.lexists(folder):
                    raise _unwritable(folder, error) from error
            check(folder, stat.S_ISDIR, "folder")
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


def _unwritable(folder: Path, error: OSError) -> OpCacheError:
    return OpCacheError(
        f"{folder} cannot be written: {error.strerror or error}. {elsewhere()}"
    )


def _remove(folder: Path) -> str:
    return f"To have it built again: rm -r {shlex.quote(str(folder))}"


def _digest(file: BinaryIO) -> str:
    return hashlib.sha256(file.read()).hexdigest()


def _open(path: Path) -> BinaryIO:
    """A file of ours alone, opened and then checked again: what it is open on no longer changes its place."""
    check(path, stat.S_ISREG, "file")
    flags = sum(
        getattr(os, name, 0)
        for name in ("O_BINARY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK")
    )
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        check_opened(path, descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


#: How many libraries were held, for no two may be loaded by one name.
_numbers = itertools.count()


@contextlib.contextmanager
def _loadable(path: Path, file: BinaryIO) -> Iterator[str]:
    """A name by which the system's loader opens the file that `file` is open on."""
    name = f"/proc/self/fd/{'./' * next(_numbers)}{file.fileno()}"
    if sys.platform == "linux" and Path(name).exists():
        # The dots, because a loader takes a name that it has seen for the library that it has, and the next
        # library may be opened with the same number.
        yield name
    elif sys.platform == "win32":
        yield str(
            path
        )  # only the user, and who rules the machine, can write below the profile
    else:
        file.seek(0)
        # Not TemporaryDirectory: the loader may still read the file when the process ends in between.
        folder = Path(
            tempfile.mkdtemp(prefix="accel-")
        )  # 0700, and the cache may be read-only
        try:
            copy = folder / path.name
            copy.write_bytes(file.read())
            yield str(copy)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
