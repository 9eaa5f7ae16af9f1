"""One interface to every PyTorch accelerator, each vendor a plugin.

    import accel_core
    acc = accel_core.get_accelerator()
    model.to(acc.device())

Importing this package imports neither torch, nor a vendor, nor pluggy: each public name is resolved
when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant would cost more than the rest of this import
if TYPE_CHECKING:
    from accel_core._support.packages import is_installed
    from accel_core._support.torch_import import TorchBuild, torch_build
    from accel_core.accelerators.interface import Accelerator
    from accel_core.accelerators.records import Capabilities, DeviceProperties
    from accel_core.accelerators.torch_device import TorchAccelerator
    from accel_core.backend import API_LEVEL, Backend, ProbeResult, Provenance, hint_for
    from accel_core.current import (
        accelerator,
        get_accelerator,
        selection,
        set_accelerator,
        use_accelerator,
    )
    from accel_core.detection.discovery import Candidate, discover
    from accel_core.detection.records import Status, Verdict
    from accel_core.detection.select import Selection
    from accel_core.errors import (
        AcceleratorFallbackWarning,
        AccelError,
        BackendConflictError,
        BackendNotFoundError,
        BackendUnavailableError,
        DeclinedError,
        IntegrationError,
        IntegrationMissingError,
        InvalidAcceleratorError,
        InvalidBackendError,
        LaunchError,
        OpBuildError,
        OpCacheError,
        OpInputError,
        RankLostError,
        RankMismatchError,
        RecursiveChoiceError,
        SettingError,
        UnsupportedError,
    )
    from accel_core.hookspecs import hookimpl
    from accel_core.machine.devices import Evidence, evidence
    from accel_core.machine.visible_devices import (
        VisibleDevices,
        format_visible_devices,
        hidden_by,
        parse_visible_devices,
    )
    from accel_core.ops.builder import OpBuilder

_HOMES = {
    "accelerators.interface": ("Accelerator",),
    "accelerators.records": ("Capabilities", "DeviceProperties"),
    "accelerators.torch_device": ("TorchAccelerator",),
    "backend": ("API_LEVEL", "Backend", "ProbeResult", "Provenance", "hint_for"),
    "detection.select": ("Selection",),
    "current": ("accelerator", "get_accelerator", "selection", "set_accelerator", "use_accelerator"),
    "detection.discovery": ("Candidate", "discover"),
    "errors": (
        "AccelError",
        "AcceleratorFallbackWarning",
        "BackendConflictError",
        "BackendNotFoundError",
        "BackendUnavailableError",
        "DeclinedError",
        "IntegrationError",
        "IntegrationMissingError",
        "InvalidAcceleratorError",
        "InvalidBackendError",
        "LaunchError",
        "OpBuildError",
        "OpCacheError",
        "OpInputError",
        "RankLostError",
        "RankMismatchError",
        "RecursiveChoiceError",
        "SettingError",
        "UnsupportedError",
    ),
    "machine.devices": ("Evidence", "evidence"),
    "hookspecs": ("hookimpl",),
    "ops.builder": ("OpBuilder",),
    "_support.packages": ("is_installed",),
    "_support.torch_import": ("TorchBuild", "torch_build"),
    "detection.records": ("Status", "Verdict"),
    "machine.visible_devices": (
        "VisibleDevices",
        "format_visible_devices",
        "hidden_by",
        "parse_visible_devices",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "API_LEVEL",
    "AccelError",
    "Accelerator",
    "AcceleratorFallbackWarning",
    "Backend",
    "BackendConflictError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "Candidate",
    "Capabilities",
    "DeclinedError",
    "DeviceProperties",
    "Evidence",
    "IntegrationError",
    "IntegrationMissingError",
    "InvalidAcceleratorError",
    "InvalidBackendError",
    "LaunchError",
    "OpBuildError",
    "OpBuilder",
    "OpCacheError",
    "OpInputError",
    "ProbeResult",
    "Provenance",
    "RankLostError",
    "RankMismatchError",
    "RecursiveChoiceError",
    "Selection",
    "SettingError",
    "Status",
    "TorchAccelerator",
    "TorchBuild",
    "UnsupportedError",
    "Verdict",
    "VisibleDevices",
    "__version__",
    "accelerator",
    "discover",
    "evidence",
    "format_visible_devices",
    "get_accelerator",
    "hidden_by",
    "hint_for",
    "hookimpl",
    "is_installed",
    "parse_visible_devices",
    "selection",
    "set_accelerator",
    "torch_build",
    "use_accelerator",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next use is a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
