"""Importing torch without its autoload, and reading about torch without importing it.

torch imports every entry point of group `torch.backends` while it is itself imported, and one broken
vendor wheel then makes `import torch` fail for the whole process. Where accel_core is the first to
from contextlib import suppress
import torch, it does so with autoload off, and the chosen vendor's package is loaded by name. Where the
user imported torch before, what is there is taken as it is.
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

from accel_core import errors
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.locks import ForkSafeLock
from accel_core.packages import entry_points, package_folders

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: Packages, by comma, that are imported after torch: they bring a device, and log_step it to nobody.
IMPORTED = "ACCEL_IMPORT"
#: Entry points of this group torch calls while it is imported.
TORCH_GROUP = "torch.backends"
#: The one of them that is ours, with its distribution: it follows what a parent process activated.
OWN_ENTRY_POINT = ("accel_train", "accel-train")
_lock = ForkSafeLock()
#: Whether accel_core imported torch in this process, with torch's autoload off.
imported_by_us = False


def import_torch() -> ModuleType:
    """Return torch, imported with autoload off when it is not there yet, and with what `ACCEL_IMPORT` names.

    Raises `BackendUnavailableError` with the next step when torch is missing or broken.
    """
    if sys.modules.get("torch") is not None:
        # Somebody else's import, perhaps still under way in another thread. It is waited for without our
        # lock, since that thread may come here from a package that torch loads.
        return _with_named(_import())
    global imported_by_us
    with _lock.held(), autoload_restored():
        os.environ[AUTOLOAD] = "0"
        torch = _import()
        imported_by_us = True
    _with_named(torch)
    for entry_point in entry_points(TORCH_GROUP):  # ours was left out with the others
        if (entry_point.name, entry_point.distribution) == OWN_ENTRY_POINT:
            entry_point.load()()
    return torch


def _with_named(torch: ModuleType) -> ModuleType:
    """torch, once the packages that `ACCEL_IMPORT` names are imported.

    The function of `package:function`, which torch's autoload would call, is called with the first import.
    """
    for name in filter(None, map(str.strip, os.environ.get(IMPORTED, "").split(","))):
        module, _, function = name.partition(":")
        if module in sys.modules:
            continue
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except PLUGIN_ERRORS as error:
            told, step = cause_and_step(error)
            reason = f"{name}, which {IMPORTED} names, fails to import: {told}"
            step = step or f"take {name} out of {IMPORTED}"
            raise errors.BackendUnavailableError(reason, hint=step) from error
    return torch


def failed_before() -> bool:
    """Whether an import of torch has failed in this process, or was interrupted: a second one may crash."""
    return "torch" not in sys.modules and any(name.startswith("torch.") for name in [*sys.modules])


def autoload_is_on() -> bool:
    """Whether `import torch` imports the packages that are registered for torch's autoload."""
    return os.environ.get(AUTOLOAD, "1") == "1"


@contextlib.contextmanager
def autoload_restored() -> Iterator[None]:
    """Restore torch's autoload variable after the block: a torch_npu that fails to import leaves it off."""
    before = os.environ.get(AUTOLOAD)
    try:
        yield
    finally:
        os.environ.pop(AUTOLOAD, None)
        if before is not None:
            os.environ[AUTOLOAD] = before


def _import() -> ModuleType:
    if failed_before():
        raise errors.BackendUnavailableError(
            "an `import torch` of this process failed or was interrupted, and torch cannot be imported twice",
            hint="if torch's autoload is to blame, `accel why` names the package",
        )
    try:
        # The statement: Kunlunxin's start-up hook replaces `builtins.__import__`, which `import_module` does
        # not call, and has to see torch before torch's own imports do.
        import torch
    except errors.AccelError:  # which says what helps
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise errors.BackendUnavailableError("torch is not installed: accel setup") from None
        if AUTOLOAD in str(error):  # torch's words for a package that it loads, which it names
            raise errors.BackendUnavailableError(f"{error} {error.__cause__ or ''}".strip()) from error
        raise errors.BackendUnavailableError(
            f"torch fails to import: {type(error).__name__}: {error}. Reinstall torch."
        ) from error
    if not hasattr(torch, "Tensor"):
        where = getattr(torch, "__file__", None) or list(getattr(torch, "__path__", ()))
        raise errors.BackendUnavailableError(f"the module torch that Python finds is not PyTorch: {where}")
    return torch


