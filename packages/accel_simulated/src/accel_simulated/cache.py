"""The cache of what is compiled here: one process compiles a library, the others wait for it and use it.

It is the folder `simulated` in `ACCEL_CACHE`, or in `accel-core` in the user's cache folder. A library lies
there as one that was built ahead does (`prebuilt`), and is found by torch's version and the sources alone.
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
    if given := os.environ.get("ACCEL_CACHE"):
        return Path(given).expanduser().absolute() / "simulated"
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(caches, "accel-core", "simulated").expanduser().absolute()
    except RuntimeError as error:  # a user without a home folder
        raise BuildError(f"{error} {_NEXT_STEP}") from None


def find(fit: Fit) -> Path | None:
    """Return the library that fits; `None` if there is none, or only a damaged one."""
    try:
        return prebuilt.find_in(_folder(), fit)
    except BuildError:
        return None


def build(fit: Fit, command: list[str], what: str, next_step: str) -> Path:
    """Return the library that fits; compile it with `command` if there is none.

    A line on stderr says that `what` is compiled. Raises `BuildError` if the cache cannot be written, or if
    `what` does not compile: with the compiler's first error, and `next_step`.
    """
    from filelock import FileLock, Timeout  # comes with torch

    folder = _folder()
    # The operating system releases it when its holder ends, however that ends.
    lock = FileLock(folder / f"{fit.folder}.lock")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            sys.stderr.write(
                f"accel-simulated: another process compiles {what}, waiting for it\n"
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
    sys.stderr.write(f"accel-simulated: compiling {what} once (up to a minute)\n")
    log = folder / f"{fit.folder}.log"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        library = Path(work, "compiled.so")
        words = [*command, "-o", str(library)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not library.is_file():
            output = f"{done.stdout}{done.stderr}" or f"exit status {done.returncode}"
            log.write_text(f"{shlex.join(words)}\n{output}", encoding="utf-8")
            error = _first_error(output)
            if "Python.h" in error:  # no other compiler finds it
                next_step = "install Python's headers: python3-dev or python3-devel"
            raise BuildError(
                f"{what} does not compile: {error}\n"
                f"The compiler's output: {log}. Next step: {next_step}."
            )
        return prebuilt.write(library, fit, folder)


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1])
