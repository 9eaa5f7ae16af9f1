"""Import torch without its autoload, and read facts about torch without importing it.

While torch is imported, it imports every entry point of group `torch.backends`. One
broken vendor wheel then makes `import torch` fail for the whole process. If accel_core
is the first to import torch, it turns that autoload off and loads the chosen vendor's
package by name. If the user's program imported torch before, accel_core does not change
that import.
"""

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from accel_core.errors import AccelError, BackendUnavailableError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.locks import ForkSafeLock
from accel_core.packages import entry_points, package_folders
from accel_core.settings import ACCEL_IMPORT

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The variable with a comma-separated list of packages to import after torch. These
#: packages add a device to torch but register no entry point.
IMPORTED = ACCEL_IMPORT.name
#: The group of the entry points that torch calls while torch is imported.
TORCH_GROUP = "torch.backends"
#: The name and the distribution of accel's own entry point in `TORCH_GROUP`, which
#: activates the integrations that a parent process activated.
OWN_ENTRY_POINT = ("accel_train", "accel-train")
_lock = ForkSafeLock()
#: Whether accel_core imported torch in this process, with torch's autoload off.
imported_by_us = False


def import_torch() -> ModuleType:
    """Return torch, importing it with autoload off if needed. Also import the packages
    in `ACCEL_IMPORT`.

    Raises `BackendUnavailableError` with the next step if torch is missing or broken.
    """
    if sys.modules.get("torch") is not None:
        # Another thread may be importing torch. This thread waits for that import
        # without the lock, because the other thread may need the lock for a package
        # that torch loads.
        torch = _import_or_explain()
        _import_named_packages()
        return torch
    torch = _import_without_autoload()
    _import_named_packages()
    _run_own_entry_point()
    return torch


def _import_without_autoload() -> ModuleType:
    global imported_by_us
    with _lock.held(), autoload_restored():
        os.environ[AUTOLOAD] = "0"
        torch = _import_or_explain()
        imported_by_us = True
    return torch


def _import_named_packages() -> None:
    """Import each package in `ACCEL_IMPORT`.

    An entry may have the form `package:function`, as in an entry point for torch's
    autoload. The function is then called after the first import.
    """
    for name in ACCEL_IMPORT.read(os.environ):
        module, _, function = name.partition(":")
        if module in sys.modules:
            continue
        try:
            package = importlib.import_module(module)
            if function:
                register_device = getattr(package, function)
                register_device()
        except PLUGIN_ERRORS as error:
            cause, step = cause_and_step(error)
            raise BackendUnavailableError(
                f"{name}, which {IMPORTED} lists, fails to import: {cause}",
                hint=step or f"remove {name} from {IMPORTED}",
            ) from error


def _run_own_entry_point() -> None:
    """Run accel-train's entry point, which torch's autoload would have run if it were
    on.
    """
    for entry_point in entry_points(TORCH_GROUP):
        key = (entry_point.name, entry_point.distribution)
        if key == OWN_ENTRY_POINT:
            activate_integrations = entry_point.load()
            activate_integrations()


def has_failed_import() -> bool:
    """Return whether an import of torch failed or was interrupted in this process. A
    second import may crash.
    """
    if "torch" in sys.modules:
        return False
    # Python removes only the module that failed, and keeps the modules that it imported.
    return any(name.startswith("torch.") for name in list(sys.modules))


def autoload_is_on() -> bool:
    """Return whether `import torch` imports the packages that are registered for
    torch's autoload.
    """
    return os.environ.get(AUTOLOAD, "1") == "1"


@contextlib.contextmanager
def autoload_restored() -> Iterator[None]:
    """Restore torch's autoload variable after the block, because a torch_npu that fails
    to import leaves autoload off.
    """
    previous_value = os.environ.get(AUTOLOAD)
    try:
        yield
    finally:
        os.environ.pop(AUTOLOAD, None)
        if previous_value is not None:
            os.environ[AUTOLOAD] = previous_value


class TorchFailsError(BackendUnavailableError):
    """`import torch` raised an error."""

    #: The failure without the error of `import torch`.
    WHAT = "torch fails to import"

    def __init__(self, raised: Exception, *, hint: str) -> None:
        #: Type and message of the error of `import torch`.
        self.cause = f"{type(raised).__name__}: {raised}"
        super().__init__(f"{self.WHAT}: {self.cause}", hint=hint)


def _import_or_explain() -> ModuleType:
    if has_failed_import():
        raise BackendUnavailableError(
            "an `import torch` in this process failed or was interrupted, "
            "and torch cannot be imported twice",
            hint="if torch's autoload is the cause, `accel why` names the package",
        )
    try:
        # An import statement, because Kunlunxin's start-up hook replaces
        # `builtins.__import__`, which `import_module` does not call. The hook must see
        # torch before torch's own imports.
        import torch
    except AccelError:  # The error has its next step already.
        raise
    except Exception as error:
        is_not_installed = (
            isinstance(error, ModuleNotFoundError) and error.name == "torch"
        )
        if is_not_installed:
            reason = "torch is not installed: run `accel setup`"
            raise BackendUnavailableError(reason) from None
        raise _import_failure(error) from error
    _require_pytorch(torch)
    return torch


def _import_failure(error: Exception) -> BackendUnavailableError:
    """Return the error to raise because `import torch` raised `error`."""
    step = "run `accel doctor` in the program's folder to find the cause"
    # torch's message about its autoload names the package that torch loads.
    if AUTOLOAD in str(error):
        text = f"{error} {error.__cause__ or ''}".strip()
        return BackendUnavailableError(text, hint=step)
    return TorchFailsError(error, hint=step)


