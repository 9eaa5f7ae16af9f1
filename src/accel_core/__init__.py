"""One interface to every PyTorch accelerator, each vendor a plugin.

    import accel_core
    acc = accel_core.get_accelerator()
    model.to(acc.device())

Importing this package imports neither torch, nor a vendor, nor pluggy: each public name is resolved
when it is first used.
"""

from __future__ import annotations

import importlib
import sys

#: The version of every distribution of this release; hatchling reads it from here.
__version__ = "0.1.0"

#: The public names, by the module that each comes from; tools/public_names.py writes `__init__.pyi` from it.
_HOMES = {
    "interface": ("Accelerator",),
    "interface.op_builders": ("NotImplementedBuilder",),
    "interface.records": (
        "Capabilities", "DeviceCapability", "DeviceProperties", "GradScalerOptions", "Graph", "OpBuilderLike",
    ),
    "interface.streams": ("HostEvent", "HostStream"),
    "interface.torch_device": ("TorchAccelerator",),
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
        "HostMemoryError",
    ),
    "exceptions": ("hint_for",),
    "hookspecs": ("Check", "CheckResult", "Fix", "hookimpl"),
    "hardware.bus": ("Evidence", "evidence"),
    "operators": ("OpCandidate", "Operator", "OpProvider"),
    "packages": ("is_installed", "package_folders"),
    "torch_import": ("TorchBuild", "torch_build"),
    "verdict": ("Reason", "Selection", "Status", "Verdict", "Why"),
    "select": ("discover",),
    "hardware.visible_devices": ("hidden_by",),
}  # fmt: skip


#: The module of each public name.
_HOME = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
__all__ = sorted(["__version__", *_HOME])  # noqa: PLE0605 - one list of the public names, not two


def __getattr__(name: str) -> object:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value  # the next use is a plain attribute
    return value


def __dir__() -> list[str]:
    return __all__
