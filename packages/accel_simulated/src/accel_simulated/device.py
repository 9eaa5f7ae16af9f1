"""The simulated device in this process: loading it, giving it a name, and what only a test may do to it.

Imported by the vendors' simulated packages. The environment says how many devices there are
(`ACCEL_SIMULATE`), how much memory each has, `ACCEL_SIMULATE_MEMORY_MB`, with
`ACCEL_SIMULATE_RACE=1` that missing waits are looked for (cpp/races.h), and with
`ACCEL_SIMULATE_RANDOM=host` that kernels draw random numbers from the host's generator, so that a run with
dropout can be compared with one on CPU.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_core import BackendConflictError, SettingError, torch_build
from accel_simulated import faults
from accel_simulated.asked import MOST, VARIABLE, Asked, asked
from accel_simulated.building import ready, runtime
from accel_simulated.declared import known
from accel_simulated.errors import BuildError
from accel_simulated.prebuilt import LIBRARY
from accel_simulated.seen import VERSION
from accel_simulated.vendors import Vendor

if TYPE_CHECKING:
    import torch

__all__ = [
    "check", "generators", "held", "library", "load", "memories", "memory", "name", "prepare", "present",
    "set_memory_limit", "sleep", "start", "why_none",
]  # fmt: skip

vendor: Vendor
library: Any
#: Bytes of memory of the first device.
memory: int
#: The same of each device by its number.
memories: tuple[int, ...]


#: What `ACCEL_SIMULATE` asks for, and its library, once torch is about to be imported.
_prepared: tuple[Asked, Path] | None = None


def prepare(found: Asked) -> None:
    """Build the library, and load the device if torch has a module of its own for it.

    Call it before torch is imported. Raises `BackendConflictError` as `check` does, `SettingError` for
    unknown faults and invalid memory sizes, and what `building.build` raises.
    """
    global _prepared
    faults.asked()
    _memories()
    _check_race()
    check(found)
    _prepared = found, ready(found.vendor.kind)
    if found.vendor.package == "torch" or found.vendor.plays:
        from accel_simulated import builtin

        builtin.install(found.vendor.plays or found.vendor.name)


def check(found: Asked) -> None:
    """Raise `BackendConflictError` if torch has the real runtime, or the vendor's package is installed."""
    own = _built_for(found.vendor.kind)
    if own:
        raise BackendConflictError(
            f"{VARIABLE}={str(found)!r}: the torch that is installed is built for {own}, whose runtime is in "
            "the way of a simulated one. Simulate acme, or install the CPU build: accel setup cpu"
        )
    package = found.vendor.package
    real = "" if package == "torch" else _real(package, found.vendor.runtime)
    if real:
        raise BackendConflictError(
            f"{VARIABLE}={str(found)!r}: the vendor's own {package} is installed as well, in {real}, and a "
            "process has room for one of that name. Simulate in an environment without it: python -m venv"
        )


def load(name: str) -> None:
    """Load the device's library; for torch's built-in types, before torch is imported.

    Raises `SettingError` if `ACCEL_SIMULATE` was not set when torch was imported, or names another device.
    """
    global vendor, library, memory, memories
    if _prepared is None or name not in (
        _prepared[0].vendor.name,
        _prepared[0].vendor.plays,
    ):
        raise SettingError(
            f"a simulated {name} was asked for when torch was imported already, without {VARIABLE}={name} "
            f"({VARIABLE} is {os.environ.get(VARIABLE, 'unset')!r}). Set it before Python starts: "
            f"accel simulate {name} -- COMMAND"
        )
    path = _prepared[1]
    vendor = known()[name]
    injected = faults.asked()
    memories = _memories()
    memory = memories[0]
    atexit.register(_let_autograd_finish)
    # PyDLL: entry points make Python objects, so they must run under Python's lock.
    try:
        for needed in runtime():
            ctypes.CDLL(str(needed))
        library = ctypes.PyDLL(str(path))
    except OSError as error:
        raise BuildError(
            f"the simulated device cannot be loaded: {error}. It was built for another system: on one as old "
            f"as this, with this torch, run accel simulate --build {name} --output FOLDER, and set "
            f"{LIBRARY}=FOLDER."
        ) from error
    if vendor.plain:
        library.sim_be_plain()
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
    library.sim_draw_from_host(os.environ.get("ACCEL_SIMULATE_RANDOM") == "host")
    library.sim_request.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long]
    set_memory_limit()
    library.sim_init(_count)
    faults.begin(injected)


def present() -> int:
    """Return how many devices there are, whatever the vendor's variable hides."""
    return (
        0 if _prepared is None or "driver" in faults.asked() else _prepared[0].devices
    )


# A visible-devices variable is read when the runtime is first asked for its devices, not at `import torch`.
# Sources: CUDA and Level Zero: torch's comments in `device_count` of torch.cuda and torch.xpu 2.13
# (pytorch#122815, intel/torch-xpu-ops#2089). Gaudi: a process acquires its module at first use
# (docs.habana.ai, Gaudi-to-process assignment). Of the others we found none, and assume the same.
_count = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: _visible(vendor, present()))


