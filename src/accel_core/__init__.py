"""One interface to every PyTorch accelerator, each vendor a plugin.

    import accel_core
    acc = accel_core.get_accelerator()
    model.to(acc.device())

Importing this package imports neither torch, nor a vendor, nor pluggy: each public name is resolved
when it is first used.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: The version of every distribution of this release; hatchling reads it from here.
__version__ = "0.1.0"

#: The public names, by the module that each comes from; tools/public_names.py writes `__init__.pyi` from it.
_HOMES = {
    "accelerators": ("Accelerator",),
    "accelerators.operators": ("NotImplementedBuilder",),
    "accelerators.records": (
        "Capabilities", "DeviceCapability", "DeviceProperties", "GradScalerOptions", "Graph", "OpBuilderLike",
    ),
    "accelerators.streams": ("HostEvent", "HostStream"),
    "accelerators.torch_device": ("TorchAccelerator",),
    "backend": (
        "Backend", "Environment", "Granted", "Hardware", "InTorch", "ProbeResult", "Provenance", "Visibility",
    ),
    "current": ("accelerator", "get_accelerator", "selection", "set_accelerator", "use_accelerator"),
    "errors": (
        "AccelError", "AcceleratorFallbackWarning", "BackendConflictError", "BackendNotFoundError",
        "BackendUnavailableError", "ChildError", "CommunicationError", "DeclinedError", "IntegrationError",
        "IntegrationMissingError", "InvalidAcceleratorError", "InvalidArgumentError", "InvalidBackendError",
        "InvalidDeviceError", "LaunchError", "OpBuildError", "OpCacheError", "OpInputError", "RankLostError",
        "RankMismatchError", "RecursiveChoiceError", "SettingError", "SettingWarning", "UnsupportedError",
        "HostMemoryError", "hint_for", "tolerating",
    ),
    "hookspecs": ("Check", "CheckResult", "Fix", "hookimpl"),
    "machine.devices": ("Evidence", "evidence"),
    "ops": ("OpCandidate", "Operator", "OpProvider"),
    "_support.packages": ("is_installed", "package_folders"),
    "_support.torch_import": ("TorchBuild", "torch_build"),
    "detection": ("Candidate", "Selection", "Status", "Unloaded", "Verdict"),
    "detection.select": ("discover",),
    "machine.visible_devices": ("hidden_by",),
}  # fmt: skip


def _by_name(homes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, str]]:
    """For each name its module, and what it is called there: `"read as read_settings"`."""
    entries = ((module, *entry.partition(" as ")[::2]) for module, names in homes.items() for entry in names)
    return {shown or name: (f"{__name__}.{module}".rstrip("."), name) for module, name, shown in entries}


def _resolving(module: str, home: dict[str, tuple[str, str]]) -> Callable[[str], object]:
    """The `__getattr__` of `module`: each name comes from its `home` when it is first used."""

    def resolve(name: str) -> object:
        if name not in home:
            what = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(what, name=name, obj=sys.modules[module])
        place, there = home[name]
        value: object = getattr(__import__(place, fromlist=[there]), there)
        setattr(sys.modules[module], name, value)  # the next use is a plain attribute
        return value

    return resolve


_HOME = _by_name(_HOMES)
__all__ = sorted(["__version__", *_HOME])  # noqa: PLE0605 - one list of the public names, not two
__getattr__ = _resolving(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
