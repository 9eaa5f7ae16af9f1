"""The simulated device in this process: loading it, giving it a name, and what only a test may do to it.

Imported by the vendors' simulated packages. The environment says how many `SIMULATED_DEVICES` there are,
how much memory each has, `SIMULATED_MEMORY_MB`, and with `SIMULATED_RANDOM=host` that kernels draw random
numbers from the host's generator, so that a run with dropout can be compared with one on CPU.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel_simulated.build import build
from accel_simulated.vendors import DEVICES, Vendor

if TYPE_CHECKING:
    import torch

__all__ = [
    "count", "generators", "held", "library", "load", "memory", "name", "set_memory_limit", "sleep", "start",
]  # fmt: skip

vendor: Vendor
library: Any
#: How many devices this process sees.
count: int
#: Bytes of memory of each device.
memory: int


def load(name: str) -> None:
    """Load the device's library. Torch's built-in types want that before torch is imported."""
    global vendor, library, count, memory
    vendor = DEVICES[name]
    count = _visible(vendor, int(os.environ.get("SIMULATED_DEVICES", vendor.devices)))
    memory = int(os.environ.get("SIMULATED_MEMORY_MB", "256")) << 20
    atexit.register(_let_autograd_finish)
    # PyDLL: entry points make Python objects, so they must run under Python's lock.
    library = ctypes.PyDLL(os.environ.get("SIMULATED_LIBRARY") or str(build(vendor.kind)))
    if vendor.plain:
        library.sim_be_plain()
    library.sim_init.argtypes = [ctypes.c_int, ctypes.c_size_t]
    library.sim_set_limit.argtypes = [ctypes.c_size_t]
    library.sim_set_fraction.argtypes = [ctypes.c_int, ctypes.c_double]
    library.sim_sleep.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
    library.sim_hold.argtypes = [ctypes.c_int, ctypes.c_long]
    library.sim_hold.restype = ctypes.c_long
    library.sim_release.argtypes = [ctypes.c_long]
    library.sim_default_generator.restype = ctypes.py_object
    library.sim_new_pool.restype = library.sim_fallbacks.restype = ctypes.c_long
    library.sim_draw_from_host(os.environ.get("SIMULATED_RANDOM") == "host")
    library.sim_init(count, memory)


def start(name: str) -> None:
    """Load the device and, where torch has no device type of that name, give it the name."""
    import torch

    load(name)
    if vendor.kind == "PrivateUse1":
        torch.utils.rename_privateuse1_backend(name)
    library.sim_named()


def name() -> str:
    """What the device is called to people: it must not pass for a product."""
    return f"Simulated {vendor.name.upper()}"


def generators() -> tuple[torch.Generator, ...]:
    """The default generator of each device."""
    return tuple(library.sim_default_generator(index) for index in range(count))


def sleep(milliseconds: int, stream: torch.Stream | None = None) -> None:
    """Keep a stream busy for a while, so that it takes time. For tests."""
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    library.sim_sleep(stream.device_index, stream.stream_id, milliseconds)


@contextmanager
def held(stream: torch.Stream | None = None) -> Iterator[None]:
    """Stop a stream inside the `with` block: what is queued is late for certain. For tests."""
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    hold = library.sim_hold(stream.device_index, stream.stream_id)
    try:
        yield
    finally:
        library.sim_release(hold)


def set_memory_limit(size: int) -> None:
    """Change how many bytes each device has. For tests."""
    library.sim_set_limit(size)


def _let_autograd_finish() -> None:
    # A device has an autograd thread, which drops its last references after `backward` has returned. If
    # Python is gone by then it aborts the process: torch's own race, lost by scripts that end right there.
    time.sleep(0.1)


def _visible(vendor: Vendor, present: int) -> int:
    """How many of the devices that are present the first visible-devices variable leaves."""
    for variable in vendor.visible:
        if (value := os.environ.get(variable)) is not None:
            ids = [part.strip() for part in value.split(",")]
            return len({int(part) for part in ids if part.isdigit() and int(part) < present})
    return present
