"""Choose one environment of a folder by this machine's hardware, and start its Python.

`accel setup --into FOLDER` copies this module to `FOLDER/lib/accel_choice.py`. Each program in `FOLDER/bin`
runs it before Python starts, so it imports only what Python itself imports: the hardware checks of accel-core
take 60 ms to import, `re` and `json` 7 ms. The files that it reads have blocks of lines `key = value`, as
`pyvenv.cfg`; a value that is a list has its items separated by spaces.
"""

# pathlib takes milliseconds to import:
# ruff: noqa: PTH100, PTH110, PTH119, PTH120, PTH123

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "CPU",
    "HARDWARE",
    "MARK",
    "Choice",
    "Device",
    "choose",
    "devices",
    "environments",
    "main",
    "unmet",
]

#: The file of an environment that is whole: what it is. It is written last.
MARK = "accel-environment.cfg"
#: The accelerators that accel knows, best first.
HARDWARE = "lib/hardware.cfg"
CPU = "cpu"
_BUS = "/sys/bus/pci/devices"
_DRIVER = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
#: A pattern of device nodes ends in it where a number follows.
_NUMBER = "[0-9]*"

Record = Mapping[str, str]


class Device:
    """A kind of accelerator on this machine."""

    def __init__(self, row: Record, evidence: str, ids: Sequence[int]) -> None:
        #: Its block of `HARDWARE`.
        self.row = row
        #: A device node or a PCI function: `"PCI 10de:2330 at 0000:17:00.0"`.
        self.evidence = evidence
        #: The device ids of its PCI functions.
        self.ids = ids


class Choice:
    """The environment for a machine."""

    def __init__(self, environment: Record, reason: str, warning: str = "") -> None:
        #: The environment's mark, with its `name` and `path`.
        self.environment = environment
        self.reason = reason
        #: Why the hardware is not used, with the next step; else empty.
        self.warning = warning


# --- The folder -------------------------------------------------------------------------


def environments(folder: str) -> list[Record]:
    """Return the marks of the whole environments, newest torch first, each with `name` and `path`."""
    found = []
    for name in _names(f"{folder}/environments"):
        path = f"{folder}/environments/{name}"
        for mark in _blocks(f"{path}/{MARK}"):
            found.append({**mark, "name": name, "path": path})
    return sorted(found, key=_newness, reverse=True)


def _newness(record: Record) -> tuple[list[int], list[int]]:
    release, _, build = record["torch"].partition("+")
    return _numbers(release), _numbers(build)


def _numbers(version: str) -> list[int]:
    """Return the numbers in a version: of `"550.54.15"` 550, 54 and 15."""
    separated = "".join(c if c.isdecimal() else " " for c in version)
    return [int(number) for number in separated.split()]


def _blocks(path: str) -> Iterator[dict[str, str]]:
    for block in _text(path).split("\n\n"):
        lines = [line.partition("=") for line in block.splitlines()]
        if lines:
            yield {key.strip(): value.strip() for key, _, value in lines}


def _text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# --- The machine ------------------------------------------------------------------------


def devices(folder: str, root: str = "") -> list[Device]:
    """Return the accelerators of the machine whose files are below `root`, best first."""
    functions = list(_pci_functions(root))
    found = []
    for row in _blocks(f"{folder}/{HARDWARE}"):
        device = _device(row, functions, root)
        if device is not None:
            found.append(device)
    if any(device.row["label"] == "Hygon DCU" for device in found):
        # Hygon's driver has AMD's node too: alone, that node does not show an AMD GPU.
        found = [d for d in found if d.row["label"] != "AMD GPU" or d.ids]
    return found


def _device(
    row: Record, functions: Sequence[tuple[str, str, str, str]], root: str
) -> Device | None:
    """Return the accelerator of one row of `HARDWARE`; `None` if this machine has none."""
    evidence, ids = [], []
    for pattern in row["nodes"].split():
        evidence += _nodes(pattern, root)
    for address, vendor, device, code in functions:
        if _matches(row, address, vendor, device, code):
            evidence.append(f"PCI {vendor}:{device} at {address}")
            ids.append(int(device, 16))
    return Device(row, evidence[0], ids) if evidence else None


