"""Build the simulated device: one compiler command, its result kept by source, torch, compiler and device
type.

Kept in accel_core's private cache for what is compiled (`ACCEL_CACHE`). Not by its `OpBuilder`, which
compiles with torch imported, ninja and Python's headers: cuda, xpu and mps must be loaded before torch is,
and none needs those.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from accel_core import OpBuildError
from accel_core.ops import cache

__all__ = ["CannotBuildError", "build", "compiler", "find", "ready"]

SOURCES = Path(__file__).with_name("cpp")
#: What the processes that a simulated one starts load, so that none of them looks for it again.
LIBRARY = "ACCEL_SIMULATE_LIBRARY"
_FLAGS = ("-std=c++20", "-O1", "-g0", "-fPIC", "-shared", "-w")
#: Built-in device types other than these bring rules for autocast in torch itself.
_OWN_AUTOCAST = ("PrivateUse1", "HPU")


class CannotBuildError(OpBuildError):
    """What is missing on this machine to build the simulated device: the reason to skip a test."""


def build(kind: str) -> Path:
    """The library for a torch device type (`"PrivateUse1"`, `"HPU"`, ...), built when it is not there yet.

    About 15 s the first time; of several processes one builds, and the others wait for it. Raises
    `CannotBuildError` where there is no compiler or no torch with headers, `OpBuildError` with the compiler's
    first error when the sources do not compile against this torch, and `OpCacheError` when the cache cannot
    be written or what lies there is not what was built.
    """
    command = _command(kind)
    place = _place(kind, command)

    def make(folder: Path) -> Path:
        return _compile(command, folder / "simdev.so", place.log)

    return place.find() or place.build(make, waiting=_say_that_another_builds)


def ready(kind: str) -> Path:
    """The library that a parent process has built, where it is for this torch; else what `build` gives.

    Tells the processes below, so that none of them looks for it again. Raises as `build` does.
    """
    given = Path(os.environ.get(LIBRARY, ""))
    if not given.parent.name.startswith(f"simdev_{kind.lower()}-") or _torch_of(given) != _torch_here():
        given = build(kind)
        os.environ[LIBRARY] = str(given)
    return given


def _torch_of(library: Path) -> str:
    """The torch that a library was built for, as the cache noted it; empty where that cannot be read."""
    try:
        noted = json.loads(library.with_name("manifest.json").read_text(encoding="utf-8"))
        return str(noted["inputs"]["torch"]) if library.is_file() else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _torch_here() -> str:
    return metadata.version("torch")


def find(kind: str) -> Path | None:
    """The library for a device type where it is built already; compiles nothing. Raises as `build` does."""
    return _place(kind, _command(kind)).find()


def compiler() -> str:
    """The C++ compiler, `$CXX` or g++. Raises `CannotBuildError` where there is none."""
    name = os.environ.get("CXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise CannotBuildError(
            f"the simulated device needs a C++20 compiler: {name} is not on PATH. Install one (apt-get "
            "install g++; dnf install gcc-c++; conda install gxx), or set CXX to the one you have."
        )
    return found


def _command(kind: str) -> list[str]:
    if sys.platform != "linux":
        raise CannotBuildError(
            f"the simulated device is built on Linux only, and this is {sys.platform}. Use a Linux container."
        )
    torch = _torch_folder()
    return [
        compiler(), *_FLAGS, f"-DSIM={kind}", *(["-DSIM_AUTOCAST"] if kind in _OWN_AUTOCAST else []),
        f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", str(SOURCES / "simdev.cpp"),
        f"-L{torch}/lib", "-lc10", "-ltorch_cpu", "-ltorch_python", f"-Wl,-rpath,{torch}/lib",
    ]  # fmt: skip


def _place(kind: str, command: list[str]) -> cache.Entry:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    inputs = {"command": command, "torch": _torch_here(), "sources": digest.hexdigest()}
    return cache.entry(f"simdev_{kind.lower()}", inputs)


def _torch_folder() -> Path:
    # Not `import torch`: the simulated device must be loaded before it. Not `find_spec` either, which asks
    # the finder that brings the device in.
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotBuildError("the simulated device needs torch, which is not installed: pip install torch")
    folder = Path(spec.origin).resolve().parent
    if not (folder / "include" / "ATen").is_dir():
        raise CannotBuildError(
            f"the torch in {folder} has no C++ headers: install torch as a wheel from its own index or PyPI"
        )
    return folder


def _say_that_another_builds() -> None:
    sys.stderr.write("accel-simulated: another process builds the device, waiting for it\n")


def _compile(command: list[str], library: Path, log: Path) -> Path:
    sys.stderr.write("accel-simulated: building the device, once for this torch (about 15 s)\n")
    done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True, check=False)
    if done.returncode or not library.is_file():
        log.write_text(f"{shlex.join(command)}\n{done.stdout}{done.stderr}", encoding="utf-8")
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line]
        first = next(iter(errors or lines[-1:]), f"exit status {done.returncode}")
        raise OpBuildError(
            f"the simulated device does not compile against torch {metadata.version('torch')}: {first}\n"
            f"The compiler's output: {log}. Next step: install a torch that accel-simulated is tested with "
            "(2.13), or a newer accel-simulated."
        )
    return library
