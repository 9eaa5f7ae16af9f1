"""`Accelerator`: the one interface to every device.

Its members have the names and calling conventions of DeepSpeed's
`DeepSpeedAccelerator`, whose callers exist, and more. Its sections stand side by side
in the private modules beside this one, each on what it uses: on `Base`, or on `Devices`
where it speaks of devices by index. Here they become one class.

Accelerators of other frameworks' interfaces are made ours by whoever knows that
interface. An entry point in group `accel.adapters` names a module with two functions.
`adapt(foreign, backend)` makes an `Accelerator` of an object or a class, or `None`
where it does not know it; `backend` is the declaration of the plugin that named it, or
`None` where a user gives it. `prepared()` is a context in which such a class, which may
import its framework, is imported while the accelerator is being made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any

from accel_core.backend import Backend
from accel_core.interface.communication import Communication
from accel_core.interface.dtypes import Dtypes
from accel_core.interface.generators import Random
from accel_core.interface.graphs import Compilation, Graphs
from accel_core.interface.memory import Memory, Pinning
from accel_core.interface.op_builders import Operators
from accel_core.interface.records import Capabilities
from accel_core.interface.signatures import (
    add_torch_keywords,
    name_members_in_errors,
)
from accel_core.interface.streams import Ranges
from accel_core.settings import permitted_entry_points

#: Entry points that name a module with `adapt` and `prepared`.
ADAPTERS = "accel.adapters"


class Accelerator(
    Dtypes,
    Pinning,
    Graphs,
    Compilation,
    Operators,
    Ranges,
    Random,
    Memory,
    Communication,
):
    """A device type, its devices, and everything that differs between vendors.

    Every member has a default that uses a few basic members, so plugins keep working
    when accel_core gains a member. If no default can be right, the member raises
    `UnsupportedError`, which names the backend, the member and the vendor's version.

    A subclass for a new kind of device must define `device_count`, `current_device`,
    `_select`, `synchronize`, `default_generator` and the amounts of memory. If the
    device has a torch module, derive from `TorchAccelerator` instead.

    Where a member takes a device, pass an index, a name such as `"cuda:1"` or a
    `torch.device`, as the first device argument or with the keyword `device_index`, as
    in DeepSpeed, or `device`, as in torch; `None` means the current device. Members
    return an index as an `int`, and memory as an `int` of bytes.

    An override in a subclass that has DeepSpeed's parameters only takes torch's
    keywords too.

    Constructing an accelerator imports torch, initialises no device and changes nothing
    in the process. A copy is the same object; a pickle contains only the backend's
    name.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        name_members_in_errors(cls)
        add_torch_keywords(cls, Accelerator)

    def capabilities(self) -> Capabilities:
        """Return every yes-or-no property of this accelerator; may initialise the
        device.

        A property that the vendor does not report is False.
        """
        values = {}
        for field in fields(Capabilities):
            value = getattr(self, field.name)
            values[field.name] = value
            if callable(value):
                values[field.name] = bool(self._if_supported(value))
        return Capabilities(**values)


for _section in Accelerator.__mro__[:-1]:
    name_members_in_errors(_section)


def adapted(foreign: object, backend: Backend | None = None) -> Accelerator | None:
    """Return `foreign` as an accelerator, made by the first adapter that supports it;
    `None` if there is no such adapter.

    Errors of the adapter are raised unchanged.
    """
    for entry_point in permitted_entry_points(ADAPTERS):
        accelerator: Accelerator | None = entry_point.load().adapt(foreign, backend)
        if accelerator is not None:
            return accelerator
    return None


@contextmanager
def prepared() -> Iterator[None]:
    """Enter the context of every adapter; a plugin's class, and its framework, can be
    imported in it.
    """
    with ExitStack() as stack:
        for entry_point in permitted_entry_points(ADAPTERS):
            stack.enter_context(entry_point.load().prepared())
        yield
