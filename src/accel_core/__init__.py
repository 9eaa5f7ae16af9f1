"""One interface to every PyTorch accelerator, each vendor a plugin.

    import accel_core
    acc = accel_core.get_accelerator()
    model.to(acc.device())

Importing this package imports neither torch, nor a vendor, nor pluggy: each public name
is resolved when it is first used (PEP 562).
"""

from __future__ import annotations

import importlib
import sys

#: The version of every distribution of this release; hatchling reads the version here.
__version__ = "0.1.0"

#: The module of each public name. tools/public_names.py writes `__init__.pyi` from
#: this table.
_MODULES = {
    "Accelerator": "interface",
    "NotImplementedBuilder": "interface.op_builders",
    "Capabilities": "interface.records",
    "DeviceCapability": "interface.records",
    "DeviceProperties": "interface.records",
    "GradScalerOptions": "interface.records",
    "Graph": "interface.records",
    "OpBuilderLike": "interface.records",
    "HostEvent": "interface.streams",
    "HostStream": "interface.streams",
    "TorchAccelerator": "interface.torch_device",
    "Backend": "backend",
    "Environment": "backend",
    "ResourceRequest": "backend",
    "Hardware": "backend",
    "TorchIntegration": "backend",
    "ProbeResult": "backend",
    "Provenance": "backend",
    "Visibility": "backend",
    "accelerator": "current",
    "get_accelerator": "current",
    "selection": "current",
    "set_accelerator": "current",
    "use_accelerator": "current",
    "AccelError": "errors",
    "AcceleratorFallbackWarning": "errors",
    "BackendConflictError": "errors",
    "BackendNotFoundError": "errors",
    "BackendUnavailableError": "errors",
    "ChildError": "errors",
    "CommunicationError": "errors",
    "DeclinedError": "errors",
    "HostMemoryError": "errors",
    "IntegrationError": "errors",
    "IntegrationMissingError": "errors",
    "InvalidAcceleratorError": "errors",
    "InvalidArgumentError": "errors",
    "InvalidBackendError": "errors",
    "InvalidDeviceError": "errors",
    "LaunchError": "errors",
    "OpInputError": "errors",
    "RankLostError": "errors",
    "RankMismatchError": "errors",
    "RecursiveChoiceError": "errors",
    "SettingError": "errors",
    "SettingWarning": "errors",
    "UnsupportedError": "errors",
    "hint_for": "exceptions",
    "Check": "hookspecs",
    "CheckResult": "hookspecs",
    "Fix": "hookspecs",
    "hookimpl": "hookspecs",
    "Evidence": "hardware.bus",
    "evidence": "hardware.bus",
    "OpCandidate": "operators",
    "OpProvider": "operators",
    "Operator": "operators",
    "is_installed": "packages",
    "package_folders": "packages",
    "TorchBuild": "torch_import",
    "torch_build": "torch_import",
    "Reason": "verdict",
    "Selection": "verdict",
    "Status": "verdict",
    "Verdict": "verdict",
    "Why": "verdict",
    "discover": "select",
    "hidden_by": "hardware.visible_devices",
}

__all__ = sorted(["__version__", *_MODULES])  # noqa: PLE0605 - one list of public names


def __getattr__(name: str) -> object:
    """Resolve a public name on first use, by importing the module that defines it."""
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    globals()[name] = value  # so that the next use does not call this function
    return value


def __dir__() -> list[str]:
    return __all__
