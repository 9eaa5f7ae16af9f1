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
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import BackendConflictError, SettingError, torch_build
from accel_simulated import faults
from accel_simulated.building import build_and_export, runtime_libraries
from accel_simulated.core_patches import SIMULATED_TOOLKIT_VERSION
from accel_simulated.declared import known_vendors
from accel_simulated.errors import BuildError
from accel_simulated.prebuilt import LIBRARY
from accel_simulated.request import MAX_DEVICES, VARIABLE, Request, current_request
from accel_simulated.vendors import Vendor

if TYPE_CHECKING:
    import torch

__all__ = [
    "check_no_real_runtime", "default_generators", "held", "library", "load", "memory", "memory_sizes",
    "name", "no_device_message", "prepare", "present_device_count", "set_memory_limit", "sleep",
    "sleep_cycles", "start",
]  # fmt: skip

vendor: Vendor
#: The loaded library that contains the device.
library: Any
#: The memory size of the first device, in bytes.
memory: int
#: The memory size of each device, in bytes, by the device's index.
memory_sizes: tuple[int, ...]


class _PreparedDevice(NamedTuple):
    """The device that `prepare` has built."""

    request: Request
    library: Path


#: The device that `load` loads, or `None` if `prepare` has not run yet.
_prepared: _PreparedDevice | None = None

_BYTES_PER_MEGABYTE = 1 << 20
#: The maximum value of `ACCEL_SIMULATE_MEMORY_MB`: one tebibyte.
_MAX_MEGABYTES = 1 << 20
#: The simulated clock rate, for functions that wait for a given number of cycles, such as
#: `torch.cuda._sleep`.
_CYCLES_PER_MILLISECOND = 1_000_000


def prepare(request: Request) -> None:
    """Build the library of the requested device, and check the variables that configure the device.

    If torch has its own module for the device type, such as `torch.cuda`, torch is also patched to load the
    device.

    Call this function before torch is imported. It raises `SettingError` if a variable is invalid, and
    `BackendConflictError` in the same cases as `check_no_real_runtime`. It also raises the same errors as
    `building.build`.
    """
    global _prepared
    # Invalid values of the variables are reported before the build, which takes up to a minute.
    faults.requested_faults()
    _read_memory_sizes()
    _check_race_variable()
    check_no_real_runtime(request)
    requested_vendor = request.vendor
    library_file = build_and_export(requested_vendor.kind)
    _prepared = _PreparedDevice(request, library_file)
    if requested_vendor.alias_of:
        type_in_torch = requested_vendor.alias_of
    elif requested_vendor.package == "torch":
        type_in_torch = requested_vendor.name
    else:
        return  # the vendor's package brings the device type into torch
    from accel_simulated import builtin

    builtin.install(type_in_torch)


def check_no_real_runtime(request: Request) -> None:
    """Raise `BackendConflictError` if the vendor's real runtime or package is installed.

    Examples are a torch build for CUDA, and the package torch_npu.
    """
    real_runtime = _find_real_runtime(request.vendor.kind)
    if real_runtime:
        raise BackendConflictError(
            f"{VARIABLE}={str(request)!r}: the installed torch contains the real runtime {real_runtime}, so "
            "this device cannot be simulated. Simulate the fictional device acme, or install torch's CPU "
            "build: accel setup cpu"
        )
    package = request.vendor.package
    if package == "torch":
        return
    folder = _find_real_package(package, request.vendor.runtime)
    if folder:
        raise BackendConflictError(
            f"{VARIABLE}={str(request)!r}: the vendor's real {package} is installed in {folder}, and a "
            "process can import only one package of that name. Simulate in an environment without this "
            "package: python -m venv FOLDER"
        )


