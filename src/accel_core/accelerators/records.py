"""What an accelerator answers in one piece: frozen records, imported when one is asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Capabilities", "DeviceProperties"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """What the vendor says of one device; a field that the vendor does not give is `None`."""

    #: The product: `"NVIDIA H200"`.
    name: str
    #: Bytes of device memory.
    total_memory: int | None = None
    #: Compute capability `(major, minor)`, where the vendor defines one.
    capability: tuple[int, int] | None = None
    #: As the vendor writes it.
    uuid: str | None = None
    #: `"0000:3b:00.0"`: domain, bus, device, function, in hexadecimal.
    pci_address: str | None = None
    #: Streaming multiprocessors, compute units, AI cores: whatever the vendor schedules on.
    multiprocessors: int | None = None
    #: A part of the processor, with memory that it shares with the host.
    integrated: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Every yes or no about a device; each field is the answer of the member of that name."""

    is_available: bool
    is_synchronized_device: bool
    use_host_timers: bool
    resolves_data_dependency: bool
    handles_memory_backpressure: bool
    is_bf16_supported: bool
    #: As against emulated.
    is_bf16_native: bool
    is_fp16_supported: bool
    is_fp8_supported: bool
    is_fp64_supported: bool
    supports_graphs: bool
    supports_nvtx_domain: bool
    is_triton_supported: bool
    prefer_triton_grouped_mm: bool

    def to_dict(self) -> dict[str, bool]:
        """The record as plain values, for JSON."""
        return asdict(self)
