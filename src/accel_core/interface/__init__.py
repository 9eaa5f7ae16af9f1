"""`Accelerator`: the interface to every device.

Its members have the names and calling conventions of DeepSpeed's
`DeepSpeedAccelerator`, so that existing callers work. Further members are added. The
private modules of this package each contain a section of the interface. A section
derives from `Base`, or from `Devices` if its members take a device index. `Accelerator`
combines all sections.

An adapter turns accelerators with another framework's interface into an `Accelerator`.
An entry point in group `accel.adapters` names a module with two functions.
`adapt(foreign, backend)` returns an `Accelerator` for an object or a class, or `None`
if it does not support it. `backend` is the declaration of the plugin that named the
class, or `None` for an object from a user. `prepared()` is a context manager. A
plugin's class, whose import may import its framework, is imported within that context.
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
    set_member_names_in_errors,
)
from accel_core.interface.streams import Ranges
from accel_core.settings import permitted_entry_points

#: The group of the entry points that name a module with `adapt` and `prepared`.
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
    """The interface to one device type, its devices, and all operations that differ
    between vendors.

    Every member has a default implementation that uses a few basic members, so plugins
    keep working when accel_core adds a member. If no default can be correct, the member
    raises `UnsupportedError`, which names the backend, the member and the vendor's
    version.

    A subclass for a new kind of device must define `device_count`, `current_device`,
    `_select`, `synchronize`, `default_generator` and the members that report memory. If
    the device has a torch module, derive from `TorchAccelerator` instead.

    A member that takes a device accepts an index, a name such as `"cuda:1"` or a
    `torch.device`. Pass it as the first device argument, or with the keyword
    `device_index`, as in DeepSpeed, or `device`, as in torch. `None` means the current
    device. Members return an index as an `int`, and an amount of memory as an `int` in
    bytes.

    If a subclass overrides a member with DeepSpeed's parameters only, torch's keywords
    are added to the override.

    Constructing an accelerator imports torch, but initializes no device and changes no
    state of the process. A copy is the same object. A pickle contains only the
    backend's name.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        set_member_names_in_errors(cls)
        add_torch_keywords(cls, Accelerator)

    def capabilities(self) -> Capabilities:
        """Return all yes-or-no properties of this accelerator. The call may initialize the device.

        A property that the vendor does not report is False.
        """
        values = {}
        for field in fields(Capabilities):
            member = getattr(self, field.name)
            if callable(member):
                values[field.name] = bool(self._call_if_supported(member))
            else:
                values[field.name] = member  # such as `supports_nvtx_domain`
        return Capabilities(**values)


for _section in Accelerator.__mro__[:-1]:
    set_member_names_in_errors(_section)


def adapted(foreign: object, backend: Backend | None = None) -> Accelerator | None:
    """Return `foreign` as an accelerator, from the first adapter that supports it, or
    `None` if no adapter does.

    Errors from the adapter propagate unchanged.
    """
    for entry_point in permitted_entry_points(ADAPTERS):
        accelerator: Accelerator | None = entry_point.load().adapt(foreign, backend)
        if accelerator is not None:
            return accelerator
    return None


@contextmanager
def prepared() -> Iterator[None]:
    """Enter the context of every adapter, in which a plugin's class and its framework
    can be imported.
    """
    with ExitStack() as stack:
        for entry_point in permitted_entry_points(ADAPTERS):
            stack.enter_context(entry_point.load().prepared())
        yield
