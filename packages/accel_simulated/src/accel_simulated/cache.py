"""Compile libraries into a cache: one process compiles a library, and the others wait for it.

The cache is the folder `simulated` in the folder `ACCEL_CACHE`. If that variable is not set, `simulated` is
in the folder `accel-core` of the user's cache folder. The cache has the layout described in `prebuilt`.
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
from accel_simulated.prebuilt import Fit

__all__ = ["build", "find"]

_NEXT_STEP = (
    "Set ACCEL_CACHE to a folder of your own, as in ACCEL_CACHE=$HOME/accel-cache."
)


def _folder() -> Path:
    """Return the cache's folder. Raises `BuildError` for a user without a home folder."""
    accel_cache = os.environ.get("ACCEL_CACHE")
    if accel_cache:
        return Path(accel_cache).expanduser().absolute() / "simulated"
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(user_cache, "accel-core", "simulated").expanduser().absolute()
    except RuntimeError as error:
        raise BuildError(f"{error} {_NEXT_STEP}") from None


def find(fit: Fit) -> Path | None:
    """Return the library that matches `fit`; `None` if the library is missing or damaged."""
    try:
        return prebuilt.find_in(_folder(), fit)
    except BuildError:
        return None


def build(fit: Fit, command: list[str], what: str, next_step: str) -> Path:
    """Return the library that matches `fit`; compile a missing library with `command`.

    `what` names the library in messages. `next_step` ends the message about a failed compilation. Raises
    `BuildError` if the cache cannot be written, or, with the compiler's first error, if compiling fails.
    """
    from filelock import FileLock, Timeout  # comes with torch

    folder = _folder()
    # The operating system releases the lock when the process that holds it ends, even if it is killed.
    lock = FileLock(folder / f"{fit.folder}.lock")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            sys.stderr.write(
                f"accel-simulated: waiting for another process that compiles {what}\n"
            )
            lock.acquire()
    except OSError as error:
        raise BuildError(
            f"{folder} cannot be written: {error.strerror or error}. {_NEXT_STEP}"
        ) from error
    try:
        return find(fit) or _compile(fit, command, folder, what, next_step)
    finally:
        lock.release()


def _compile(
    fit: Fit, command: list[str], folder: Path, what: str, next_step: str
) -> Path:
    """Compile a library into the cache. Raises `BuildError` if the compilation fails."""
    sys.stderr.write(f"accel-simulated: compiling {what} once (up to a minute)\n")
    log = folder / f"{fit.folder}.log"
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
            error = _first_error(output)
            if "Python.h" in error:  # another compiler would not find the header either
                next_step = "install Python's headers: python3-dev or python3-devel"
            raise BuildError(
                f"{what} does not compile: {error}\n"
                f"The compiler's output: {log}. Next step: {next_step}."
            )
        return prebuilt.write(library, fit, folder)


def _first_error(output: str) -> str:
    """Return the first line with an error in a compiler's output; the last line if no line has an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if "error" in line.lower():
            return line
    return lines[-1]