def start(name: str) -> None:
    """Load the device; if torch has no device type of that name, rename PrivateUse1 to it."""
    import torch

    if known()[name].kind == "PrivateUse1":
        taken = torch._C._get_privateuse1_backend_name()
        if taken != "privateuseone":
            raise BackendConflictError(
                f"{VARIABLE}={str(asked())!r}: another package has registered its device with torch "
                f"({taken}), and a process has room for one. Uninstall it here, keep torch from loading it "
                f"(TORCH_DEVICE_BACKEND_AUTOLOAD=0, and import {known()[name].package}), or simulate cuda, "
                "which needs no such room."
            )
    load(name)
    if vendor.kind == "PrivateUse1":
        torch.utils.backend_registration.rename_privateuse1_backend(name)
    library.sim_named()


def __getattr__(attribute: str) -> int:
    """`count`: how many devices this process sees, which may change (`faults`)."""
    if attribute != "count":
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    return int(library.sim_device_count())


def why_none() -> str:
    """Return why the runtime does not start without a device, worded like the vendors' errors."""
    if "driver" in faults.asked():
        return f"The {name()} driver on your system is too old (requested by {faults.VARIABLE})"
    return f"No {name()} devices are available"


def name() -> str:
    """Return the device's name for people, which says that it is simulated."""
    return f"Simulated {vendor.name.upper()}"


def generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of each device."""
    return tuple(
        library.sim_default_generator(index)
        for index in range(library.sim_device_count())
    )


def sleep(milliseconds: int, stream: torch.Stream | None = None) -> None:
    """Keep a stream busy for some milliseconds, so that its work is late. For tests."""
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    library.sim_sleep(stream.device_index, stream.stream_id, milliseconds)


@contextlib.contextmanager
def held(stream: torch.Stream | None = None) -> Iterator[None]:
    """Stop a stream inside the `with` block, so that queued work is certainly late. For tests."""
    import torch

    stream = torch.accelerator.current_stream() if stream is None else stream
    hold = library.sim_hold(stream.device_index, stream.stream_id)
    try:
        yield
    finally:
        library.sim_release(hold)


def set_memory_limit(size: int | None = None) -> None:
    """Set the bytes of memory of each device; `None` restores the initial size. For tests."""
    for index, own in enumerate(memories):
        library.sim_set_limit(index, own if size is None else size)


def _let_autograd_finish() -> None:
    # A device has an autograd thread, which drops its last references after `backward` has returned. If
    # Python is gone by then it aborts the process: torch's own race, lost by scripts that end right there.
    time.sleep(0.1)


def _built_for(kind: str) -> str:
    """For which runtime of that type the installed torch is built, such as "CUDA 12.8"; empty for none."""
    if kind not in ("CUDA", "XPU"):
        return ""
    version = getattr(torch_build(), kind.lower(), None)
    return f"{kind} {version}" if version and version != VERSION else ""


def _real(package: str, simulated: Path) -> str:
    """The folder of `sys.path` that has the package, other than the simulated one; empty for none."""
    for entry in map(Path, sys.path):
        with contextlib.suppress(
            OSError
        ):  # a folder that may not be read, which Python passes over too
            if (
                entry.joinpath(*package.split(".")).is_dir()
                and entry.resolve() != simulated
            ):
                return str(entry)
    return ""


def _memories() -> tuple[int, ...]:
    """Bytes of each device, of as many as there can be; the last in the variable is that of all others."""
    text = os.environ.get("ACCEL_SIMULATE_MEMORY_MB", "8192")
    parts = [part.strip() for part in text.split(",")]
    if not all(
        part.isascii() and part.isdecimal() and 1 <= int(part[:9]) <= 1 << 20
        for part in parts
    ):
        raise SettingError(
            f"ACCEL_SIMULATE_MEMORY_MB={text!r}: expected the megabytes of each device, from 1 to {1 << 20}, "
            "such as 8192 or, of unlike devices, 8192,64"
        )
    given = [int(part) << 20 for part in parts][:MOST]
    return (*given, *given[-1:] * (MOST - len(given)))


def _check_race() -> None:
    """The device's library reads the variable itself, as it is loaded."""
    given = os.environ.get("ACCEL_SIMULATE_RACE", "0")
    if given not in ("", "0", "1"):
        raise SettingError(
            f"ACCEL_SIMULATE_RACE={given!r}: expected 1, to look for missing waits, or 0"
        )


def _visible(vendor: Vendor, present: int) -> int:
    """How many of the devices that are present the first visible-devices variable leaves."""
    for variable in vendor.visible:
        if (value := os.environ.get(variable)) is not None:
            if vendor.ascending:
                return _ascending(value, present)
            if vendor.ranges:
                value = _listed(value)
            ids = [part.strip() for part in value.split(",")]
            exist = [part.isdigit() and int(part) < present for part in ids]
            if vendor.kind == "CUDA" and not all(
                exist
            ):  # what follows an invalid one is hidden too
                ids = ids[: exist.index(False)]
            return len(
                {int(part) for part, here in zip(ids, exist, strict=False) if here}
            )
    return present


def _listed(value: str) -> str:
    """Return the value with each range written out: `"0,1,2"` for `"0-2"`."""
    entries: list[str] = []
    for entry in value.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,3})-([0-9]{1,3})\s*", entry)
        if ends is None:
            entries.append(entry)
        else:
            entries += map(str, range(int(ends[1]), int(ends[2]) + 1))
    return ",".join(entries)


def _ascending(value: str, present: int) -> int:
    """How many devices CANN makes of its variable: torch_npu 2.13.0, its module npu."""
    found: list[int] = []
    for part in re.match(r"[0-9,]*", value)[0].split(","):  # type: ignore[index]
        if not part or int(part) >= present:
            break
        if found and int(part) <= found[-1]:
            return 0
        found.append(int(part))
    return len(found)
