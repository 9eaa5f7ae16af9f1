"""List DeepSpeed's builders for a device type, and check whether each builder can be used here.

The list is read from the files of the installed package, without importing DeepSpeed. An entry point of the
group `accel.op_builders` names this module.
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
from accel_train.deepspeed import _op_checks, _release, _toolkit

__all__ = [
    "DeepSpeedProvider",
    "accel_op_builders",
    "build_folder",
    "build_folders",
    "builder_sources",
    "builders_package",
    "incompatibility_reason",
    "is_built",
]

_BUILDERS_ROOT = "deepspeed.ops.op_builder"
#: Modules that define no operator's builder. They have base classes, a placeholder, or the list of operators.
_MODULES_WITHOUT_BUILDERS = ("__init__", "all_ops", "builder", "no_impl")
#: Builders of optimizers that run on the host. On CUDA, DeepSpeed uses its builders for the CPU.
_HOST_OPTIMIZERS = ("CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder")
#: The builder of an operator that pins host memory, which works on any device. DeepSpeed lists this builder
#: for some devices, and in its root package for CUDA.
_PINNED_MEMORY_BUILDER = "PinMemoryBuilder"


class DeepSpeedProvider(OpProvider):
    """A provider of operators that offers DeepSpeed's operators."""

    def compatibility(self, builder: Any) -> str:
        """Return why DeepSpeed's `builder` cannot be used on this machine.

        Returns an empty string if it can be used.
        """
        return incompatibility_reason(builder)

    def is_built(self, builder: Any) -> bool:
        """Return whether nothing is left to compile for `builder`. DeepSpeed itself does not report this."""
        return is_built(builder)

    def load(self, source: str) -> type[Any]:
        """Import and return the DeepSpeed builder class that `source` names in the form `"module:Class"`.

        When the module is imported, DeepSpeed uses accel_core's accelerator. The class is modified to report
        compilation, and to check the arguments of its C++ functions.
        """
        # Imported here because listing builders does not need this module.
        from accel_train.deepspeed import _install

        _install.prepare(for_training=False)
        builder_class = super().load(source)
        if hasattr(builder_class, "load"):
            _op_checks.wrap_load(builder_class, is_built, build_folder, lock_file)
        has_path = hasattr(builder_class, "deepspeed_src_path")
        if has_path and "deepspeed_src_path" not in vars(builder_class):
            _use_source_paths_of_deepspeed(builder_class)
        return builder_class


@hookimpl
def accel_op_builders(backend: Backend) -> OpProvider:
    """Return a provider of DeepSpeed's operator builders for `backend`.

    Without DeepSpeed, the provider has no builders. The builders are those for the backend's name or, if
    there are none, those for its device type. For example, DeepSpeed has builders for klxpu, although klxpu's
    device type in torch is cuda.
    """
    version = _release.installed_version()
    if version is None:
        return OpProvider(
            {},
            name="deepspeed",
            advice="`pip install deepspeed` may provide this operator",
        )
    backend_family, _, _ = backend.name.partition(".")  # "xpu" for "xpu.external".
    device = backend.device_type
    if builders_package(backend_family):
        device = backend_family
    name = f"deepspeed {version}"
    if version == _release.UNKNOWN_VERSION:
        name = "deepspeed"
    return DeepSpeedProvider(
        builder_sources(device),
        name=name,
        kind="deepspeed",
        package=builders_package(device),
        optional=True,
        advice="neither DeepSpeed nor accel-train has this operator for the device",
    )


def _use_source_paths_of_deepspeed(builder_class: type[Any]) -> None:
    """Make the builder return source paths in the top folder of DeepSpeed's checkout.

    DeepSpeed's accelerators import the builders from `op_builder` in that folder. This module imports them
    from `deepspeed.ops.op_builder`, a link to `op_builder`. If the source paths differed, ninja would compile
    all sources again.
    """
    original = builder_class.deepspeed_src_path

    @functools.wraps(original)
    def deepspeed_src_path(self: Any, code_path: str) -> str:
        return _path_in_checkout(str(original(self, code_path)))

    builder_class.deepspeed_src_path = deepspeed_src_path


