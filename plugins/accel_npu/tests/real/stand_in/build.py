"""Builds the stand-in for the installed torch_npu, once: afterwards it lies in a cache.

The wheel's own ELF files say what is missing: every needed library that is neither beside them, nor
torch's, nor the system's gets a stand-in, and every undefined symbol that our C does not implement becomes a
function that returns 0. The headers are the wheel's, so the compiler checks our functions against the
vendor's declarations.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

HERE = Path(__file__).parent
#: Everything is in this one; the others only stand for their names.
MAIN = "libascendcl.so"
SOURCES = ("devices.c", "streams.c", "operators.c", "newer.c", "hccl.c")
#: In no table of the wheel, but opened by name at run time: the driver's library, for its device count, and
#: CANN's newer operators.
OPENED = ("libascend_hal.so", "libopapi.so")
#: Looked up by name at run time, so that no table names them; success without effect is enough.
LOOKED_UP = (
    "aclSetCompileopt", "aclrtGetLastError", "aclrtPeekAtLastError", "aclrtSetDeviceSatMode",
    "aclrtSetOpExecuteTimeOut", "aclrtSetOpWaitTimeout", "aclrtSetStreamAttribute",
    "aclrtSetStreamFailureMode", "aclrtSetStreamOverflowSwitch", "aclrtSubscribeReport",
    "aclrtUnSubscribeReport",
)  # fmt: skip
_SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_DEFINED = re.compile(
    r"^[a-z][\w *]*?\*?\b((?:acl|drv|Hccl|standin_)\w+)\(", re.MULTILINE
)


def torch_npu_folder():
    """The installed package, found without importing it; `None` where there is none."""
    spec = importlib.util.find_spec("torch_npu")
    return (
        Path(spec.submodule_search_locations[0])
        if spec and spec.submodule_search_locations
        else None
    )


def built(cache=None, without=()):
    """The folder with the compiled libraries, built if it is not there yet.

    The name holds a digest of our sources, the version of torch_npu and of Python. A lock lets one process
    build while others wait. `without`: functions to leave out, as an older CANN does. Raises `RuntimeError`
    with the compiler's words when it cannot be built.
    """
    package = torch_npu_folder()
    if package is None:
        raise RuntimeError("torch_npu is not installed")
    digest = hashlib.sha256()
    for name in ("standin.h", *SOURCES, "build.py"):
        digest.update((HERE / name).read_bytes())
    version = metadata.version("torch_npu")
    digest.update(
        f"{version} {package} {sys.version} {platform.machine()} {without}".encode()
    )
    cache = cache or _private_cache()
    folder = cache / f"torch_npu-{version}-{digest.hexdigest()[:16]}"
    with FileLock(cache / "lock"):
        if not folder.is_dir():
            building = Path(tempfile.mkdtemp(dir=cache, prefix="building-"))
            try:
                _build(package, building, without)
                building.rename(folder)  # complete or not there
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return folder


def _private_cache():
    """A folder that only this user can write to: libraries are loaded from it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(home, "accel-core-tests", "npu-stand-in")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.stat().st_uid != os.getuid() or cache.stat().st_mode & 0o022:
        raise RuntimeError(
            f"{cache} belongs to somebody else, or others may write to it; remove it"
        )
    return cache


def _build(package, folder, without):
    missing, undefined = _lacking(package)
    source = "".join((HERE / name).read_text(encoding="utf-8") for name in SOURCES)
    ours = set(_DEFINED.findall(source))
    stubs = sorted((undefined | set(LOOKED_UP)) - ours - set(without))
    body = "".join(
        f'int {name}(void) {{ standin_trace("{name}"); return 0; }}\n' for name in stubs
    )
    (folder / "stubs.c").write_text(
        f"extern void standin_trace(const char *);\n{body}", encoding="utf-8"
    )
    (folder / "empty.c").write_text("", encoding="utf-8")
    headers = package / "include" / "third_party" / "acl" / "inc"
    compiler = [
        "cc",
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-deprecated-declarations",
    ]
    compiler += ["-fPIC", "-shared", "-pthread", f"-I{HERE}", f"-I{headers}"]
    sources = [*(str(HERE / name) for name in SOURCES), str(folder / "stubs.c")]
    _run([*compiler, f"-Wl,-soname,{MAIN}", "-o", str(folder / MAIN), *sources])
    for name in {*missing, *OPENED} - {MAIN}:
        link = ["-Wl,--no-as-needed", f"-L{folder}", f"-l:{MAIN}", "-Wl,-rpath,$ORIGIN"]
        _run(
            [
                *compiler,
                f"-Wl,-soname,{name}",
                "-o",
                str(folder / name),
                str(folder / "empty.c"),
                *link,
            ]
        )


class Library(NamedTuple):
    """A shared library as the loader sees it; weak symbols, which may be missing, are not undefined."""

    path: Path
    needed: list[str]
    defined: set[str]
    undefined: set[str]


def _read(path):
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", _run(["readelf", "-d", str(path)]))
    symbols = [line.split()[-2:] for line in _run(["nm", "-D", str(path)]).splitlines()]
    defined = {name.partition("@")[0] for kind, name in symbols if kind not in "Uvw"}
    undefined = {name.partition("@")[0] for kind, name in symbols if kind == "U"}
    return Library(path, needed, defined, undefined)


def _lacking(package):
    """Names of the libraries, and of the symbols, that torch_npu needs and nothing here brings."""
    own = _loaded(package)
    torch = importlib.util.find_spec("torch")
    lib = Path(torch.submodule_search_locations[0], "lib") if torch else package
    torchs = {path.name: _read(path) for path in lib.glob("*.so*")}
    needed = {name for library in own for name in library.needed}
    elsewhere = needed - {library.path.name for library in own} - set(torchs)
    system = {name: path for name in elsewhere if (path := _in_system(name))}
    others = [*own, *torchs.values(), *map(_read, system.values())]
    defined = {symbol for library in others for symbol in library.defined}
    undefined = {
        name
        for library in own
        for name in library.undefined
        if not name.startswith(("Py", "_Py"))
    }
    return elsewhere - set(system), undefined - defined


def _loaded(package):
    """The package's own libraries that importing it loads: the extension, and what that needs beside it."""
    found = {path.name: _read(path) for path in package.glob("_C*.so")}
    waiting = list(found.values())
    while waiting:
        for name in waiting.pop().needed:
            path = package / "lib" / name
            if name not in found and path.exists():
                found[name] = _read(path)
                waiting.append(found[name])
    return list(found.values())


def _in_system(name):
    triplet = f"{platform.machine()}-linux-gnu"
    folders = [Path(folder, part) for folder in _SYSTEM for part in (triplet, ".")]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RuntimeError(
            f"the stand-in for CANN needs a C compiler: there is no {command[0]}"
        ) from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout
