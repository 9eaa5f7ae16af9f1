"""Make DeepSpeed use accel_core's accelerator, either when DeepSpeed is imported or afterwards."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from types import MethodType, ModuleType
from typing import Any

from accel_core import Accelerator, NotImplementedBuilder, get_accelerator
from accel_core.errors import IntegrationError, RecursiveChoiceError
from accel_core.settings import Variable, parse_flag
from accel_train.deepspeed import _host_collectives, _op_registry, _single_process
from accel_train.import_hook import ImportHook

__all__ = [
    "ACCEL_VENDOR_DEFAULTS", "deepspeed_choice", "missing_members", "prepare", "replace_accelerator",
    "replace_temporary_accelerator", "set_up", "supported_by_deepspeed",
]  # fmt: skip

#: DeepSpeed's module that selects its accelerator and keeps it as `ds_accelerator`.
_SELECTION_MODULE = "deepspeed.accelerator.real_accelerator"
#: In a source checkout, DeepSpeed's build imports the same files as a top-level package `accelerator`.
_SELECTION_MODULES = (_SELECTION_MODULE, "accelerator.real_accelerator")
#: Modules of DeepSpeed's launchers, which only start other processes.
_LAUNCHERS = ("deepspeed.launcher.runner", "deepspeed.launcher.launch")
#: Modules that call `get_compile_backend()` on import, for the default value of their method `compile`.
_ENGINES = ("deepspeed.runtime.engine", "deepspeed.inference.engine")
#: Device types whose compiler accel_core finds without importing torch's inductor.
_TYPES_WITH_KNOWN_COMPILER = ("cpu", "cuda", "xpu")
#: For each module of DeepSpeed that is patched after its import, the function that patches the module.
_PATCHES = {
    _single_process.COMM_MODULE: _single_process.patch_mpi_discovery,
    _host_collectives.TORCH_COMM_MODULE: _host_collectives.patch_cpu_staging,
}
_BUILDERS_PACKAGE = "deepspeed.ops.op_builder"
_NPU_BUILDERS_PACKAGE = f"{_BUILDERS_PACKAGE}.npu"
_NPU_VENDOR_PACKAGE = "torch_npu"
#: The module of `ds_report`.
_ENV_REPORT = "deepspeed.env_report"
#: In a source checkout, the files of `_BUILDERS_PACKAGE` are also a top-level package, for DeepSpeed's build.
_BUILD_TIME_PACKAGE = "op_builder"
#: `activate(vendor_defaults=False)` sets this variable to 0, so that child processes skip the defaults too.
ACCEL_VENDOR_DEFAULTS = Variable("ACCEL_VENDOR_DEFAULTS", parse_flag, True)
#: The CPU's accelerator, which DeepSpeed gets if the chosen accelerator's class imports DeepSpeed.
_temporary_accelerator: Accelerator | None = None
#: Whether the vendor's defaults for training are skipped, because only an operator is needed.
_skips_vendor_defaults = False
#: Abstract members that accel_core's accelerators lack. DeepSpeed calls them only if torch is older than 2.4.
_NEVER_CALLED = frozenset(("amp",))


def prepare(*, for_training: bool = True) -> None:
    """Install an import hook that makes DeepSpeed use accel_core's accelerator once it is imported.

    No accelerator is chosen before DeepSpeed is imported. With `for_training=False`, the vendor's default
    settings are not applied, unless another call to this function has prepared for training.
    """
    global _skips_vendor_defaults
    is_prepared = _hook in sys.meta_path
    if for_training:
        _skips_vendor_defaults = False
    elif not is_prepared:
        _skips_vendor_defaults = True
    _hook.install()


# --- while DeepSpeed is imported -----------------------------------------------------------------------


@contextlib.contextmanager
def _install_on_import(module: ModuleType) -> Iterator[None]:
    """Set accel_core's accelerator right after DeepSpeed's selection module runs, before it is used."""
    yield
    # The module's code has run now.
    if _is_selection_module(module):
        accelerator = _chosen_or_temporary_accelerator()
        _store_accelerator_in(module, accelerator)
        # A child process does not call activate(), which would set this up.
        set_up(accelerator, vendor_defaults=not _skips_vendor_defaults)


def set_up(
    accelerator: Accelerator, *, vendor_defaults: bool = True
) -> tuple[str, ...]:
    """Patch the imported DeepSpeed for `accelerator`, and apply the vendor's default settings.

    Returns a sentence for each setting that was applied. No settings are applied if `vendor_defaults` or the
    environment variable `ACCEL_VENDOR_DEFAULTS` is false. The function also imports the package that
    registers the communication backend with torch, because DeepSpeed only reads the backend's name.
    """
    # Imported here because a process that only imports DeepSpeed does not need this module.
    from accel_train.launch.communication import prepare_communication

    for name, patch in _PATCHES.items():
        module = sys.modules.get(name)
        if module is not None:
            patch(module)
    prepare_communication(accelerator)
    # The accelerator calls this function when a program pins memory.
    vars(accelerator)["_pin_manager"] = _native_pinned_memory_manager
    if vendor_defaults and ACCEL_VENDOR_DEFAULTS.read(os.environ):
        return accelerator.apply_vendor_defaults()
    return ()


def _native_pinned_memory_manager() -> object:
    """Return DeepSpeed's manager of pinned memory if `DS_PIN_MEMORY_BACKEND=native` is set, else `None`.

    The manager pins memory with one of DeepSpeed's operators, and calls the accelerator's method
    `register_host_memory`.
    """
    if os.environ.get("DS_PIN_MEMORY_BACKEND", "torch").strip().lower() != "native":
        return None
    try:
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory
    except ImportError:  # An older release does not read the variable.
        return None
    return get_active_native_pinned_memory()


def _chosen_or_temporary_accelerator() -> Accelerator:
    """Return the chosen accelerator, or the CPU's accelerator while the chosen one is being created.

    DeepSpeed may be imported while the chosen accelerator is being created, if the accelerator's class
    imports DeepSpeed. Later, `replace_temporary_accelerator` replaces the CPU's accelerator.
    """
    global _temporary_accelerator
    try:
        return get_accelerator()
    except RecursiveChoiceError:
        from accel_core import builtin
        from accel_core.interface.cpu import CPUAccelerator

        if _temporary_accelerator is None:
            _temporary_accelerator = CPUAccelerator(builtin.CPU)
        return _temporary_accelerator


def replace_temporary_accelerator(accelerator: Accelerator) -> None:
    """Set `accelerator` in DeepSpeed, if DeepSpeed still uses the CPU's accelerator as a temporary one.

    DeepSpeed has the temporary accelerator if it was imported while `accelerator` was being created.
    """
    global _temporary_accelerator
    has_temporary_accelerator = _temporary_accelerator is not None
    if has_temporary_accelerator and deepspeed_choice() is _temporary_accelerator:
        replace_accelerator(accelerator, force=True)
        set_up(accelerator)
        _temporary_accelerator = None


def _is_selection_module(module: ModuleType) -> bool:
    """Return whether `module` is the module in which DeepSpeed selects its accelerator.

    The name is not sufficient, because other projects may have a package `accelerator` too.
    """
    return hasattr(module, "ds_accelerator") and hasattr(module, "set_accelerator")


def _store_accelerator_in(module: Any, accelerator: Accelerator) -> None:
    """Make `accelerator` DeepSpeed's accelerator, in DeepSpeed's selection module `module`."""
    placeholder: Any = NotImplementedBuilder
    placeholder.NAME = placeholder.name = _op_registry.NOT_IMPLEMENTED
    # DeepSpeed's setup.py reads this attribute of each builder.
    placeholder.BUILD_VAR = ""
    for abstract_class in _imported_abstract_classes():
        # DeepSpeed requires an instance of its abstract class. `Accelerator` is not derived from that class,
        # because it must not import DeepSpeed.
        abstract_class.register(Accelerator)
    # DeepSpeed's is_current_accelerator_supported() searches this list of names.
    supported = getattr(module, "SUPPORTED_ACCELERATOR_LIST", None)
    if isinstance(supported, list) and accelerator.device_name() not in supported:
        supported.append(accelerator.device_name())
    # DeepSpeed's set_accelerator() is not used: with support for accel_core, it would call accel_core.
    module.ds_accelerator = accelerator


def _imported_abstract_classes() -> list[Any]:
    """Return DeepSpeed's abstract accelerator class from each package that has imported it."""
    classes = []
    for name in _SELECTION_MODULES:
        package, _, _ = name.rpartition(".")
        abstract_class = _attribute_of_imported(
            f"{package}.abstract_accelerator", "DeepSpeedAccelerator"
        )
        if abstract_class is not None:
            classes.append(abstract_class)
    return classes


