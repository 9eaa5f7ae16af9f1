"""Build the simulated device: one compiler command, its result kept by source, torch and device type."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__all__ = ["CannotBuildError", "build", "compiler"]

SOURCES = Path(__file__).with_name("cpp")
_FLAGS = ("-std=c++20", "-O1", "-g0", "-fPIC", "-shared", "-w")
#: Built-in device types other than these bring rules for autocast in torch itself.
_OWN_AUTOCAST = ("PrivateUse1", "HPU")


class CannotBuildError(RuntimeError):
    """What is missing here to build the simulated device: the reason to skip a test."""


def build(kind: str) -> Path:
    """The library for a device type (`"PrivateUse1"`, `"HPU"`, ...), built when it is not there yet.

    Raises `CannotBuildError` where there is no compiler or no torch, and `RuntimeError` with the compiler's
    words when it fails.
    """
    torch = _torch_folder()
    command = [
        compiler(), *_FLAGS, f"-DSIM={kind}", *(["-DSIM_AUTOCAST"] if kind in _OWN_AUTOCAST else []),
        f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", str(SOURCES / "simdev.cpp"),
        f"-L{torch}/lib", "-lc10", "-ltorch_cpu", "-ltorch_python", f"-Wl,-rpath,{torch}/lib",
    ]  # fmt: skip
    cache = _cache_folder()
    library = cache / f"simdev-{kind}-{_key(command)}.so"
    if library.exists():
        return library
    with _lock(cache / f"{library.stem}.lock"):
        if not library.exists():  # another process may have built it while we waited
            _compile(command, library)
    return library


def compiler() -> str:
    """The C++ compiler, `$CXX` or g++. Raises `CannotBuildError` where there is none."""
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise CannotBuildError(
            f"the simulated device needs a C++20 compiler: {name} is not on PATH (set CXX)"
        )
    return found


def _torch_folder() -> Path:
    # Not `import torch`: the simulated device must be loaded before it.
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotBuildError("the simulated device needs torch, which is not installed")
    folder = Path(spec.origin).resolve().parent
    if not (folder / "include" / "ATen").is_dir():
        raise CannotBuildError(f"the torch in {folder} has no C++ headers")
    return folder


def _key(command: list[str]) -> str:
    digest = hashlib.sha256(repr((command, metadata.version("torch"))).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """A folder of this user's alone: what lies there is loaded into processes."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "accel-core" / "simulated"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CannotBuildError(f"{folder} can be written by others: chmod go-w it, or set XDG_CACHE_HOME")
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(command: list[str], library: Path) -> None:
    unfinished = library.with_suffix(f".{os.getpid()}")
    done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the simulated device does not compile:\n{done.stderr[-4000:]}")
    unfinished.replace(library)
