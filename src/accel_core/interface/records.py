"""Define the frozen records that an accelerator's members return, and types for which
torch has no class.

In annotations, a device is `torch.types.Device`, which is
`int | str | torch.device | None`; a stream is a `torch.Stream`, and an event is a
`torch.Event`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """The properties of one device, as the vendor reports them. A property that the
    vendor does not report is `None`.
    """

    #: The product name, such as `"NVIDIA H200"`.
    name: str
    #: The device memory in bytes.
    total_memory: int | None = None
    #: The compute capability `(major, minor)`, if the vendor defines one.
    capability: tuple[int, int] | None = None
    #: The UUID in the vendor's spelling.
    uuid: str | None = None
    #: Domain, bus, device and function in hexadecimal, such as `"0000:3b:00.0"`.
    pci_address: str | None = None
    #: The number of units on which the vendor schedules work: streaming multiprocessors,
    #: compute units or AI cores.
    multiprocessors: int | None = None
    #: Whether the device is a part of the CPU and shares the host's memory.
    integrated: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """All yes-or-no properties of a device. Each field is the result of the accelerator
    member of the same name.
    """

    is_available: bool
    is_synchronized_device: bool
    use_host_timers: bool
    resolves_data_dependency: bool
    handles_memory_backpressure: bool
    is_bf16_supported: bool
    #: Whether the hardware computes in bfloat16, in contrast to emulation.
    is_bf16_native: bool
    is_fp16_supported: bool
    is_fp8_supported: bool
    is_fp64_supported: bool
    supports_graphs: bool
    supports_nvtx_domain: bool
    is_triton_supported: bool
    prefer_triton_grouped_mm: bool

    def to_dict(self) -> dict[str, bool]:
        """Return the record as plain values, for JSON."""
        return asdict(self)


def read_properties(properties: object, total_memory: int | None) -> DeviceProperties:
    """Return the `DeviceProperties` for `properties`, the result of
    `torch.<device_type>.get_device_properties`.
    """
    uuid = getattr(properties, "uuid", None)
    # The value is 0 or 1 in CUDA, and False or True in SYCL.
    integrated = _first_int(properties, "is_integrated", "is_integrated_gpu")
    return DeviceProperties(
        name=str(getattr(properties, "name", "")),
        total_memory=total_memory,
        capability=_capability(properties),
        uuid=None if uuid is None else str(uuid),
        pci_address=_pci_address(properties),
        # The names are those of CUDA and of vendors that follow it, of SYCL, and of
        # Ascend.
        multiprocessors=_first_int(
            properties, "multi_processor_count", "max_compute_units", "cube_core_num"
        ),
        integrated=None if integrated is None else bool(integrated),
    )


def _capability(properties: object) -> tuple[int, int] | None:
    major = _first_int(properties, "major")
    minor = _first_int(properties, "minor")
    if major is None or minor is None:
        return None
    return major, minor


def _pci_address(properties: object) -> str | None:
    domain = _first_int(properties, "pci_domain_id") or 0
    bus = _first_int(properties, "pci_bus_id")
    device = _first_int(properties, "pci_device_id")
    if bus is None or device is None:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _first_int(properties: object, *names: str) -> int | None:
    """Return the value of the first field that exists and is an `int`, or `None` if
    there is none.
    """
    for name in names:
        value = getattr(properties, name, None)
        if isinstance(value, int):
            return int(value)
    return None


# --- Types for annotations -----------------------------------------------------------


class Graph(Protocol):
    """A device graph: captured work that can be replayed. It has the methods that all
    vendors' graph classes share.

    `pool()` is not among them, because Gaudi's class lacks it.
    """

    def capture_begin(self) -> None:
        """Start capturing the work on the current stream."""

    def capture_end(self) -> None:
        """Stop capturing work into this graph."""

    def replay(self) -> None:
        """Run the captured work again."""

    def reset(self) -> None:
        """Delete the work that this graph captured."""


class OpBuilderLike(Protocol):
    """A builder of one operator, with the members that frameworks' builders and those
    of accel-train have in common.
    """

    @property
    def name(self) -> str:
        """The operator's name as it appears in reports."""

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether the operator can be used on this machine."""

    def load(self, verbose: bool = True) -> Any:
        """Load the operator, and return a module or another object with its functions."""

    def builder(self) -> Any:
        """Return the operator's extension, which setuptools can build ahead of time."""


class DeviceCapability(TypedDict):
    """The result of an accelerator's `get_device_capability`."""

    supported_dtypes: set[torch.dtype]


class GradScalerOptions(TypedDict, total=False):
    """The options of an accelerator's `grad_scaler`: the arguments of
    `torch.amp.GradScaler` except the device.
    """

    init_scale: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    enabled: bool