def _nodes(pattern: str, root: str) -> list[str]:
    """Return the device nodes of a pattern such as `/dev/nvidia[0-9]*`."""
    start, number, _ = pattern.partition(_NUMBER)
    if not number:
        return [pattern] if os.path.exists(root + pattern) else []
    folder, _, begin = start.rpartition("/")
    ends = {
        name: name.removeprefix(begin)[:1]
        for name in _names(root + folder)
        if name.startswith(begin)
    }
    return [f"{folder}/{name}" for name, end in ends.items() if end.isdecimal()]


def _pci_functions(root: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield address, vendor, device and class of each PCI function."""
    for address in _names(root + _BUS):
        alias = _text(f"{root}{_BUS}/{address}/modalias").lower()
        # pci:v0000VVVVd0000DDDDsv........sd........bcCCscCCiCC: Linux, scripts/mod/file2alias.c
        if alias.startswith("pci:v0000") and len(alias) == 53:
            code = alias[44:46] + alias[48:50] + alias[51:53]
            yield address, alias[9:13], alias[18:22], code


def _matches(row: Record, address: str, vendor: str, device: str, code: str) -> bool:
    others = row["not"].split()
    if device in others or any(address.startswith(other) for other in others):
        return False
    if not address.startswith(row["at"]):
        return False
    for pattern in row["pci"].split():
        ids, _, start = pattern.partition("/")
        if f"{vendor}:{device}".startswith(ids) and code.startswith(start):
            return True
    return False


def _driver(root: str) -> str:
    """Return the version of NVIDIA's driver, `"550.54.15"`; empty where no file has it."""
    for path in _DRIVER:
        for word in _text(root + path).split():
            parts = word.split(".")
            if (
                len(parts) in (2, 3)
                and len(parts[0]) >= 3
                and "".join(parts).isdecimal()
            ):
                return word
    return ""


def _architectures(root: str) -> list[str]:
    """Return AMD's GPU architectures; the kernel writes `gfx90a` as 90010."""
    found = []
    for node in _names(root + _TOPOLOGY):
        for line in _text(f"{root}{_TOPOLOGY}/{node}/properties").splitlines():
            key, _, value = line.partition(" ")
            if key == "gfx_target_version" and int(value):
                number = int(value)
                found.append(
                    f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"
                )
    return found


# --- The choice -------------------------------------------------------------------------


def choose(folder: str, environ: Mapping[str, str], root: str = "") -> Choice:
    """Return the environment of `folder` for the machine whose files are below `root`.

    A pin (`DS_ACCELERATOR`) decides first, then the hardware, best first, and what each build needs. Without
    hardware it is the environment for the CPU. Raises `LookupError` with the next step if no environment can
    be taken.
    """
    every = environments(folder)
    pin = environ.get("DS_ACCELERATOR", "").strip().lower()
    names = _pinned_names(folder, pin)
    present = devices(folder, root)
    lacks: list[str] = []
    for name in names:
        if name == CPU:
            return Choice(_of_backend(folder, every, CPU), f"DS_ACCELERATOR={pin}")
        choice = _choice_for(name, every, present, root, lacks)
        if choice is not None:
            return choice
    because = f"{'; '.join(lacks)}. " if lacks else ""
    if names[0]:  # a pin needs no device
        record = _of_backend(folder, every, names[0])
        return Choice(record, f"DS_ACCELERATOR={pin}", because)
    return _fallback(folder, every, present, because)


def _choice_for(
    backend: str,
    every: Sequence[Record],
    present: Sequence[Device],
    root: str,
    lacks: list[str],
) -> Choice | None:
    """Return the environment for the first device of a backend (empty for any) that one fits."""
    for device in present:
        if backend in ("", device.row["backend"]):
            record = _fitting(every, device, root, lacks)
            if record:
                here = f"{device.row['label']} is here ({device.evidence})"
                return Choice(record, here)
    return None


def _fallback(
    folder: str, every: Sequence[Record], present: Sequence[Device], because: str
) -> Choice:
    """Return the environment for the CPU, with a warning if a device is here that none fits."""
    cpu = _of_backend(folder, every, CPU)
    for device in present:
        if device.row["integrated"] == "no":
            label, evidence = device.row["label"], device.evidence
            why = f"no environment fits the {label} that is here ({evidence})"
            step = _next_step(folder, device.row["setup"])
            return Choice(cpu, why, f"{why}, so the CPU is used. {because}{step}")
    return Choice(cpu, "no accelerator is here")


def _pinned_names(folder: str, pin: str) -> list[str]:
    """Return the backends of a pin that have environments of their own; `""` alone without such a pin."""
    known = [row["backend"] for row in _blocks(f"{folder}/{HARDWARE}")]
    names = [name.partition("@")[0].strip() for name in pin.split(",")]
    return [name for name in names if name in (CPU, *known)] or [""]


def _fitting(
    every: Sequence[Record], device: Device, root: str, lacks: list[str]
) -> Record | None:
    """Return the newest environment that serves the device; add to `lacks` what newer ones lack."""
    for record in every:
        if device.row["label"] in record["serves"].split(", "):
            lacking = unmet(record, device, root)
            if not lacking:
                return record
            lacks.append(f"{record['name']} {lacking}")
    return None


def unmet(record: Record, device: Device, root: str = "") -> str:
    """Return which need of the build this machine does not meet, as a clause; empty if it meets all."""
    return (
        _unmet_driver(record["oldest_driver"], root)
        or _unmet_architecture(record["gfx"].split(), root)
        or _unmet_device(record["no_code_for"].split(), device.ids)
    )


def _unmet_driver(oldest: str, root: str) -> str:
    """Return that NVIDIA's driver is missing or older than `oldest`, which is empty if none is needed."""
    if not oldest:
        return ""
    driver = _driver(root)
    if driver:
        if _numbers(driver) >= _numbers(oldest):
            return ""
        return f"needs NVIDIA's driver {oldest} or newer, but {driver} is here"
    if "microsoft" in _text(f"{root}/proc/version").lower():
        return ""  # no file of WSL 2 has the driver's version
    return "needs NVIDIA's driver, which is not loaded"


def _unmet_architecture(supported: Sequence[str], root: str) -> str:
    """Return that the build has no code for AMD's GPUs here; `supported` is empty for other builds."""
    gfx = _architectures(root) if supported else []
    if not gfx or set(gfx) & set(supported):
        return ""
    return f"has no code for {', '.join(gfx)}"


def _unmet_device(ranges: Sequence[str], ids: Sequence[int]) -> str:
    """Return that the build has no code for any of the devices; a range is `"0000-1dff"`."""
    for pci_id in ids:
        if not any(_is_within(pci_id, text) for text in ranges):
            return ""
    return f"has no code for the device {ids[0]:04x}" if ids else ""


def _is_within(pci_id: int, text: str) -> bool:
    first, _, last = text.partition("-")
    return int(first, 16) <= pci_id <= int(last, 16)


def _of_backend(folder: str, every: Sequence[Record], name: str) -> Record:
    """Return the newest environment of a backend; raises `LookupError` if there is none."""
    for record in every:
        if record["backend"] == name:
            return record
    raise LookupError(
        f"{folder} has no whole environment for {name}. {_next_step(folder, name)}"
    )


def _next_step(folder: str, name: str) -> str:
    if not name:  # the maker builds torch itself
        return "Next step: accel setup"
    plain = folder.replace("/", "").replace("-", "").replace("_", "").replace(".", "")
    quoted = folder if plain.isalnum() else "'" + folder.replace("'", "'\\''") + "'"
    return f"Next step: accel setup --into {quoted} {name}"


# --- The start --------------------------------------------------------------------------


def main() -> None:
    """Replace this process by a program of the chosen environment.

    `sys.argv[1:]` is the path of the program in `FOLDER/bin`, and then its arguments.
    """
    launcher, *arguments = sys.argv[1:]
    launcher = os.path.abspath(launcher)
    program = os.path.basename(launcher)
    folder = os.path.dirname(os.path.dirname(launcher))
    try:
        choice = choose(folder, os.environ)
    except LookupError as error:
        sys.exit(f"Error: {error.args[0]}")
    record = choice.environment
    if choice.warning:
        sys.stderr.write(f"Warning: {choice.warning}\n")
    is_logged = os.environ.get("ACCEL_LOG", "").lower() in ("1", "true", "yes", "on")
    if is_logged or arguments[:1] == ["-v"]:
        what = f"environment {record['name']} of {folder}, torch {record['torch']}"
        sys.stderr.write(f"accel: {what}: {choice.reason}\n")
    python = f"{record['path']}/bin/python"
    # Children start by the launcher too: see at_start.py.
    option = ["-X", f"accel_launcher={folder}/bin/python"]
    script = [] if program.startswith("python") else [f"{record['path']}/bin/{program}"]
    sys.stderr.flush()
    os.execv(python, [python, *option, *script, *arguments])