def _path_in_checkout(path: str) -> str:
    """Return a path below `deepspeed.ops` as a path below the checkout's top folder.

    Returns any other path unchanged.
    """
    checkout = _checkout_folder()
    ops_folder = _package_folder("deepspeed.ops")
    if checkout is None or not ops_folder or not path.startswith(ops_folder + os.sep):
        return path
    return str(checkout / Path(path).relative_to(ops_folder))


def _checkout_folder() -> Path | None:
    """Return the top folder of DeepSpeed's checkout.

    Returns `None` if DeepSpeed is not imported from a checkout.
    """
    for folder in package_folders("op_builder"):
        if _has_deepspeed_mark(Path(folder, "__init__.py")):
            return Path(folder).parent
    return None


def _has_deepspeed_mark(file: Path) -> bool:
    """Return whether `file`, an `__init__.py`, contains the word `__deepspeed__`, so it is DeepSpeed's."""
    try:
        return "__deepspeed__" in file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def builders_package(device_type: str) -> str:
    """Return the dotted name of DeepSpeed's package of builders for a device type.

    `device_type` may also be a name from DeepSpeed's list of accelerators. Returns an empty string if
    DeepSpeed is not installed, or has no such package.
    """
    if not device_type:
        return ""
    package = f"{_BUILDERS_ROOT}.{device_type}"
    if device_type == "cuda":
        package = _BUILDERS_ROOT
    folder = _package_folder(package)
    if folder and Path(folder, "__init__.py").is_file():
        return package
    return ""


def builder_sources(device_type: str) -> dict[str, str]:
    """Return the sources of all DeepSpeed builders for a device type, by the builders' names.

    An item looks like `"FusedAdamBuilder": "module:Class"`. The builder of the operator that pins host memory
    is included for every device, even if DeepSpeed does not support the device.
    """
    package = builders_package(device_type)
    builders: dict[str, str] = {}
    if device_type == "cuda":
        cpu_builders = _builders_of_package(f"{_BUILDERS_ROOT}.cpu")
        for name in _HOST_OPTIMIZERS:
            if name in cpu_builders:
                builders[name] = cpu_builders[name]
    if package:
        builders.update(_builders_of_package(package))
    if device_type and _PINNED_MEMORY_BUILDER not in builders:
        root_builders = _builders_of_package(_BUILDERS_ROOT)
        if _PINNED_MEMORY_BUILDER in root_builders:
            builders[_PINNED_MEMORY_BUILDER] = root_builders[_PINNED_MEMORY_BUILDER]
    return builders


def incompatibility_reason(builder: Any) -> str:
    """Return why the DeepSpeed builder `builder` cannot be used on this machine.

    Returns an empty string if it can be used. DeepSpeed's own check accepts most builders even if this
    machine cannot compile them, so this function also checks for the tools needed to compile.
    """
    if not builder.is_compatible(verbose=False):
        return _deepspeed_rejection_reason(builder)
    missing_source = _missing_metal_source(builder)
    if missing_source:
        return (
            f"DeepSpeed's wheel lacks the source file {missing_source}: "
            "install DeepSpeed from its repository"
        )
    has_cuda_code = any(str(source).endswith(".cu") for source in builder.sources())
    if has_cuda_code and _is_cuda_simulated():
        return "the operator's CUDA code does not run on a simulated device"
    if is_built(builder):
        return ""
    missing_tool = _missing_build_tool(builder, has_cuda_code=has_cuda_code)
    if missing_tool:
        return f"the operator must be compiled, but {missing_tool}"
    return ""


def _missing_build_tool(builder: Any, *, has_cuda_code: bool) -> str:
    """Return which tool for compiling is missing, with the next step.

    Returns an empty string if no tool is missing.
    """
    # CXX may also contain options of the compiler.
    compiler_and_options = os.environ.get("CXX", "").split()
    compiler = "c++"
    if compiler_and_options:
        compiler = compiler_and_options[0]
    headers = sysconfig.get_path("include")
    # DeepSpeed's builders for SYCL set CXX=icpx themselves.
    base_names = [base.__name__ for base in type(builder).__mro__]
    if "SYCLOpBuilder" in base_names:
        if shutil.which("icpx") is None:
            return "icpx is missing: install Intel's DPC++ and source its setvars.sh"
    elif shutil.which(compiler) is None:
        return f"the C++ compiler {compiler!r} is missing: install one, or set CXX"
    if shutil.which("ninja") is None:
        return "ninja is missing: pip install ninja"
    if not Path(headers, "Python.h").is_file():
        return f"{headers}/Python.h is missing: install python3-dev or python3-devel"
    if has_cuda_code:
        return _toolkit.missing_compiler_reason()
    return ""


