"""Load the simulated device into this process, and control the device in tests.

The vendors' simulated packages import this module. Environment variables configure the device:

- `ACCEL_SIMULATE`: the device and the number of devices;
- `ACCEL_SIMULATE_MEMORY_MB`: the memory of each device;
- `ACCEL_SIMULATE_RACE=1`: detect missing waits between streams (cpp/races.h);
- `ACCEL_SIMULATE_RANDOM=host`: draw random numbers from the CPU's generator, so that a run with dropout can
  be compared with one on the CPU.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_core import BackendConflictError, SettingError, torch_build
from accel_simulated import faults
from accel_simulated.building import ready, runtime_libraries
from accel_simulated.core_patches import VERSION
from accel_simulated.declared import known_vendors
from accel_simulated.errors import BuildError
from accel_simulated.prebuilt import LIBRARY
from accel_simulated.request import MAX_DEVICES, VARIABLE, Request, current_request
from accel_simulated.vendors import Vendor

if TYPE_CHECKING:
    import torch

__all__ = [
    "check", "generators", "held", "library", "load", "memories", "memory", "name", "no_device_message",
    "prepare", "present_count", "set_memory_limit", "sleep", "start",
]  # fmt: skip

vendor: Vendor
#: The loaded library that contains the device.
library: Any
#: The memory size of the first device, in bytes.
memory: int
#: The memory size of each device, in bytes, by the device's index.
memories: tuple[int, ...]


#: The request in `ACCEL_SIMULATE` and the path of its library, once `prepare` has run.
_prepared: tuple[Request, Path] | None = None


def prepare(request: Request) -> None:
    """Build the library; for a device type that torch has a module for, also make torch load the device.

    Call `prepare` before torch is imported. Raises `BackendConflictError` in the same cases as `check`,
    `SettingError` for an invalid variable, and the errors of `building.build`.
    """
    global _prepared
    faults.requested_faults()  # raises for an invalid value
    _read_memories()
    _check_race_variable()
    check(request)
    requested = request.vendor
    _prepared = request, ready(requested.kind)
    if requested.package == "torch" or requested.alias_of:
        from accel_simulated import builtin

        builtin.install(requested.alias_of or requested.name)


def check(request: Request) -> None:
    """Raise `BackendConflictError` if torch has the real runtime, or the vendor's package is installed."""
    real_runtime = _runtime_of_torch(request.vendor.kind)
    if real_runtime:
        raise BackendConflictError(
            f"{VARIABLE}={str(request)!r}: the installed torch is built for {real_runtime}, whose runtime "
            "conflicts with a simulated one. Simulate acme, or install the CPU build: accel setup cpu"
        )
    package = request.vendor.package
    if package == "torch":
        return
    folder = _folder_of_real_package(package, request.vendor.runtime)
    if folder:
        raise BackendConflictError(
            f"{VARIABLE}={str(request)!r}: the vendor's real {package} is installed in {folder}, and a "
            "process can import only one package of that name. Simulate in an environment without it: "
            "python -m venv"
        )


def load(name: str) -> None:
    """Load the library of the device `name`.

    For a device type that torch has a module for, call `load` before torch is imported. Raises
    `SettingError` if `ACCEL_SIMULATE` was not set when torch was imported, or does not name this device.
    Raises `BuildError` if the library was built for a different system.
    """
    global vendor, library, memory, memories
    names: tuple[str, ...] = ()
    if _prepared is not None:
        names = (_prepared[0].vendor.name, _prepared[0].vendor.alias_of)
    if _prepared is None or name not in names:
        raise SettingError(
            f"torch was imported without {VARIABLE}={name}, so {name} cannot be simulated in this process "
            f"({VARIABLE} is {os.environ.get(VARIABLE, 'unset')!r}). Set it before Python starts: "
            f"accel simulate {name} -- COMMAND"
        )
    vendor = known_vendors()[name]
    requested_faults = faults.requested_faults()
    memories = _read_memories()
    memory = memories[0]
    atexit.register(_let_autograd_finish)
    library = _load_library(_prepared[1], name)
    _declare_functions()
    if vendor.plain:
        library.sim_be_plain()
    library.sim_draw_from_host(os.environ.get("ACCEL_SIMULATE_RANDOM") == "host")
    set_memory_limit()
    library.sim_init(_count_visible)
    faults.inject(requested_faults)


