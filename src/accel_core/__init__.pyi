"""The names of accel_core, for type checkers; tools/public_names.py writes them."""

from accel_core.backend import Backend as Backend
from accel_core.backend import Environment as Environment
from accel_core.backend import Hardware as Hardware
from accel_core.backend import ProbeResult as ProbeResult
from accel_core.backend import Provenance as Provenance
from accel_core.backend import ResourceRequest as ResourceRequest
from accel_core.backend import TorchIntegration as TorchIntegration
from accel_core.backend import Visibility as Visibility
from accel_core.current import accelerator as accelerator
from accel_core.current import get_accelerator as get_accelerator
from accel_core.current import selection as selection
from accel_core.current import set_accelerator as set_accelerator
from accel_core.current import use_accelerator as use_accelerator
from accel_core.errors import AcceleratorFallbackWarning as AcceleratorFallbackWarning
from accel_core.errors import AccelError as AccelError
from accel_core.errors import BackendConflictError as BackendConflictError
from accel_core.errors import BackendNotFoundError as BackendNotFoundError
from accel_core.errors import BackendUnavailableError as BackendUnavailableError
from accel_core.errors import ChildError as ChildError
from accel_core.errors import CommunicationError as CommunicationError
from accel_core.errors import DeclinedError as DeclinedError
from accel_core.errors import HostMemoryError as HostMemoryError
from accel_core.errors import IntegrationError as IntegrationError
from accel_core.errors import IntegrationMissingError as IntegrationMissingError
from accel_core.errors import InvalidAcceleratorError as InvalidAcceleratorError
from accel_core.errors import InvalidArgumentError as InvalidArgumentError
from accel_core.errors import InvalidBackendError as InvalidBackendError
from accel_core.errors import InvalidDeviceError as InvalidDeviceError
from accel_core.errors import LaunchError as LaunchError
from accel_core.errors import OpInputError as OpInputError
from accel_core.errors import RankLostError as RankLostError
from accel_core.errors import RankMismatchError as RankMismatchError
from accel_core.errors import RecursiveChoiceError as RecursiveChoiceError
from accel_core.errors import SettingError as SettingError
from accel_core.errors import SettingWarning as SettingWarning
from accel_core.errors import UnsupportedError as UnsupportedError
from accel_core.exceptions import hint_for as hint_for
from accel_core.hardware.bus import Evidence as Evidence
from accel_core.hardware.bus import evidence as evidence
from accel_core.hardware.visible_devices import hidden_by as hidden_by
from accel_core.hookspecs import Check as Check
from accel_core.hookspecs import CheckResult as CheckResult
from accel_core.hookspecs import Fix as Fix
from accel_core.hookspecs import hookimpl as hookimpl
from accel_core.interface import Accelerator as Accelerator
from accel_core.interface.op_builders import (
    NotImplementedBuilder as NotImplementedBuilder,
)
from accel_core.interface.records import Capabilities as Capabilities
from accel_core.interface.records import DeviceCapability as DeviceCapability
from accel_core.interface.records import DeviceProperties as DeviceProperties
from accel_core.interface.records import GradScalerOptions as GradScalerOptions
from accel_core.interface.records import Graph as Graph
from accel_core.interface.records import OpBuilderLike as OpBuilderLike
from accel_core.interface.streams import HostEvent as HostEvent
from accel_core.interface.streams import HostStream as HostStream
from accel_core.interface.torch_device import TorchAccelerator as TorchAccelerator
from accel_core.operators import OpCandidate as OpCandidate
from accel_core.operators import Operator as Operator
from accel_core.operators import OpProvider as OpProvider
from accel_core.packages import is_installed as is_installed
from accel_core.packages import package_folders as package_folders
from accel_core.select import discover as discover
from accel_core.torch_import import TorchBuild as TorchBuild
from accel_core.torch_import import torch_build as torch_build
from accel_core.verdict import Reason as Reason
from accel_core.verdict import Selection as Selection
from accel_core.verdict import Status as Status
from accel_core.verdict import Verdict as Verdict
from accel_core.verdict import Why as Why

__version__: str

__all__ = [
    "AccelError",
    "Accelerator",
    "AcceleratorFallbackWarning",
    "Backend",
    "BackendConflictError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "Capabilities",
    "Check",
    "CheckResult",
    "ChildError",
    "CommunicationError",
    "DeclinedError",
    "DeviceCapability",
    "DeviceProperties",
    "Environment",
    "Evidence",
    "Fix",
    "GradScalerOptions",
    "Graph",
    "Hardware",
    "HostEvent",
    "HostMemoryError",
    "HostStream",
    "IntegrationError",
    "IntegrationMissingError",
    "InvalidAcceleratorError",
    "InvalidArgumentError",
    "InvalidBackendError",
    "InvalidDeviceError",
    "LaunchError",
    "NotImplementedBuilder",
    "OpBuilderLike",
    "OpCandidate",
    "OpInputError",
    "OpProvider",
    "Operator",
    "ProbeResult",
    "Provenance",
    "RankLostError",
    "RankMismatchError",
    "Reason",
    "RecursiveChoiceError",
    "ResourceRequest",
    "Selection",
    "SettingError",
    "SettingWarning",
    "Status",
    "TorchAccelerator",
    "TorchBuild",
    "TorchIntegration",
    "UnsupportedError",
    "Verdict",
    "Visibility",
    "Why",
    "__version__",
    "accelerator",
    "discover",
    "evidence",
    "get_accelerator",
    "hidden_by",
    "hint_for",
    "hookimpl",
    "is_installed",
    "package_folders",
    "selection",
    "set_accelerator",
    "torch_build",
    "use_accelerator",
]
