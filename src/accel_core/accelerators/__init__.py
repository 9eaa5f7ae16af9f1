"""`Accelerator`: the one interface to every device.

Its members have the names and calling conventions of DeepSpeed's `DeepSpeedAccelerator`, whose callers
exist, and more. Its sections stand side by side in the private modules beside this one, each on what it
uses: on `Base`, or on `Devices` where it speaks of devices by index. Here they become one class.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from accel_core.accelerators.communication import Communication
from accel_core.accelerators.devices import Devices
from accel_core.accelerators.dtypes import Dtypes
from accel_core.accelerators.generators import Random
from accel_core.accelerators.graphs import Compilation, Graphs
from accel_core.accelerators.memory import Memory, Pinning
from accel_core.accelerators.operators import Operators
from accel_core.accelerators.streams import Ranges, Streams

if TYPE_CHECKING:
    from accel_core.accelerators.records import Capabilities


# Those on `Base` come first, then those on `Devices`: an order in which any of them may be combined.
class Accelerator(
    Dtypes, Pinning, Graphs, Compilation, Operators, Ranges, Random, Streams, Memory, Communication, Devices
):
    """A device type, its devices, and everything that differs between vendors.

    Every member has a default built on a few primitives, so that a member added here never breaks a
    plugin written before. A default that would be a lie raises `UnsupportedError` instead, which names
    the backend, the member and the vendor's version. A subclass for a device of its own gives
    `device_count`, `current_device`, `_select`, `synchronize`, `default_generator` and the memory
    amounts; for a device with a torch module, start from `TorchAccelerator`.

    A `device_index` is an index, `"cuda:1"` or a `torch.device`, and `None` is the current device; what is
    returned is an `int`, as memory in bytes is.
    Constructing one imports torch, initialises no device and changes nothing in the process. Copies are
    the same object, and a pickle holds the backend's name only.
    """

    def capabilities(self) -> Capabilities:
        """Every yes or no of this accelerator, asked now; may initialise the device."""
        from accel_core.accelerators.records import Capabilities

        answers = {field.name: getattr(self, field.name) for field in fields(Capabilities)}
        return Capabilities(**{name: a() if callable(a) else a for name, a in answers.items()})
