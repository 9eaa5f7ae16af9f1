"""Build the simulated device with a single compiler command, and cache the resulting library.

A cached library is identified by its sources, the torch version and the device type, but not by the compiler.
`torch.utils.cpp_extension` is not used because it imports torch and needs ninja and the Python headers. The
libraries that simulate cuda, xpu and mps must be loaded before torch is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from packaging.version import Version

from accel_simulated import cache, prebuilt
from accel_simulated.errors import CannotBuildError
from accel_simulated.prebuilt import LIBRARY, LibraryKey

__all__ = [
    "build",
    "build_and_export",
    "build_into",
    "compiler",
    "find",
    "runtime_libraries",
]

SOURCES = Path(__file__).with_name("cpp")
_MAIN = SOURCES / "simdev.cpp"
# NDEBUG is defined as in torch's wheels: without NDEBUG, some of torch's classes have different members.
_FLAGS = ("-std=c++20", "-O1", "-g0", "-DNDEBUG", "-fPIC", "-shared", "-w")
#: The first torch release whose headers declare graphs and allocators for every device type. The sources were
#: checked against the headers of torch 2.8 to 2.14, and run with torch 2.13.
OLDEST = (2, 12)
#: The torch release with which accel-simulated is tested.
TESTED = (2, 13)
#: torch's libraries that the device is linked to, in the order in which they can be loaded.
_TORCH_LIBRARIES = ("c10", "torch_cpu", "torch_python")
#: Variables with folders and options that GCC and Clang read in addition to the command line.
_COMPILER_VARIABLES = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)
#: The device types for which torch has no autocast rules, so that the device registers its own.
_NEED_AUTOCAST = ("PrivateUse1", "HPU")


def build(kind: str) -> Path:
    """Return the path of the simulated device's library, and build the library if necessary.

    `kind` is a torch device type such as `"HPU"`. A prebuilt or cached library is used if one exists for this
    device type and the installed torch. A build takes up to a minute. If several processes need the library,
    one of them builds the library while the others wait.

    Raises `CannotBuildError` if there is no compiler, or no torch with header files. Raises `BuildError` if
    the sources do not compile with the installed torch, or if the cache cannot be written.
    """
    key = _library_key(kind)
    library = prebuilt.find(key)
    if library is not None:
        return library
    return _find_or_build_in_cache(key)


def _find_or_build_in_cache(key: LibraryKey) -> Path:
    """Return the path of the cached library, and build it if necessary.

    Raises the same errors as `build`.
    """
    library = cache.find(key)
    if library is not None:
        return library
    try:
        command = _compile_command(key.kind)
    except CannotBuildError as error:
        user_folder = os.environ.get(LIBRARY, "")
        if not user_folder:
            raise
        raise CannotBuildError(
            f"{error} {LIBRARY}={user_folder!r} has no library for {key.kind}, torch {key.torch_version} and "
            "this version of accel-simulated. The library's folder would be "
            f"{Path(user_folder, key.folder_name)}."
        ) from None
    minor_release = Version(key.torch_version).release[:2]
    if minor_release == TESTED:
        next_step = "set CXX to another compiler"
        set_variables = [name for name in _COMPILER_VARIABLES if os.environ.get(name)]
        if set_variables:
            names = ", ".join(set_variables)
            next_step = f"unset {names}: compilers also read headers and libraries there. Or {next_step}"
    else:
        next_step = (
            "install torch 2.13, with which accel-simulated is tested, or a newer "
            "accel-simulated"
        )
    description = f"the simulated device for torch {key.torch_version}"
    return cache.find_or_compile(
        key, command, description=description, next_step=next_step
    )


def build_and_export(kind: str) -> Path:
    """Build the device's library if necessary, and store its path in `ACCEL_SIMULATE_LIBRARY`.

    Returns the path of the library. Child processes inherit the variable, so they need not search for the
    library. Nothing is built if the variable already names a library for this device type and torch version.
    A variable that names a folder of prebuilt libraries is left unchanged. Raises the same errors as `build`.
    """
    library_or_folder = os.environ.get(LIBRARY, "")
    if library_or_folder and Path(library_or_folder).is_dir():
        # Child processes search this folder of prebuilt libraries too, so the variable stays unchanged.
        return build(kind)
    if library_or_folder and _is_current_library(Path(library_or_folder), kind):
        return Path(library_or_folder)
    library = build(kind)
    os.environ[LIBRARY] = str(library)
    return library


def _is_current_library(library: Path, kind: str) -> bool:
    """Return whether a library is built for this device type and the installed torch."""
    has_kind = library.parent.name.startswith(f"simdev_{kind.lower()}-")
    return has_kind and _torch_version_of(library) == _torch_version()


def _torch_version_of(library: Path) -> str:
    """Return the torch version in a library's manifest, or an empty string if it cannot be read."""
    try:
        if not library.is_file():
            return ""
        manifest = json.loads(
            library.with_name("manifest.json").read_text(encoding="utf-8")
        )
        return str(manifest["inputs"]["torch"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _torch_version() -> str:
    """Return the version of the installed torch, or an empty string if torch is not installed.

    The version is read from torch's files: an interrupted uninstall may leave metadata of another version.
    """
    spec = PathFinder.find_spec("torch")
    if spec is not None and spec.origin is not None:
        with suppress(OSError):
            source = Path(spec.origin).with_name("version.py").read_text("utf-8")
            # The line `__version__ = '2.13.0'`.
            match = re.search(r"^__version__ = ['\"](.+)['\"]", source, re.MULTILINE)
            if match:
                return match[1]
    for distribution in metadata.distributions(name="torch"):
        return distribution.version
    return ""


def find(kind: str) -> Path | None:
    """Return the path of the simulated device's library, or `None` if the library has not been built yet.

    `kind` is a torch device type such as `"HPU"`. Raises `CannotBuildError` if the library does not exist and
    cannot be built on this machine. Raises `BuildError` if the library is damaged.
    """
    key = _library_key(kind)
    library = prebuilt.find(key)
    if library is None:
        library = cache.find(key)
    if library is None:
        _compile_command(kind)  # raises if the library cannot be built
    return library


def build_into(folder: Path, kind: str) -> Path:
    """Copy the simulated device's library into `folder`, and return the path of the copy.

    The library is built first if necessary. A process whose `ACCEL_SIMULATE_LIBRARY` variable names this
    folder needs no compiler. Raises the same errors as `build`. Also raises `BuildError` if the folder cannot
    be written.
    """
    key = _library_key(kind)
    library = _find_or_build_in_cache(key)
    return prebuilt.copy_library(library, key, folder)


def runtime_libraries() -> list[Path]:
    """Return the paths of the torch libraries to load before the device's library, in loading order.

    The device's library is linked to the torch libraries by name rather than by path, because torch may be
    installed in a different folder than on the machine that built the library.
    """
    return [_torch_folder() / "lib" / f"lib{name}.so" for name in _TORCH_LIBRARIES]


def compiler() -> list[str]:
    """Return the command that runs the C++ compiler, as a path followed by arguments.

    The command comes from `$CXX` if that variable is set. Otherwise it is the first of g++, c++ and clang++
    found on PATH. Raises `CannotBuildError` if no compiler is found, or if `$CXX` is not a valid command
    line.
    """
    cxx = os.environ.get("CXX", "")
    try:
        cxx_command = shlex.split(cxx)
    except ValueError as error:
        raise CannotBuildError(
            f"CXX={cxx!r} is not a valid command line: {error}. For example, CXX='g++ -m64'."
        ) from None
    if cxx_command:
        program, *arguments = cxx_command
        names = [program]
        problem = f"{program} is not on PATH"
    else:
        names, arguments = ["g++", "c++", "clang++"], []
        problem = f"none of {', '.join(names)} is on PATH"
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return [path, *arguments]
    raise CannotBuildError(
        f"the simulated device needs a C++20 compiler: {problem}. Install one (apt-get "
        "install g++; dnf install gcc-c++; conda install gxx), or set CXX to the one you have."
    )


def _compile_command(kind: str) -> list[str]:
    """Return the command that compiles the simulated device, without the output file.

    Raises `CannotBuildError` if the system is not Linux, or if the compiler or the torch headers are missing.
    """
    if sys.platform != "linux":
        raise CannotBuildError(
            f"the simulated device can be built on Linux only, but this is {sys.platform}. Use a Linux "
            "container."
        )
    torch = _torch_folder()
    command = [*compiler(), *_FLAGS, f"-DSIM={kind}"]
    if kind in _NEED_AUTOCAST:
        command.append("-DSIM_AUTOCAST")
    command += [
        f"-I{torch}/include",
        f"-I{torch}/include/torch/csrc/api/include",
        str(_MAIN),
        f"-L{torch}/lib",
    ]
    return command + [f"-l{name}" for name in _TORCH_LIBRARIES]


def _library_key(kind: str) -> LibraryKey:
    """Return the key that identifies the library for this device type and the installed torch."""
    sha256 = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted(SOURCES.iterdir()):
        sha256.update(source.name.encode() + b"\0" + source.read_bytes())
    return LibraryKey(kind, _torch_version(), source_digest=sha256.hexdigest())


def _torch_folder() -> Path:
    """Return the folder of the installed torch without importing torch.

    Raises `CannotBuildError` if torch is not installed, is too old, or has no headers.
    """
    # importlib.util.find_spec is not used: it would call the finder that loads the simulated device.
    spec = PathFinder.find_spec("torch")
    if spec is None or spec.origin is None:
        raise CannotBuildError(
            "the simulated device needs torch, which is not installed. Next step: accel setup cpu"
        )
    version = _torch_version()
    if version and Version(version).release < OLDEST:
        oldest = ".".join(str(number) for number in OLDEST)
        raise CannotBuildError(
            f"the simulated device needs torch {oldest} or newer, but torch {version} is installed. Next "
            "step: accel setup cpu"
        )
    folder = Path(spec.origin).resolve().parent
    if not (folder / "include" / "ATen").is_dir():
        raise CannotBuildError(
            f"the torch in {folder} has no C++ headers. Install a wheel of torch from pytorch.org or PyPI."
        )
    return folder