def _attribute_of_imported(module: str, name: str) -> Any:
    """Return the attribute `name` of an imported module.

    Returns `None` if the module or the attribute is missing.
    """
    return getattr(sys.modules.get(module), name, None)


def missing_members(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the names of the abstract members of DeepSpeed's accelerator class that `accelerator` lacks.

    The names are sorted. The result is empty if DeepSpeed is not imported.
    """
    required: set[str] = set()
    for abstract_class in _imported_abstract_classes():
        required |= abstract_class.__abstractmethods__
    required -= _NEVER_CALLED
    accelerator_class = type(accelerator)
    missing = [name for name in required if not hasattr(accelerator_class, name)]
    return tuple(sorted(missing))


def _install_in_launcher() -> None:
    """Set the launcher's view of the chosen accelerator, in a process of DeepSpeed's launcher."""
    # Imported here because only launchers need this module.
    from accel_train.deepspeed._launcher_view import launcher_view

    # Python has usually imported this package already while loading the launcher.
    importlib.import_module("deepspeed.accelerator")
    module = sys.modules[_SELECTION_MODULE]
    _store_accelerator_in(module, launcher_view(get_accelerator()))


@contextlib.contextmanager
def _hide_npu_package(_: ModuleType) -> Iterator[None]:
    """Hide `torch_npu` while DeepSpeed's builders for npu are imported, unless npu is the chosen device.

    DeepSpeed imports these builders on every device, and they work without `torch_npu`. If another vendor's
    device is chosen, importing `torch_npu` would raise an error, or occupy torch's only slot for external
    devices (PrivateUse1).
    """
    if _chosen_or_temporary_accelerator().device_name() == "npu":
        yield
    else:
        with _hide_package(_NPU_VENDOR_PACKAGE):
            yield


@contextlib.contextmanager
def _hide_build_package(_: ModuleType) -> Iterator[None]:
    """Hide the package `op_builder` while DeepSpeed's builders are imported.

    In a source checkout, the package is a second copy of the builders, for DeepSpeed's build. It requests
    every builder while the builders are only partly imported, so some requests would fail. The builders work
    without the package.
    """
    with _hide_package(_BUILD_TIME_PACKAGE):
        yield


@contextlib.contextmanager
def _hide_package(name: str) -> Iterator[None]:
    """Make an import of the package `name` fail in a `with` block, unless it is already imported."""
    if name in sys.modules:
        yield
        return
    # Python raises ModuleNotFoundError for a module that is None in sys.modules.
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop(name, None)


@contextlib.contextmanager
def _add_ops_on_import(module: ModuleType) -> Iterator[None]:
    """Add the accelerator's operators to DeepSpeed's list, right after the list's module is imported."""
    yield
    _op_registry.add_missing_ops(module, deepspeed_choice())


@contextlib.contextmanager
def _patch_on_import(module: ModuleType) -> Iterator[None]:
    """Patch a module of DeepSpeed with its function in `_PATCHES`, right after the module is imported."""
    yield
    _PATCHES[module.__name__](module)


@contextlib.contextmanager
def _defer_compiler(_: ModuleType) -> Iterator[None]:
    """Defer the search for the device's compiler while DeepSpeed's engines are imported.

    The engines get the name of accel_train's torch.compile backend, which finds the compiler at the first
    compilation. For a device without a declared compiler, the search imports torch's inductor, which takes a
    second.
    """
    accelerator = _chosen_or_temporary_accelerator()
    has_declared_compiler = bool(accelerator.backend.compile_backend)
    if has_declared_compiler or accelerator.device_type in _TYPES_WITH_KNOWN_COMPILER:
        yield
        return
    from accel_train.compiling import COMPILER_NAME

    vars(accelerator)["get_compile_backend"] = lambda: COMPILER_NAME
    try:
        yield
    finally:
        del vars(accelerator)["get_compile_backend"]


@contextlib.contextmanager
def _extend_report_on_import(module: Any) -> Iterator[None]:
    """Make DeepSpeed's `ds_report` also print a line with accel_core's accelerator."""
    yield
    original = module.debug_report

    def debug_report() -> None:
        original()
        accelerator = deepspeed_choice()
        if isinstance(accelerator, Accelerator):
            dots = "." * 22  # Aligned with the columns of DeepSpeed's lines.
            sys.stdout.write(f"accelerator {dots} {accelerator!r}, by accel-train\n")

    module.debug_report = debug_report


_hook = ImportHook(
    # `dict.fromkeys` gives each of the modules the same function.
    contexts={
        **dict.fromkeys(_SELECTION_MODULES, _install_on_import),
        _BUILDERS_PACKAGE: _hide_build_package,
        _NPU_BUILDERS_PACKAGE: _hide_npu_package,
        _op_registry.ALL_OPS: _add_ops_on_import,
        **dict.fromkeys(_PATCHES, _patch_on_import),
        _ENV_REPORT: _extend_report_on_import,
        **dict.fromkeys(_ENGINES, _defer_compiler),
    },
    callbacks=dict.fromkeys(_LAUNCHERS, _install_in_launcher),
)


# --- after DeepSpeed was imported ----------------------------------------------------------------------


def supported_by_deepspeed() -> tuple[str, ...]:
    """Return the device names in the imported DeepSpeed's list of supported accelerators.

    accel_train adds its accelerator's name to this list.
    """
    names: list[str] = []
    for module in _SELECTION_MODULES:
        names += _attribute_of_imported(module, "SUPPORTED_ACCELERATOR_LIST") or ()
    return tuple(names)


def deepspeed_choice() -> Any:
    """Return the accelerator that DeepSpeed uses in this process, or `None` if it has not chosen one yet."""
    return _attribute_of_imported(_SELECTION_MODULE, "ds_accelerator")


def replace_accelerator(accelerator: Accelerator, *, force: bool) -> None:
    """Replace the accelerator that an imported DeepSpeed has chosen, in all of DeepSpeed's modules.

    The methods and operator builders that these modules got from the old accelerator are replaced too. Raises
    `IntegrationError` if DeepSpeed has chosen a different device than `accelerator`, unless `force` is True.
    """
    selection_modules = _imported_selection_modules()
    old_accelerators = _accelerators_to_replace(selection_modules, accelerator)
    if not force:
        _require_same_device(old_accelerators, accelerator)
    for module in selection_modules:
        # This is None if a DeepSpeed with support for accel_core is just being imported.
        if module.ds_accelerator is None:
            _store_accelerator_in(module, accelerator)
    if not old_accelerators:
        return
    old_builders = _imported_builders()
    for module in selection_modules:
        _store_accelerator_in(module, accelerator)
    # Other modules have copied DeepSpeed's choice, its methods and its builders into variables.
    for module in _imported_deepspeed_modules():
        _replace_in_module(module, old_accelerators, old_builders, accelerator)
    _op_registry.refresh_compatible_ops(accelerator)


def _imported_selection_modules() -> list[Any]:
    """Return the imported modules in which DeepSpeed keeps its accelerator.

    In a source checkout, there may be two such modules.
    """
    modules = []
    for name in _SELECTION_MODULES:
        module = sys.modules.get(name)
        if module is not None and _is_selection_module(module):
            modules.append(module)
    return modules


def _accelerators_to_replace(
    selection_modules: list[Any], accelerator: Accelerator
) -> list[Any]:
    """Return the accelerators that DeepSpeed has selected, except `accelerator` and its launcher view."""
    to_replace = []
    for module in selection_modules:
        selected = module.ds_accelerator
        # In DeepSpeed's launcher, the module has a view of the accelerator.
        if selected is not None and not _is_view_of(selected, accelerator):
            to_replace.append(selected)
    return to_replace


def _require_same_device(old_accelerators: list[Any], accelerator: Accelerator) -> None:
    """Raise `IntegrationError` if an old accelerator is for a different device than `accelerator`."""
    for other in old_accelerators:
        if other.device_name() != accelerator.device_name():
            raise IntegrationError(
                f"DeepSpeed was imported before and has chosen {_describe(other)}, but accel-core has "
                f"chosen {accelerator!r}. DeepSpeed's modules, and objects created since then, still use "
                "DeepSpeed's choice. Next step: call activate() before `import deepspeed`. Or call "
                "activate(force=True) if no engine, tensor or process group exists yet. Or set "
                "DS_ACCELERATOR, so that DeepSpeed and accel-core choose the same accelerator."
            )


def _replace_in_module(
    module: ModuleType,
    old_accelerators: list[Any],
    old_builders: dict[str, Any],
    accelerator: Accelerator,
) -> None:
    """Replace a module's global variables that hold an old accelerator, a method of it, or its builder."""
    for name, value in list(vars(module).items()):
        if _is_in(value, old_accelerators):
            setattr(module, name, accelerator)
        elif isinstance(value, MethodType) and _is_in(value.__self__, old_accelerators):
            setattr(module, name, getattr(accelerator, value.__name__))
        elif name in old_builders and value is old_builders[name]:
            setattr(module, name, accelerator.get_op_builder(name))


def _is_in(value: Any, objects: list[Any]) -> bool:
    """Return whether `value` is one of `objects`, without a comparison of values."""
    return any(value is other for other in objects)


def _is_view_of(other: Any, accelerator: Accelerator) -> bool:
    """Return whether `other` shares its state with `accelerator`, as the launcher's view does."""
    return isinstance(other, Accelerator) and other.__dict__ is accelerator.__dict__


def _describe(accelerator: Any) -> str:
    """Return the name and the class of DeepSpeed's accelerator, for an error message."""
    name = getattr(accelerator, "_name", None) or accelerator.device_name()
    return f"{name} ({type(accelerator).__module__}.{type(accelerator).__name__})"


def _imported_deepspeed_modules() -> list[ModuleType]:
    """Return DeepSpeed's imported modules, without the modules that select an accelerator.

    In a source checkout, this includes the modules of two packages that DeepSpeed's build imports.
    """
    packages = ("deepspeed", "accelerator", _BUILD_TIME_PACKAGE)
    modules = []
    for name, module in list(sys.modules.items()):
        top_package, _, _ = name.partition(".")
        if top_package not in packages or not isinstance(module, ModuleType):
            continue
        if module.__name__ not in _SELECTION_MODULES:
            modules.append(module)
    return modules


def _imported_builders() -> dict[str, Any]:
    """Return the builder classes, by name, that `deepspeed.ops.op_builder` got from its accelerator."""
    package = sys.modules.get(_BUILDERS_PACKAGE)
    if package is None:
        return {}
    # These two are base classes, which are the same on every device.
    base_classes = ("OpBuilder", "CUDAOpBuilder")
    return {
        name: value
        for name, value in vars(package).items()
        if name.endswith("Builder") and name not in base_classes
    }