#: What torch's builds are called, by the name in `torch.version`.
BUILDS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}


class TorchBuild(NamedTuple):
    """How the installed torch was built, from `torch/version.py`."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Whether torch was built with at least one of the given toolkits: `"cuda"`, `"hip"`, `"xpu"`."""
        return any(getattr(self, name) for name in names)

    @property
    def kind(self) -> str:
        """The kind of build in words: `"a CUDA build"`."""
        name = next((word for name, word in BUILDS.items() if getattr(self, name)), "CPU")
        return f"{'an' if name == 'XPU' else 'a'} {name} build"

    def __str__(self) -> str:
        kinds = [f"{name} {value}" for name in BUILDS if (value := getattr(self, name))]
        return f"torch {self.version} ({', '.join(kinds) or 'CPU build'})"


def torch_build() -> TorchBuild | None:
    """Return the build of the installed torch, read from its files; `None` without torch."""
    imported = getattr(sys.modules.get("torch"), "version", None)
    folders = [] if imported is not None else package_folders("torch")
    if imported is None and not folders:
        return None
    values: dict[str, Any] = vars(imported) if imported is not None else _version_file(folders)
    return TorchBuild(values.get("__version__", "unknown version"), *map(values.get, BUILDS))


def _version_file(folders: list[str]) -> dict[str, str]:
    """Return the texts that the source of `torch.version` assigns, one a line, as torch's build writes it."""
    # A simulated device has a finder of its own, which gives the source for the build that it simulates.
    for finder in sys.meta_path:
        if spec := finder.find_spec("torch.version", folders):
            with contextlib.suppress(Exception):  # it cannot be read
                text = getattr(spec.loader, "get_source", lambda _: "")("torch.version") or ""
                return dict(
                    re.findall(
                        r"^(\w+)(?:: [^=\n]+)? = ['\"]([^'\"\n]*)['\"]",
                        text,
                        re.MULTILINE,
                    )
                )
    return {}


#: What the loader says of a C++ symbol of torch's own namespaces that a library needs and torch has not.
_LACKS = r"symbol\b.*?\b_{1,2}Z(?:T[ISV])?NK?(?:3c10|2at|5torch)\d"


def cause_and_step(error: BaseException) -> tuple[str, str]:
    """Return `root_cause(error)`, and the next step if a library was built for another torch; else
    no step.
    """
    cause = root_cause(error)
    build = torch_build() if re.search(_LACKS, cause, re.IGNORECASE) else None
    if build is None:
        return cause, ""
    told = f"built for another torch (yours is {build.version}): {cause}"
    return told, "install the vendor's wheel for this torch"


# --- What torch's namespaces tell ----------------------------------------------------------------------

#: What a package that takes over a device namespace of torch has to replace.
_KEY_FUNCTIONS = (
    "is_available",
    "device_count",
    "current_device",
    "set_device",
    "synchronize",
)


def namespace_taken_by(device_type: str, own: tuple[str, ...]) -> str:
    """Return the module, other than `own`, whose functions replace those of `torch.<device_type>`; empty if
    none.
    """
    namespace = getattr(sys.modules.get("torch"), device_type, None)
    found = [namespace.__name__] if isinstance(namespace, ModuleType) else []
    found += [origin(getattr(namespace, name, None)) for name in _KEY_FUNCTIONS]
    return next(
        (module for module in found if module and module.partition(".")[0] not in own),
        "",
    )


def origin(function: object) -> str:
    """Return the name of the module that defines a function; empty if it is not known."""
    while isinstance(function, partial):
        function = function.func
    # The globals first: functools.wraps copies `__module__` from the function that it hides.
    name = getattr(function, "__globals__", {}).get("__name__") or getattr(function, "__module__", None)
    return str(name or "")


#: What torch calls the slot that nobody has named.
FREE_SLOT = "privateuseone"


def private_use1_name() -> str:
    """Return the device type that has torch's one PrivateUse1 slot in this process, or `FREE_SLOT`."""
    internals = getattr(sys.modules.get("torch"), "_C", None)
    return FREE_SLOT if internals is None else str(internals._get_privateuse1_backend_name())