def _load_library(path: Path, name: str) -> Any:
    """Load torch's libraries, and then the device's library at `path`. Raises `BuildError`."""
    try:
        for needed in runtime_libraries():
            ctypes.CDLL(str(needed))
        # PyDLL holds Python's global lock during calls, because some functions create Python objects.
        return ctypes.PyDLL(str(path))
    except OSError as error:
        raise BuildError(
            f"the simulated device cannot be loaded: {error}. It was built for another system. On a system "
            f"as old as this one, with the same torch, run accel simulate --build {name} --output FOLDER, "
            f"and set {LIBRARY}=FOLDER here."
        ) from error


def _declare_functions() -> None:
    """Declare the argument and result types of the library's functions."""
    library.sim_set_limit.argtypes = [ctypes.c_int, ctypes.c_size_t]
    library.sim_lock_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.sim_unlock_pages.argtypes = [ctypes.c_void_p]
    library.sim_set_fraction.argtypes = [ctypes.c_int, ctypes.c_double]
    library.sim_sleep.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
    library.sim_hold.argtypes = [ctypes.c_int, ctypes.c_long]
    library.sim_hold.restype = ctypes.c_long
    library.sim_release.argtypes = [ctypes.c_long]
    library.sim_default_generator.restype = ctypes.py_object
    library.sim_new_pool.restype = library.sim_fallbacks.restype = ctypes.c_long
    library.sim_request.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long]


def present_count() -> int:
    """Return the number of devices, including those that a visible-devices variable hides."""
    if _prepared is None or "driver" in faults.requested_faults():
        return 0
    return _prepared[0].devices


# The runtime reads a visible-devices variable when it first counts its devices, not at `import torch`.
# Sources: for CUDA and Level Zero, torch's comments in `device_count` of torch.cuda and torch.xpu 2.13
# (pytorch#122815, intel/torch-xpu-ops#2089); for Gaudi, a process acquires its module at first use
# (docs.habana.ai, Gaudi-to-process assignment). No source was found for other vendors, whose runtimes are
# assumed to behave alike.
_count_visible = ctypes.CFUNCTYPE(ctypes.c_int)(
    lambda: _visible_count(vendor, present_count())
)


def start(name: str) -> None:
    """Load the device `name`; if torch has no device type called `name`, rename PrivateUse1 to `name`.

    Raises `BackendConflictError` if another package has renamed PrivateUse1. Also raises the errors of
    `load`.
    """
    import torch

    requested = known_vendors()[name]
    if requested.kind == "PrivateUse1":
        registered = torch._C._get_privateuse1_backend_name()
        if registered != "privateuseone":
            raise BackendConflictError(
                f"{VARIABLE}={str(current_request())!r}: another package has registered its device "
                f"({registered}) with torch, which supports one such device in a process. Uninstall that "
                f"package, keep torch from loading it (TORCH_DEVICE_BACKEND_AUTOLOAD=0, and import "
                f"{requested.package}), or simulate cuda, which has a device type of its own."
            )
    load(name)
    if vendor.kind == "PrivateUse1":
        torch.utils.backend_registration.rename_privateuse1_backend(name)
    library.sim_named()


def __getattr__(attribute: str) -> int:
    """Compute the attribute `count`, the number of visible devices, which `faults` may change."""
    if attribute != "count":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    return int(library.sim_device_count())


def no_device_message() -> str:
    """Return the vendors' message for the error that the runtime raises if there is no device."""
    if "driver" in faults.requested_faults():
        return f"The {name()} driver on your system is too old (requested by {faults.VARIABLE})"
    return f"No {name()} devices are available"


def name() -> str:
    """Return the device's name, such as `"Simulated ACME"`."""
    return f"Simulated {vendor.name.upper()}"


def generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of each device."""
    return tuple(
        library.sim_default_generator(index)
        for index in range(library.sim_device_count())
    )


def sleep(milliseconds: int, stream: torch.Stream | None = None) -> None:
    """Keep a stream busy for some milliseconds, to delay the stream's later work in tests.

    `stream`: by default, the current one.
    """
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    library.sim_sleep(stream.device_index, stream.stream_id, milliseconds)


@contextlib.contextmanager
def held(stream: torch.Stream | None = None) -> Iterator[None]:
    """Stop a stream inside the `with` block, so that a test can rely on queued work not running.

    `stream`: by default, the current one.
    """
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    hold = library.sim_hold(stream.device_index, stream.stream_id)
    try:
        yield
    finally:
        library.sim_release(hold)


def set_memory_limit(size: int | None = None) -> None:
    """Set the memory size of each device, in bytes, for a test; `None` restores the initial sizes."""
    for index, initial_size in enumerate(memories):
        library.sim_set_limit(index, initial_size if size is None else size)


def _let_autograd_finish() -> None:
    """Wait at Python's exit until the device's autograd thread has released its last references.

    The thread releases references after `backward` has returned. If Python has ended by then, the thread
    aborts the process, which happens in scripts that end right after `backward`.
    """
    time.sleep(0.1)


def _runtime_of_torch(kind: str) -> str:
    """Return the runtime of the installed torch build, such as "CUDA 12.8"; empty for a CPU build."""
    if kind not in ("CUDA", "XPU"):
        return ""
    version = getattr(torch_build(), kind.lower(), None)
    if not version or version == VERSION:
        return ""
    return f"{kind} {version}"


def _folder_of_real_package(package: str, simulated: Path) -> str:
    """Return the entry of `sys.path` with the vendor's real package; empty if it is not installed.

    `simulated` is the entry with the simulated package, which is skipped.
    """
    for entry in map(Path, sys.path):
        # A folder that cannot be read is skipped, as it is by Python's import system.
        with contextlib.suppress(OSError):
            has_package = entry.joinpath(*package.split(".")).is_dir()
            if has_package and entry.resolve() != simulated:
                return str(entry)
    return ""


def _read_memories() -> tuple[int, ...]:
    """Return the memory size of each of `MAX_DEVICES` devices, in bytes, from `ACCEL_SIMULATE_MEMORY_MB`.

    The last size in the variable is repeated. Raises `SettingError` for an invalid value.
    """
    text = os.environ.get("ACCEL_SIMULATE_MEMORY_MB", "8192")
    parts = [part.strip() for part in text.split(",")]
    if not all(_is_memory_size(part) for part in parts):
        raise SettingError(
            f"ACCEL_SIMULATE_MEMORY_MB={text!r}: expected megabytes per device, from 1 to {1 << 20}, e.g. "
            "1024, or 1024,64 for devices of different sizes"
        )
    sizes = [int(part) << 20 for part in parts][:MAX_DEVICES]
    return (*sizes, *sizes[-1:] * (MAX_DEVICES - len(sizes)))


def _is_memory_size(text: str) -> bool:
    """Return whether the text is a number of megabytes from 1 to 2**20."""
    if not (text.isascii() and text.isdecimal()):
        return False
    return 1 <= int(text[:9]) <= 1 << 20


def _check_race_variable() -> None:
    """Raise `SettingError` if `ACCEL_SIMULATE_RACE`, which the library reads later, is invalid."""
    value = os.environ.get("ACCEL_SIMULATE_RACE", "0")
    if value not in ("", "0", "1"):
        raise SettingError(
            f"ACCEL_SIMULATE_RACE={value!r}: expected 1, to detect missing waits, or 0"
        )


def _visible_count(vendor: Vendor, present: int) -> int:
    """Return how many of the `present` devices the vendor's visible-devices variable leaves visible."""
    for variable in vendor.visible:
        value = os.environ.get(variable)
        if value is None:
            continue
        if vendor.ascending:
            return _ascending_count(value, present)
        if vendor.ranges:
            value = _with_ranges_listed(value)
        ids = [part.strip() for part in value.split(",")]
        return _existing_count(ids, present, stop_at_invalid=vendor.kind == "CUDA")
    return present


def _with_ranges_listed(value: str) -> str:
    """Return the value with each range expanded, such as `"0,1,2"` for `"0-2"`."""
    entries: list[str] = []
    for entry in value.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,3})-([0-9]{1,3})\s*", entry)
        if ends is None:
            entries.append(entry)
        else:
            entries += map(str, range(int(ends[1]), int(ends[2]) + 1))
    return ",".join(entries)


def _existing_count(ids: Sequence[str], present: int, *, stop_at_invalid: bool) -> int:
    """Return the number of distinct valid ids; `stop_at_invalid` ignores the ids after an invalid id."""
    existing: set[int] = set()
    for text in ids:
        if text.isdigit() and int(text) < present:
            existing.add(int(text))
        elif stop_at_invalid:
            break
    return len(existing)


def _ascending_count(value: str, present: int) -> int:
    """Return the number of devices that CANN shows for this value of its variable (torch_npu 2.13.0)."""
    ids: list[int] = []
    for text in re.match(r"[0-9,]*", value)[0].split(","):  # type: ignore[index]
        if not text or int(text) >= present:
            break
        if ids and int(text) <= ids[-1]:
            return 0
        ids.append(int(text))
    return len(ids)