def load(name: str) -> None:
    """Load the library of the device named `name`, and register the device with torch's C++ code.

    If torch has its own module for the device type, such as `torch.cuda`, call this function before torch is
    imported.

    Raises `SettingError` if `ACCEL_SIMULATE` was not set when torch was imported, or names a different
    device. Raises `BuildError` if the library was built for a different system.
    """
    global vendor, library, memory, memory_sizes
    if _prepared is None or not _prepared.request.vendor.has_name(name):
        raise SettingError(
            f"torch was imported without {VARIABLE}={name}, so {name} cannot be simulated in this process "
            f"({VARIABLE} is {os.environ.get(VARIABLE, 'unset')!r}). Set {VARIABLE} before Python starts: "
            f"accel simulate {name} -- COMMAND"
        )
    vendor = known_vendors()[name]
    requested_faults = faults.requested_faults()
    memory_sizes = _read_memory_sizes()
    memory = memory_sizes[0]
    atexit.register(_wait_for_autograd_thread)
    library = _load_library(_prepared.library, name)
    _declare_c_types()
    if vendor.plain:
        library.sim_be_plain()  # a device with one queue, no events and no graphs
    draw_from_host = os.environ.get("ACCEL_SIMULATE_RANDOM") == "host"
    library.sim_draw_from_host(draw_from_host)
    set_memory_limit()  # to the initial sizes
    library.sim_init(_count_visible_callback)
    faults.inject(requested_faults)


def _load_library(path: Path, name: str) -> Any:
    """Load the torch libraries and then the device's library at `path`, and return the device's library.

    Raises `BuildError` if a library cannot be loaded.
    """
    try:
        for torch_library in runtime_libraries():
            ctypes.CDLL(str(torch_library))
        # PyDLL holds Python's global lock during calls, because some functions create Python objects.
        return ctypes.PyDLL(str(path))
    except OSError as error:
        raise BuildError(
            f"the simulated device's library cannot be loaded: {error}. The library was built for another "
            "system. Build the library with the same torch on a system that is at least as old as this "
            f"one: accel simulate --build {name} --output FOLDER. Then set {LIBRARY}=FOLDER here."
        ) from error


def _declare_c_types() -> None:
    """Declare the argument and result types of the library's functions."""
    # Without a declaration, ctypes treats arguments and results as the C type int.
    library.sim_set_limit.argtypes = [ctypes.c_int, ctypes.c_size_t]
    library.sim_lock_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.sim_unlock_pages.argtypes = [ctypes.c_void_p]
    library.sim_set_fraction.argtypes = [ctypes.c_int, ctypes.c_double]
    library.sim_sleep.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int]
    library.sim_hold.argtypes = [ctypes.c_int, ctypes.c_long]
    library.sim_hold.restype = ctypes.c_long
    library.sim_release.argtypes = [ctypes.c_long]
    library.sim_default_generator.restype = ctypes.py_object
    library.sim_new_pool.restype = ctypes.c_long
    library.sim_fallbacks.restype = ctypes.c_long
    library.sim_request.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long]


def present_device_count() -> int:
    """Return the number of simulated devices, including any that a visible-devices variable hides."""
    # With the fault "driver", the simulated driver is too old for any device.
    driver_is_too_old = "driver" in faults.requested_faults()
    if _prepared is None or driver_is_too_old:
        return 0
    return _prepared.request.devices


# The runtime reads a visible-devices variable when it first counts its devices, not at `import torch`.
# Sources: for CUDA and Level Zero, torch's comments in `device_count` of torch.cuda and torch.xpu 2.13
# (pytorch#122815, intel/torch-xpu-ops#2089); for Gaudi, a process acquires its module at first use
# (docs.habana.ai, Gaudi-to-process assignment). No source was found for other vendors, whose runtimes are
# assumed to behave alike.
_count_visible_callback = ctypes.CFUNCTYPE(ctypes.c_int)(
    lambda: _count_visible_devices(vendor, present_device_count())
)


def start(name: str) -> None:
    """Load the simulated device named `name`, and make torch recognize it as a device type.

    If torch has no device type of that name, PrivateUse1 is renamed to `name`. Raises `BackendConflictError`
    if another package has already renamed PrivateUse1. Also raises the same errors as `load`.
    """
    import torch

    requested_vendor = known_vendors()[name]
    if requested_vendor.kind == "PrivateUse1":
        registered_name = torch._C._get_privateuse1_backend_name()
        if registered_name != "privateuseone":
            raise BackendConflictError(
                f"{VARIABLE}={str(current_request())!r}: another package has registered its device "
                f"({registered_name}) with torch, which supports only one PrivateUse1 device in a process. "
                "Uninstall that package, or simulate cuda, which has its own device type. To keep the "
                "package, set TORCH_DEVICE_BACKEND_AUTOLOAD=0, so that torch does not load the package, and "
                f"import {requested_vendor.package}."
            )
    load(name)
    if vendor.kind == "PrivateUse1":
        torch.utils.backend_registration.rename_privateuse1_backend(name)
    library.sim_named()  # registers graphs, which needs the device type's new name