def _missing_metal_source(builder: Any) -> str:
    """Return the path of the builder's first Metal shader that is not installed.

    Returns an empty string if none is missing. A builder for Metal reads its shaders only when its operator
    is used, so the check is made here.
    """
    if not hasattr(builder, "metal_sources"):
        return ""
    ops_folder = _package_folder("deepspeed.ops")
    for path in builder.metal_sources():
        if not Path(ops_folder, path).is_file():
            return str(path)
    return ""


def is_built(builder: Any) -> bool:
    """Return whether nothing is left to compile for the operator of `builder`.

    Nothing is left if the operator is pure Python, was installed in compiled form, or is in torch's cache.
    torch compiles the operator again if torch itself is newer than the compiled module, or if a source file
    or the compiler has changed.
    """
    if not builder.sources():
        return True  # Nothing needs to be compiled.
    package, _, module = builder.absolute_name().rpartition(".")
    names = (module, builder.name)
    installed_folder = _package_folder(package)
    if installed_folder and _compiled_modules_in(Path(installed_folder), names):
        return True
    libraries: list[Path] = []
    for folder in build_folders(builder):
        if not _is_outdated_build(folder, builder):
            libraries += _compiled_modules_in(folder, names)
    if not libraries:
        return False
    newest_library_time = max(file.stat().st_mtime for file in libraries)
    return newest_library_time >= _newest_source_time(builder)


def build_folder(builder: Any) -> str:
    """Return the folder in which torch keeps the modules that it compiles for `builder`."""
    extensions_folder = os.environ.get("TORCH_EXTENSIONS_DIR")
    if extensions_folder:
        return str(Path(extensions_folder, builder.name))
    return str(_default_build_root())


def build_folders(builder: Any) -> list[Path]:
    """Return all folders in which torch may have stored the modules that it compiled for `builder`.

    Only folders for this version of Python are included.
    """
    extensions_folder = os.environ.get("TORCH_EXTENSIONS_DIR")
    if extensions_folder:
        return [Path(extensions_folder, builder.name)]
    python_tag = f"py{sys.version_info.major}{sys.version_info.minor}_*"
    return list(_default_build_root().glob(f"{python_tag}/{builder.name}"))


def lock_file(builder: Any) -> Path | None:
    """Return the lock file that torch would wait for before compiling `builder`, or `None` without a lock.

    torch creates the file `lock` in the build folder while it compiles. If the file exists already, torch
    waits without a time limit (`torch.utils.file_baton`). A process that is killed while compiling leaves its
    lock file behind.
    """
    for folder in build_folders(builder):
        lock = folder / "lock"
        if lock.exists():
            return lock
    return None


