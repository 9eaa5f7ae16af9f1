"""DeepSpeed's own builders: list them for a device type, and check what each needs before it can be used.

The list is read from the files of the installed package, without importing DeepSpeed. An entry point in group
`accel.op_builders` names this module.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import os
import re
import shutil
import sys
import sysconfig
from contextlib import redirect_stdout, suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from accel_core import Backend, OpProvider, hookimpl, package_folders
from accel_core.torch_import import import_torch
from accel_train.deepspeed import _foreign, _installed, _toolkit

__all__ = [
    "DeepSpeedProvider",
    "accel_op_builders",
    "compatibility",
    "is_built",
    "kept_folders",
    "kept_in",
    "package",
    "sources",
]

_ROOT = "deepspeed.ops.op_builder"
#: Modules without builders of operators: base classes, DeepSpeed's own stand-in, the list of all.
_PASSED_OVER = ("__init__", "all_ops", "builder", "no_impl")
#: Their optimisers run on the host whatever the device, and DeepSpeed lends CUDA those of the CPU.
_HOST_OPTIMIZERS = ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder")
#: Page-locks host memory and knows of no device; DeepSpeed lists it for some, and for CUDA at its root.
_PINS = "PinMemoryBuilder"


class DeepSpeedProvider(OpProvider):
    """DeepSpeed as a provider of operators."""

    def compatibility(self, builder: Any) -> str:
        """Return what the function `compatibility` returns: DeepSpeed's own check is not enough."""
        return compatibility(builder)

    def is_built(self, builder: Any) -> bool:
        """Return what the function `is_built` returns: DeepSpeed's builders do not report it."""
        return is_built(builder)

    def load(self, source: str) -> type[Any]:
        """Return DeepSpeed's class, changed to report when it compiles and to check arguments of its C++.

        Importing DeepSpeed makes it ask for an accelerator; it gets ours.
        """
        from accel_train.deepspeed import (
            _placing,
        )  # which imports what this module is imported by

        _placing.prepare(for_training=False)
        builder_class = super().load(source)
        if hasattr(builder_class, "load"):
            _foreign.announcing(builder_class, is_built, kept_in)
        if hasattr(
            builder_class, "deepspeed_src_path"
        ) and "deepspeed_src_path" not in vars(builder_class):
            _compile_where_deepspeed_does(builder_class)
        return builder_class


@hookimpl
def accel_op_builders(backend: Backend) -> OpProvider:
    """Return DeepSpeed as provider of its builders for `backend`; without builders if it is not installed.

    It uses the builders for the backend's name, or else those for its device type: klxpu has builders of its
    own, although its device type in torch is cuda.
    """
    version = _installed.installed_version()
    if version is None:
        return OpProvider(
            {}, name="deepspeed", advice="`pip install deepspeed` may bring it"
        )
    family = backend.name.partition(".")[0]
    device = family if package(family) else backend.device_type
    return DeepSpeedProvider(
        sources(device),
        name="deepspeed" if version == _installed.UNKNOWN else f"deepspeed {version}",
        kind="deepspeed",
        package=package(device),
        optional=True,
        advice="neither DeepSpeed nor accel-train has one for this device",
    )


def _compile_where_deepspeed_does(builder_class: type[Any]) -> None:
    """In a checkout, name the sources by the path that DeepSpeed's own accelerators give them.

    They import the package of its build, `op_builder`, whose sources lie at the checkout's top; ours comes by
    way of a link. By another path ninja compiles all of them anew.
    """
    given = builder_class.deepspeed_src_path

    @functools.wraps(given)
    def deepspeed_src_path(self: Any, code_path: str) -> str:
        return _at_the_top(str(given(self, code_path)))

    builder_class.deepspeed_src_path = deepspeed_src_path


def _at_the_top(path: str) -> str:
    """A path below the package's link to the sources as one below the checkout; any other as it is."""
    packages = (Path(folder) for folder in package_folders("op_builder"))
    checkout = next(
        (p.parent for p in packages if _is_deepspeeds(p / "__init__.py")), None
    )
    linked = _folder("deepspeed.ops")
    if checkout is None or not linked or not path.startswith(linked + os.sep):
        return path
    return str(checkout / Path(path).relative_to(linked))