def __getattr__(attribute: str) -> int:
    """Return the module attribute `count`, the number of visible devices, which `faults` can change."""
    if attribute != "count":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    return int(library.sim_device_count())


def no_device_message() -> str:
    """Return the error message that the simulated runtime uses if no device is available."""
    if "driver" in faults.requested_faults():
        return f"The {name()} driver on your system is too old (requested by {faults.VARIABLE})"
    return f"No {name()} devices are available"


def name() -> str:
    """Return the simulated device's name, such as `"Simulated ACME"`."""
    return f"Simulated {vendor.name.upper()}"


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default random number generator of each visible device."""
    return tuple(
        library.sim_default_generator(index)
        for index in range(library.sim_device_count())
    )


def sleep(milliseconds: int, stream: torch.Stream | None = None) -> None:
    """Keep a stream busy for some milliseconds, so that work queued afterwards is delayed.

    `stream` defaults to the current stream.
    """
    import torch

    if stream is None:
        stream = torch.accelerator.current_stream()
    library.sim_sleep(stream.device_index, stream.stream_id, milliseconds)


def sleep_cycles(cycles: int) -> None:
    """Keep the current stream busy for a number of clock cycles, but for at least one millisecond."""
    sleep(max(1, cycles // _CYCLES_PER_MILLISECOND))


@contextlib.contextmanager
def held(stream: torch.Stream | None = None) -> Iterator[None]:
    """Hold back the work that is queued on a stream inside the `with` block until the block ends.

    `stream` defaults to the current stream.
    """
    import torch

    if stream is None:
        stream = torch.accelerator.current_stream()
    hold = library.sim_hold(stream.device_index, stream.stream_id)
    try:
        yield
    finally:
        library.sim_release(hold)


def set_memory_limit(size: int | None = None) -> None:
    """Set the memory size of every simulated device to `size` bytes.

    If `size` is `None`, the initial sizes are restored.
    """
    for index, initial_size in enumerate(memory_sizes):
        new_size = initial_size if size is None else size
        library.sim_set_limit(index, new_size)


def _wait_for_autograd_thread() -> None:
    """Wait briefly at exit, so that the device's autograd thread can release its references to tensors.

    The thread releases the references shortly after `backward` has returned. If Python has exited by then,
    the thread aborts the process. This can happen in scripts that end right after `backward`.
    """
    time.sleep(0.1)


def _find_real_runtime(kind: str) -> str:
    """Return the vendor runtime that torch was built with, such as "CUDA 12.8".

    `kind` is the torch device type of the runtime to look for. The result is an empty string if torch was
    built without that runtime.
    """
    if kind not in ("CUDA", "XPU"):
        return ""
    version = getattr(torch_build(), kind.lower(), None)
    if not version or version == SIMULATED_TOOLKIT_VERSION:
        return ""
    return f"{kind} {version}"


def _find_real_package(package: str, simulated_folder: Path) -> str:
    """Return the `sys.path` entry that contains the vendor's real package, or an empty string if none does.

    The entry `simulated_folder` is skipped, because it contains the simulated package.
    """
    package_path = package.replace(".", os.sep)
    for entry in sys.path:
        folder = Path(entry)
        # A folder that cannot be read is skipped, as it is by Python's import system.
        with contextlib.suppress(OSError):
            has_package = (folder / package_path).is_dir()
            if has_package and folder.resolve() != simulated_folder:
                return str(folder)
    return ""


def _read_memory_sizes() -> tuple[int, ...]:
    """Return the memory size of each of `MAX_DEVICES` devices, in bytes, from `ACCEL_SIMULATE_MEMORY_MB`.

    If the variable lists fewer sizes than there are devices, the last size applies to the remaining devices.
    Raises `SettingError` if the value is invalid.
    """
    text = os.environ.get("ACCEL_SIMULATE_MEMORY_MB", "8192")
    megabytes = [part.strip() for part in text.split(",")]
    if not all(_is_memory_size(number) for number in megabytes):
        raise SettingError(
            f"ACCEL_SIMULATE_MEMORY_MB={text!r}: expected megabytes per device, from 1 to {_MAX_MEGABYTES}, "
            "e.g. 1024, or 1024,64 for devices with different amounts of memory"
        )
    sizes = [int(number) * _BYTES_PER_MEGABYTE for number in megabytes]
    while len(sizes) < MAX_DEVICES:
        sizes.append(sizes[-1])  # the last size applies to the remaining devices
    return tuple(sizes[:MAX_DEVICES])


def _is_memory_size(text: str) -> bool:
    """Return whether the text is a whole number from 1 to `_MAX_MEGABYTES`."""
    # int() raises an error for thousands of digits, so the number of significant digits is limited.
    if not re.fullmatch(r"0*[0-9]{1,7}", text):
        return False
    return 1 <= int(text) <= _MAX_MEGABYTES


def _check_race_variable() -> None:
    """Raise `SettingError` if `ACCEL_SIMULATE_RACE`, which the library reads later, is invalid."""
    value = os.environ.get("ACCEL_SIMULATE_RACE", "0")
    if value not in ("", "0", "1"):
        raise SettingError(
            f"ACCEL_SIMULATE_RACE={value!r}: expected 1, to detect missing waits between streams, or 0"
        )


def _count_visible_devices(vendor: Vendor, present_count: int) -> int:
    """Return how many of the simulated devices the vendor's visible-devices variable leaves visible."""
    for variable in vendor.visible:
        value = os.environ.get(variable)
        if value is None:
            continue
        # The first variable that is set decides.
        if vendor.ascending:
            return _count_ascending_ids(value, present_count)
        if vendor.ranges:
            value = _expand_ranges(value)
        ids = [part.strip() for part in value.split(",")]
        is_cuda = vendor.kind == "CUDA"
        return _count_valid_ids(ids, present_count, stop_at_invalid=is_cuda)
    return present_count