def _require_pytorch(torch: ModuleType) -> None:
    """Raise `BackendUnavailableError` if the imported module is not PyTorch, but for
    example a folder called torch.
    """
    if hasattr(torch, "Tensor"):
        return
    place = getattr(torch, "__file__", None)
    if place is None:  # A folder without an `__init__` has only a path.
        place = list(getattr(torch, "__path__", ()))
    raise BackendUnavailableError(
        f"the module torch that Python finds is not PyTorch: {place}"
    )


# --- torch's build --------------------------------------------------------------------

#: The names of torch's builds for people, by the names in `torch.version`.
BUILDS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}


class TorchBuild(NamedTuple):
    """The build of the installed torch, as recorded in `torch/version.py`."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Return whether torch was built with at least one of the given toolkits:
        `"cuda"`, `"hip"`, `"xpu"`.
        """
        return any(getattr(self, name) for name in names)

    @property
    def kind(self) -> str:
        """The kind of torch build in words, such as `"a CUDA build"`."""
        if self.cuda:
            return "a CUDA build"
        if self.hip:
            return "a ROCm build"
        if self.xpu:
            return "an XPU build"
        return "a CPU build"

    def __str__(self) -> str:
        kinds = []
        for name in BUILDS:
            value = getattr(self, name)
            if value:
                kinds.append(f"{name} {value}")
        return f"torch {self.version} ({', '.join(kinds) or 'CPU build'})"


def torch_build() -> TorchBuild | None:
    """Return the build of the installed torch, or `None` if torch is not installed.

    The build is read from torch's files, without importing torch, unless torch is
    already imported.
    """
    imported_module = getattr(sys.modules.get("torch"), "version", None)
    if imported_module is not None:
        return _build_from_variables(vars(imported_module))
    folders = package_folders("torch")
    if not folders:
        return None
    return _build_from_variables(_variables_in_version_file(folders))


def _build_from_variables(values: dict[str, str]) -> TorchBuild:
    return TorchBuild(
        version=values.get("__version__", "unknown version"),
        cuda=values.get("cuda"),
        hip=values.get("hip"),
        xpu=values.get("xpu"),
    )


def _variables_in_version_file(folders: list[str]) -> dict[str, str]:
    """Return the strings that the source of `torch.version` assigns, by name. torch's
    build writes one assignment per line.
    """
    # A simulated device installs a finder that returns the source for the simulated
    # build.
    for finder in sys.meta_path:
        spec = finder.find_spec("torch.version", folders)
        if spec is None:
            continue
        loader: Any = spec.loader
        with contextlib.suppress(Exception):  # The source may be unreadable.
            source = loader.get_source("torch.version") or ""
            # For example: cuda: Optional[str] = '12.6'
            assignment = r"^(\w+)(?:: [^=\n]+)? = ['\"]([^'\"\n]*)['\"]"
            return dict(re.findall(assignment, source, re.MULTILINE))
    return {}


#: The dynamic loader's message if a library needs a C++ symbol in torch's namespaces that
#: torch lacks.
_MISSING_SYMBOL = r"symbol\b.*?\b_{1,2}Z(?:T[ISV])?NK?(?:3c10|2at|5torch)\d"


def cause_and_step(error: BaseException) -> tuple[str, str]:
    """Return `root_cause(error)` and the next step. The step is empty unless a library
    was built for another version of torch.
    """
    cause = root_cause(error)
    if not re.search(_MISSING_SYMBOL, cause, re.IGNORECASE):
        return cause, ""
    build = torch_build()
    if build is None:
        return cause, ""
    mismatch = f"built for another torch than {build.version}: {cause}"
    return mismatch, f"install the vendor's wheel for torch {build.version}"


# --- torch's namespaces ---------------------------------------------------------------

#: The functions that a package must replace to take over a device namespace of torch.
_KEY_FUNCTIONS = (
    "is_available", "device_count", "current_device", "set_device", "synchronize",
)  # fmt: skip


def namespace_taken_by(device_type: str, own_packages: tuple[str, ...]) -> str:
    """Return the module whose functions replace those of `torch.<device_type>`, or an
    empty string if there is none.

    Modules in `own_packages` do not count.
    """
    namespace = getattr(sys.modules.get("torch"), device_type, None)
    modules = []
    if isinstance(namespace, ModuleType):
        modules.append(namespace.__name__)
    for name in _KEY_FUNCTIONS:
        function = getattr(namespace, name, None)
        modules.append(defining_module(function))
    for module in modules:
        top_level, _, _ = module.partition(".")
        if module and top_level not in own_packages:
            return module
    return ""


def defining_module(function: object) -> str:
    """Return the name of the module that defines a function, or an empty string if unknown."""
    while isinstance(function, partial):
        function = function.func
    # functools.wraps copies `__module__` from the wrapped function, but not its globals.
    variables = getattr(function, "__globals__", {})
    module = variables.get("__name__") or getattr(function, "__module__", None)
    return str(module or "")


#: torch's name for the PrivateUse1 slot before a package renames the slot.
FREE_SLOT = "privateuseone"


def private_use1_name() -> str:
    """Return the device type that uses torch's only PrivateUse1 slot in this process,
    or `FREE_SLOT` if the slot is free.
    """
    internals = getattr(sys.modules.get("torch"), "_C", None)
    if internals is None:
        return FREE_SLOT
    return str(internals._get_privateuse1_backend_name())