def _is_deepspeeds(file: Path) -> bool:
    """Whether this is the package that DeepSpeed marks as its own."""
    try:
        return "__deepspeed__" in file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def package(device_type: str) -> str:
    """Return DeepSpeed's package of builders for a device type, or for a device in DeepSpeed's own list.

    Returns an empty string if DeepSpeed has none, or is not installed.
    """
    name = _ROOT if device_type == "cuda" else f"{_ROOT}.{device_type}"
    folder = _folder(name)
    return (
        name if device_type and folder and Path(folder, "__init__.py").is_file() else ""
    )


def sources(device_type: str) -> dict[str, str]:
    """Return the builders that DeepSpeed has for a device type: `{"FusedAdamBuilder": "module:Class"}`.

    Every device has the builder for page-locked host memory, even one that DeepSpeed does not know.
    """
    name = package(device_type)
    builders = dict(_read(name, _folder(name))) if name else {}
    if device_type and _PINS not in builders:
        at_root = _read(_ROOT, _folder(_ROOT))
        builders.update({op: source for op, source in at_root.items() if op == _PINS})
    if device_type == "cuda":
        lent = _read(f"{_ROOT}.cpu", _folder(f"{_ROOT}.cpu"))
        builders = {
            **{op: source for op, source in lent.items() if op in _HOST_OPTIMIZERS},
            **builders,
        }
    return builders


def compatibility(builder: Any) -> str:
    """Return why one of DeepSpeed's builders cannot be used here; empty if it can.

    DeepSpeed's own check accepts most builders even if this machine cannot compile, so this function also
    looks for what compiling needs.
    """
    if not builder.is_compatible(verbose=False):
        return _complaint(builder)
    if missing := _missing_source(builder):
        return f"DeepSpeed's wheel lacks its source {missing}: install DeepSpeed from its repository"
    needs_device = any(str(source).endswith(".cu") for source in builder.sources())
    if needs_device and _is_simulated():
        return "its CUDA code does not run on a simulated device"
    if is_built(builder):
        return ""
    missing = _missing_tool(builder, needs_device)
    return f"it must be compiled, and {missing}" if missing else ""


def _missing_tool(builder: Any, needs_device: bool) -> str:
    """Return the tool for compiling that is missing, with the next step; empty if none is."""
    compiler = (os.environ.get("CXX", "").split() or ["c++"])[0]
    headers = sysconfig.get_path("include")
    # DeepSpeed's builders for SYCL set CXX=icpx themselves.
    if any(base.__name__ == "SYCLOpBuilder" for base in type(builder).__mro__):
        if shutil.which("icpx") is None:
            return "icpx is missing: install Intel's DPC++, source its setvars.sh"
    elif shutil.which(compiler) is None:
        return f"the C++ compiler {compiler!r} is missing: install one, or set CXX"
    if shutil.which("ninja") is None:
        return "ninja is missing: pip install ninja"
    if not Path(headers, "Python.h").is_file():
        return f"{headers}/Python.h is missing: install python3-dev or python3-devel"
    if needs_device:
        return _toolkit.fault()
    return ""


def _missing_source(builder: Any) -> str:
    """The first shader of a builder for Metal that is not installed, which it only reads when it is used."""
    shaders = builder.metal_sources() if hasattr(builder, "metal_sources") else []
    return next(
        (
            str(path)
            for path in shaders
            if not Path(_folder("deepspeed.ops"), path).is_file()
        ),
        "",
    )


def is_built(builder: Any) -> bool:
    """Return whether nothing is left to compile: plain Python, installed compiled, or in torch's cache.

    torch compiles again if torch itself is newer than its result, or if a source or the compiler has changed.
    """
    if not builder.sources():
        return True
    home, _, stem = builder.absolute_name().rpartition(".")
    names = (stem, builder.name)
    if any(
        _is_library(file, names) for file in _files(Path(_folder(home) or os.devnull))
    ):
        return True
    folders = [
        folder
        for folder in kept_folders(builder)
        if not _made_otherwise(folder, builder)
    ]
    found = [
        file
        for folder in folders
        for file in _files(folder)
        if _is_library(file, names)
    ]
    return bool(found) and max(file.stat().st_mtime for file in found) >= _changed(
        builder
    )


