"""`Accelerator`: the one interface to every device.

Its members have the names and calling conventions of DeepSpeed's `DeepSpeedAccelerator`, whose callers
exist, and more. Its sections stand side by side in the private modules beside this one, each on what it
uses: on `Base`, or on `Devices` where it speaks of devices by index. Here they become one class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.accelerators._devices import Devices
from accel_core.accelerators._memory import Memory, Pinning
from accel_core.accelerators._numbers import Dtypes, Random
from accel_core.accelerators._ops import NotImplementedBuilder, Ops
from accel_core.accelerators._streams import Graphs, Streams
from accel_core.accelerators._tools import Compile, Launch

if TYPE_CHECKING:
    from accel_core.accelerators.records import Capabilities

__all__ = ["Accelerator", "NotImplementedBuilder"]


# Those on `Base` come first, then those on `Devices`: an order in which any of them may be combined.
class Accelerator(Dtypes, Pinning, Graphs, Compile, Ops, Random, Streams, Memory, Launch, Devices):
    """A device type, its devices, and everything that differs between vendors.

    Every member has a default built on a few primitives, so that a member added here never breaks a
    plugin written before. A default that would be a lie raises `UnsupportedError` instead, which names
    the backend, the member and the vendor's version. A subclass for a device of its own gives
    `device_count`, `current_device`, `_select`, `synchronize`, `default_generator` and the memory
    amounts; for a device with a torch module, start from `TorchAccelerator`.

    Throughout, a `device_index` is an `int`, and `None` is the current device; memory is `int` bytes.
    Constructing one imports torch, initialises no device and changes nothing in the process. Copies are
    the same object, and a pickle holds the backend's name only.
    """

    def capabilities(self) -> Capabilities:
        """Every yes or no of this accelerator, asked now; may initialise the device."""
        from accel_core.accelerators.records import Capabilities

        return Capabilities(
            is_available=self.is_available(),
            is_synchronized_device=self.is_synchronized_device(),
            use_host_timers=self.use_host_timers(),
            resolves_data_dependency=self.resolves_data_dependency(),
            handles_memory_backpressure=self.handles_memory_backpressure(),
            is_bf16_supported=self.is_bf16_supported(),
            is_bf16_native=self.is_bf16_native(),
            is_fp16_supported=self.is_fp16_supported(),
            is_fp8_supported=self.is_fp8_supported(),
            is_fp64_supported=self.is_fp64_supported(),
            supports_graphs=self.supports_graphs(),
            supports_nvtx_domain=self.supports_nvtx_domain,
            is_triton_supported=self.is_triton_supported(),
            prefer_triton_grouped_mm=self.prefer_triton_grouped_mm(),
        )