def _expand_ranges(value: str) -> str:
    """Expand the ranges in a comma-separated list of device ids: `"0-2,5"` becomes `"0,1,2,5"`."""
    ids: list[str] = []
    for id_or_range in value.split(","):
        # A range such as "0-3".
        match = re.fullmatch(r"\s*([0-9]{1,3})-([0-9]{1,3})\s*", id_or_range)
        if match is None:
            ids.append(id_or_range)
        else:
            first, last = int(match[1]), int(match[2])
            ids += [str(number) for number in range(first, last + 1)]
    return ",".join(ids)


def _count_valid_ids(
    ids: Sequence[str], present_count: int, *, stop_at_invalid: bool
) -> int:
    """Count the distinct ids of existing devices, and with `stop_at_invalid` stop at the first invalid id."""
    valid_ids: set[int] = set()
    for text in ids:
        if text.isdigit() and int(text) < present_count:
            valid_ids.add(int(text))
        elif stop_at_invalid:
            break
    return len(valid_ids)


def _count_ascending_ids(value: str, present_count: int) -> int:
    """Return the number of devices that a value of `ASCEND_RT_VISIBLE_DEVICES` leaves visible.

    CANN ignores the list from the first invalid id on. If an id is not greater than the id before it, every
    device is hidden. This is the behavior with torch_npu 2.13.0.
    """
    # The value is cut off at the first character that is neither a digit nor a comma.
    ids_text = re.split(r"[^0-9,]", value)[0]
    visible_ids: list[int] = []
    for text in ids_text.split(","):
        if not text or int(text) >= present_count:
            break
        device_id = int(text)
        if visible_ids and device_id <= visible_ids[-1]:
            return 0  # the ids do not ascend
        visible_ids.append(device_id)
    return len(visible_ids)
