"""Compile libraries into a cache: one process compiles a library while the others wait for it.

The cache is the folder `simulated` in `ACCEL_CACHE`. If that variable is not set, `simulated` is in the
folder `accel-core` of the user's cache directory. The module `prebuilt` describes the layout of the cache.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from accel_simulated import prebuilt
from accel_simulated.errors import BuildError
from accel_simulated.prebuilt import LibraryKey

__all__ = ["find", "find_or_compile"]

#: How many seconds to wait for another process that compiles the same library. A compilation takes up to a
#: minute on an idle machine. A process that was stopped would hold its lock forever.
_MAX_WAIT = 600.0
_NEXT_STEP = (
    "Set ACCEL_CACHE to a folder of your own, as in ACCEL_CACHE=$HOME/accel-cache."
)


def _cache_folder() -> Path:
    """Return the path of the cache. Raises `BuildError` if the user has no home folder."""
    accel_cache = os.environ.get("ACCEL_CACHE")
    if accel_cache:
        return Path(accel_cache).expanduser().absolute() / "simulated"
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(user_cache, "accel-core", "simulated").expanduser().absolute()
    except RuntimeError as error:
        raise BuildError(f"{error} {_NEXT_STEP}") from None


def find(key: LibraryKey) -> Path | None:
    """Return the path of the cached library with this key, or `None` if it is missing or damaged."""
    try:
        return prebuilt.find_in(_cache_folder(), key)
    except BuildError:
        return None


def find_or_compile(
    key: LibraryKey, command: list[str], *, description: str, next_step: str
) -> Path:
    """Return the path of the cached library with this key, and compile the library if it is missing.

    `command` is the compiler command without the output file. In error messages, the library is called
    `description`, and `next_step` tells the user what to do after a failed compilation. Raises `BuildError`
    if the compilation fails, if another process holds the library's lock for too long, or if the cache
    cannot be written.
    """
    from filelock import FileLock, Timeout  # comes with torch

    folder = _cache_folder()
    # The operating system releases the lock when the process that holds it ends, even if it is killed.
    lock = FileLock(folder / f"{key.folder_name}.lock")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            sys.stderr.write(
                f"accel-simulated: waiting for another process that compiles {description}\n"
            )
            lock.acquire(timeout=_MAX_WAIT)
    except Timeout:
        raise BuildError(
            f"waited {_MAX_WAIT:g} s for another process that compiles {description} and holds the lock "
            f"{lock.lock_file}. Next step: end that process, or set ACCEL_CACHE to another folder."
        ) from None
    except OSError as error:
        raise _cannot_write_error(folder, error) from error
    try:
        # Another process may have compiled the library while this process waited.
        library = find(key)
        if library is not None:
            return library
        return _compile(key, command, folder, description, next_step)
    except OSError as error:
        raise _cannot_write_error(folder, error) from error
    finally:
        lock.release()


def _cannot_write_error(folder: Path, error: OSError) -> BuildError:
    """Return the error to raise if the cache folder cannot be written."""
    reason = error.strerror or str(error)
    return BuildError(f"{folder} cannot be written: {reason}. {_NEXT_STEP}")


def _compile(
    key: LibraryKey, command: list[str], folder: Path, description: str, next_step: str
) -> Path:
    """Compile a library into the cache folder `folder`, and return the path of the library.

    Raises `BuildError` if the compilation fails, and `OSError` if the cache cannot be written.
    """
    sys.stderr.write(
        f"accel-simulated: compiling {description} once (up to a minute)\n"
    )
    log = folder / f"{key.folder_name}.log"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        library = Path(work, "compiled.so")
        full_command = [*command, "-o", str(library)]
        result = subprocess.run(
            full_command, capture_output=True, text=True, check=False
        )
        if result.returncode or not library.is_file():
            output = f"{result.stdout}{result.stderr}"
            if not output:
                output = f"exit status {result.returncode}"
            log.write_text(f"{shlex.join(full_command)}\n{output}", encoding="utf-8")
            error = _find_first_error_line(output)
            if "Python.h" in error:  # another compiler would not find the header either
                next_step = "install Python's headers: python3-dev or python3-devel"
            raise BuildError(
                f"{description} could not be compiled: {error}\n"
                f"The compiler's output is in {log}. Next step: {next_step}."
            )
        return prebuilt.copy_library(library, key, folder)


def _find_first_error_line(output: str) -> str:
    """Return the first error line in a compiler's output, or the last line if none contains an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if "error" in line.lower():
            return line
    return lines[-1]