def kept_in(builder: Any) -> str:
    """Return the folder in which torch keeps what it compiles for a builder."""
    kept = os.environ.get("TORCH_EXTENSIONS_DIR")
    return str(Path(kept, builder.name) if kept else _build_root())


def kept_folders(builder: Any) -> list[Path]:
    """Return the folders of this Python in which torch may have kept what it compiled for a builder."""
    kept = os.environ.get("TORCH_EXTENSIONS_DIR")
    tag = f"py{sys.version_info.major}{sys.version_info.minor}_*"
    return (
        [Path(kept, builder.name)]
        if kept
        else list(_build_root().glob(f"{tag}/{builder.name}"))
    )


def _is_library(file: Path, names: tuple[str, ...]) -> bool:
    """Whether it is a compiled module of one of these names: `NAME.so`, `NAME.cpython-311-….so`."""
    return file.suffix in EXTENSION_SUFFIXES and file.name.partition(".")[0] in names


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _made_otherwise(folder: Path, builder: Any) -> bool:
    """Whether torch's build file there names other sources, or another compiler, than torch would take now.

    Environments with a DeepSpeed each keep what they compile in one folder of the user's.
    """
    try:
        text = (folder / "build.ninja").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if (
        sys.platform == "win32"
    ):  # where paths are written otherwise, and torch takes no other compiler
        return False
    compiled = re.findall(r"^build \S+: \w*compile (.*)$", text, re.MULTILINE)
    wanted = [
        _at_the_top(str(Path(_folder("deepspeed.ops"), str(source))))
        for source in builder.sources()
    ]
    if compiled and not {re.sub(r"\$([$: ])", r"\1", path) for path in compiled} >= {
        *wanted
    }:
        return True
    first = re.search(r"^cxx = (.*)$", text, re.MULTILINE)
    return first is not None and first[1] != os.environ.get("CXX", "c++")


def _changed(builder: Any) -> float:
    """When the newest of what it is compiled from was written, as far as that can be told."""
    top = Path(_folder("deepspeed.ops"))
    torch = package_folders("torch")
    headers = [Path(folder, "include", "torch", "extension.h") for folder in torch]
    files = [*(top / str(source) for source in builder.sources()), *headers]
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)


def _build_root() -> Path:
    """Repeat `torch.utils.cpp_extension.get_default_build_root()`; that module takes 0.1 s to import."""
    appdirs: Any = importlib.import_module("torch._appdirs")
    return Path(os.path.realpath(appdirs.user_cache_dir(appname="torch_extensions")))


def _is_simulated() -> bool:
    """Whether accel-simulated stands in for CUDA: torch's release of CUDA says so."""
    return str(import_torch().version.cuda).endswith("(simulated)")


def _complaint(builder: Any) -> str:
    """Give the verbose output of DeepSpeed's check as one line."""
    with redirect_stdout(io.StringIO()) as printed, suppress(Exception):
        builder.is_compatible(verbose=True)
    plain = re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue())
    warnings = re.findall(r"\[WARNING\]\s*(.*?)\.?\s*$", plain, re.MULTILINE)
    return "; ".join(warnings) or "DeepSpeed's own check rejects it"


def _folder(name: str) -> str:
    """The folder of a package of DeepSpeed; empty where DeepSpeed is not installed."""
    top = _installed.folder()
    return "" if top is None else str(Path(top, *name.split(".")[1:]))


@functools.cache
def _read(name: str, folder: str) -> dict[str, str]:
    """The builders that the modules in a folder define, or bring in and list in `__all__`."""
    builders: dict[str, str] = {}
    for path in sorted(Path(folder).glob("*.py")):
        if path.stem in _PASSED_OVER:
            continue
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            for op in _defined(ast.parse(path.read_bytes())):
                builders.setdefault(op, f"{name}.{path.stem}:{op}")
    return builders


def _defined(module: ast.Module) -> list[str]:
    names = []
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and any(
            getattr(t, "id", "") == "__all__" for t in node.targets
        ):
            names += ast.literal_eval(node.value)
    return [name for name in names if name.endswith("Builder")]