def _compiled_modules_in(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the files of compiled modules with one of `names`, such as `NAME.so`."""
    if not folder.is_dir():
        return []
    modules = []
    for file in folder.iterdir():
        module, _, _ = file.name.partition(".")
        if file.suffix in EXTENSION_SUFFIXES and module in names:
            modules.append(file)
    return modules


def _is_outdated_build(folder: Path, builder: Any) -> bool:
    """Return whether torch built in `folder` from other sources or with another compiler than it would now.

    A user's environments share one folder for compiled modules, although each may have a different DeepSpeed.
    Returns False if torch's build file cannot be read.
    """
    try:
        build_file = (folder / "build.ninja").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    # On Windows, the build file has paths in a different form, and torch always uses the same compiler.
    if sys.platform == "win32":
        return False
    compiled_sources = _sources_in_build_file(build_file)
    ops_folder = _package_folder("deepspeed.ops")
    current_sources = {
        _path_in_checkout(str(Path(ops_folder, str(source))))
        for source in builder.sources()
    }
    uncompiled_sources = current_sources - compiled_sources
    if compiled_sources and uncompiled_sources:
        return True
    # Matches the line with the compiler, such as `cxx = c++`.
    compiler_line = re.search(r"^cxx = (?P<compiler>.*)$", build_file, re.MULTILINE)
    if compiler_line is None:
        return False
    return compiler_line["compiler"] != os.environ.get("CXX", "c++")


def _sources_in_build_file(build_file: str) -> set[str]:
    """Return the paths of the sources that the text of a `build.ninja` compiles."""
    # Matches the path in a line such as `build adam.o: compile /path/adam.cpp`.
    escaped_paths = re.findall(
        r"^build \S+: \w*compile (.*)$", build_file, re.MULTILINE
    )
    # ninja escapes a dollar sign, a colon and a space with a dollar sign.
    return {re.sub(r"\$([$: ])", r"\1", path) for path in escaped_paths}


def _newest_source_time(builder: Any) -> float:
    """Return the newest modification time of the builder's sources and torch's header.

    The time is in seconds since the epoch, or 0.0 if none of these files is found.
    """
    ops_folder = Path(_package_folder("deepspeed.ops"))
    files = [ops_folder / str(source) for source in builder.sources()]
    # The compiled code also depends on torch's header.
    for folder in package_folders("torch"):
        files.append(Path(folder, "include", "torch", "extension.h"))
    times = [file.stat().st_mtime for file in files if file.is_file()]
    return max(times, default=0.0)


def _default_build_root() -> Path:
    """Return the folder in which torch keeps compiled modules.

    The folder is the one that `get_default_build_root()` of torch's `cpp_extension` returns. That module is
    not used, because importing it takes 0.1 s.
    """
    appdirs: Any = importlib.import_module("torch._appdirs")
    return Path(os.path.realpath(appdirs.user_cache_dir(appname="torch_extensions")))


def _is_cuda_simulated() -> bool:
    """Return whether accel-simulated provides CUDA, as version 0.0 in `torch.version.cuda`."""
    return bool(import_torch().version.cuda == "0.0")


def _deepspeed_rejection_reason(builder: Any) -> str:
    """Return the warnings that DeepSpeed's own check prints, in one line without colors."""
    with redirect_stdout(io.StringIO()) as printed, suppress(Exception):
        builder.is_compatible(verbose=True)
    # Terminals switch colors with sequences such as `ESC[93m`.
    without_colors = re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue())
    # Matches the text after `[WARNING]`, without a final period.
    warnings = re.findall(r"\[WARNING\]\s*(.*?)\.?\s*$", without_colors, re.MULTILINE)
    if not warnings:
        return "DeepSpeed's own compatibility check rejects the operator"
    return "; ".join(warnings)


def _package_folder(name: str) -> str:
    """Return the folder of DeepSpeed's package with the dotted name `name`.

    Returns an empty string without DeepSpeed.
    """
    deepspeed = _release.package_folder()
    if deepspeed is None:
        return ""
    _deepspeed, *subfolders = name.split(".")
    return str(Path(deepspeed, *subfolders))


def _builders_of_package(package: str) -> dict[str, str]:
    """Return the source of each builder in `package` of DeepSpeed, by the builder's name."""
    return _parse_builders(package, _package_folder(package))


@functools.cache
def _parse_builders(package: str, folder: str) -> dict[str, str]:
    """Return the source of each builder that the modules in `folder` define or list in `__all__`, by name."""
    builders: dict[str, str] = {}
    for path in sorted(Path(folder).glob("*.py")):
        if path.stem in _MODULES_WITHOUT_BUILDERS:
            continue
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            for name in _defined_builders(ast.parse(path.read_bytes())):
                builders.setdefault(name, f"{package}.{path.stem}:{name}")
    return builders


def _defined_builders(module: ast.Module) -> list[str]:
    """Return the names of builders among the classes of `module` and in the module's `__all__`."""
    names = []
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            targets = [getattr(target, "id", "") for target in node.targets]
            if "__all__" in targets:
                names += ast.literal_eval(node.value)
    return [name for name in names if name.endswith("Builder")]
