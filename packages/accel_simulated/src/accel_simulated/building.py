"""Build the simulated device with one compiler command; the result is cached.

A library is kept for its sources, torch's version and the device type, by whichever compiler.
`torch.utils.cpp_extension` is not used: it compiles with torch imported, ninja and Python's headers. cuda,
xpu and mps must be loaded before torch is imported, and no device needs those tools.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from packaging.version import Version

from accel_simulated import cache, prebuilt
from accel_simulated.errors import CannotBuildError
from accel_simulated.prebuilt import LIBRARY, Fit

__all__ = ["ahead", "build", "compiler", "find", "ready", "runtime"]

SOURCES = Path(__file__).with_name("cpp")
_MAIN = SOURCES / "simdev.cpp"
# NDEBUG as in torch's wheels: some of its classes have other members without it.
_FLAGS = ("-std=c++20", "-O1", "-g0", "-DNDEBUG", "-fPIC", "-shared", "-w")
#: The first torch whose headers have all that the sources need: graphs and allocators of any device. Sources
#: were checked against the headers of 2.8 to 2.14, and run with 2.13.
OLDEST = (2, 12)
#: The torch that accel-simulated's own tests run with.
TESTED = (2, 13)
#: torch's libraries that it is linked to.
_NEEDED = ("c10", "torch_cpu", "torch_python")
#: Built-in device types other than these bring rules for autocast in torch itself.
_OWN_AUTOCAST = ("PrivateUse1", "HPU")


def build(kind: str) -> Path:
    """Return the library for a torch device type (`"PrivateUse1"`, `"HPU"`); build it if it is missing.

    A prebuilt library or one in the cache is used if it fits. A build takes up to a minute; if several
    processes need it, one builds and the others wait. Raises `CannotBuildError` if a compiler, or a torch
    with headers, is missing. Raises `BuildError` with the compiler's first error if the sources do not
    compile against this torch, and if the cache cannot be written.
    """
    fit = _fit(kind)
    return prebuilt.find(fit) or _from_cache(fit)


def _from_cache(fit: Fit) -> Path:
    kept = cache.find(fit)
    if kept is not None:
        return kept
    try:
        command = _command(fit.kind)
    except CannotBuildError as error:
        named = os.environ.get(LIBRARY, "")
        raise CannotBuildError(
            f"{error}{_nothing_fits(named, fit) if named else ''}"
        ) from None
    if Version(fit.torch).release[:2] == TESTED:
        next_step = "set CXX to another compiler"
    else:
        next_step = (
            "install a torch that accel-simulated is tested with (2.13), or a newer "
            "accel-simulated"
        )
    what = f"the simulated device for torch {fit.torch}"
    return cache.build(fit, command, what, next_step)


def ready(kind: str) -> Path:
    """Return the library that a parent process has found, if it fits this torch; else call `build`.

    Child processes inherit the result, so that they do not search again. Raises what `build` raises.
    """
    given = Path(os.environ.get(LIBRARY) or os.devnull)
    if given.is_dir():  # of what was built ahead, for these processes too
        return build(kind)
    if (
        not given.parent.name.startswith(f"simdev_{kind.lower()}-")
        or _torch_of(given) != _torch_here()
    ):
        given = build(kind)
        os.environ[LIBRARY] = str(given)
    return given


def _torch_of(library: Path) -> str:
    """The torch that a library was built for, as the cache noted it; empty where that cannot be read."""
    try:
        noted = json.loads(
            library.with_name("manifest.json").read_text(encoding="utf-8")
        )
        return str(noted["inputs"]["torch"]) if library.is_file() else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _torch_here() -> str:
    """The version of torch; empty where there is none, which `_torch_folder` tells."""
    return next((found.version for found in metadata.distributions(name="torch")), "")


def find(kind: str) -> Path | None:
    """Return the library for a device type if it is built; compiles nothing. Raises what `build` raises."""
    fit = _fit(kind)
    found = prebuilt.find(fit) or cache.find(fit)
    if found is None:
        _command(kind)  # raises where it cannot be built
    return found


def ahead(kind: str, folder: Path) -> Path:
    """Put the library into `folder`, build it first if needed, and return its path there.

    A process whose `ACCEL_SIMULATE_LIBRARY` names that folder needs no compiler. Raises what `build` raises,
    and `BuildError` if the folder cannot be written.
    """
    fit = _fit(kind)
    return prebuilt.write(_from_cache(fit), fit, folder)


def runtime() -> list[Path]:
    """Return torch's libraries that the device needs, in the order in which they can be loaded.

    The device finds them by name once they are loaded: on the machine where it was built they may be
    elsewhere.
    """
    return [_torch_folder() / "lib" / f"lib{name}.so" for name in _NEEDED]


def compiler() -> list[str]:
    """Return the C++ compiler with its arguments: `$CXX`, else the first of g++, c++ and clang++.

    Raises `CannotBuildError` if there is none.
    """
    named = os.environ.get("CXX", "")
    try:
        given = shlex.split(named)
    except ValueError as error:
        raise CannotBuildError(
            f"CXX={named!r} is no command line: {error}. Write CXX='g++ -m64'."
        ) from None
    names = given[:1] or ["g++", "c++", "clang++"]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        what = f"{names[0]} is not" if given else f"none of {', '.join(names)} is"
        raise CannotBuildError(
            f"the simulated device needs a C++20 compiler: {what} on PATH. Install one (apt-get "
            "install g++; dnf install gcc-c++; conda install gxx), or set CXX to the one you have."
        )
    return [found, *given[1:]]


def _command(kind: str) -> list[str]:
    if sys.platform != "linux":
        raise CannotBuildError(
            f"the simulated device is built on Linux only, and this is {sys.platform}. Use a Linux container."
        )
    torch = _torch_folder()
    return [
        *compiler(), *_FLAGS, f"-DSIM={kind}", *(["-DSIM_AUTOCAST"] if kind in _OWN_AUTOCAST else []),
        f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include", str(_MAIN),
        f"-L{torch}/lib", *(f"-l{name}" for name in _NEEDED),
    ]  # fmt: skip


def _fit(kind: str) -> Fit:
    """Give the requirements on a library for this device type, here."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return Fit(kind, _torch_here(), digest.hexdigest())


def _nothing_fits(named: str, fit: Fit) -> str:
    return (
        f" {LIBRARY}={named!r} has no library for {fit.kind}, torch {fit.torch} and this accel-simulated; "
        f"expected {Path(named, fit.folder)}."
    )


def _torch_folder() -> Path:
    # Not `import torch`: the simulated device must be loaded before it. Not `find_spec` either, which asks
    # the finder that brings the device in.
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotBuildError(
            "the simulated device needs torch, which is not installed: accel setup cpu"
        )
    here = _torch_here()
    if here and Version(here).release < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise CannotBuildError(
            f"the simulated device is compiled with torch {wanted} or newer, and this is torch {here}: accel "
            "setup cpu"
        )
    folder = Path(spec.origin).resolve().parent
    if not (folder / "include" / "ATen").is_dir():
        raise CannotBuildError(
            f"the torch in {folder} has no C++ headers: install torch as a wheel from its own index or PyPI"
        )
    return folder
