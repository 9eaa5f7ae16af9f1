"""Choose an environment of a folder by this machine's hardware, and start its Python.

`accel setup --into FOLDER` copies this module to `FOLDER/lib/accel_choice.py`. Each program in `FOLDER/bin`
runs this module first, so it imports only modules that Python itself imports at start: the hardware checks of
accel-core take 60 ms to import, and `re` and `json` take 7 ms. The files that it reads consist of blocks of
lines `key = value`, as in `pyvenv.cfg`. The items of a list are separated by spaces.
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

#: The name of an environment's file that describes the environment. It is written last, so an
#: environment with this file is complete.
MARK = "environment.cfg"
#: The path in the folder of the table of known accelerators, best first.
HARDWARE = "lib/hardware.cfg"
CPU = "cpu"
_BUS = "/sys/bus/pci/devices"
_DRIVER = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
#: The end of a pattern for device nodes whose names end in a number.
_NUMBER = "[0-9]*"

Record = Mapping[str, str]


class Device:
    """A kind of accelerator on this machine."""

    def __init__(self, row: Record, evidence: str, ids: Sequence[int]) -> None:
        #: The accelerator's block in the file `HARDWARE`.
        self.row = row
        #: A device node or a PCI function, such as `"PCI 10de:2330 at 0000:17:00.0"`.
        self.evidence = evidence
        #: The PCI device ids of the accelerators of this kind.
        self.ids = ids


class Choice:
    """The chosen environment for a machine."""

    def __init__(self, environment: Record, reason: str, warning: str = "") -> None:
        #: The content of the environment's file `MARK`, and the environment's `name` and `path`.
        self.environment = environment
        #: The reason for the choice.
        self.reason = reason
        #: The reason why the machine's hardware is not used, and the next step; otherwise empty.
        self.warning = warning


# --- The folder -------------------------------------------------------------------------


def environments(folder: str) -> list[Record]:
    """Return the records of the folder's complete environments, newest torch first.

    A record is the content of the environment's file `MARK`, and its `name` and `path`.
    """
    found = []
    for name in _names(f"{folder}/environments"):
        path = f"{folder}/environments/{name}"
        for mark in _blocks(f"{path}/{MARK}"):
            found.append({**mark, "name": name, "path": path})
    return sorted(found, key=_newness, reverse=True)


def _newness(record: Record) -> tuple[list[int], list[int]]:
    """Return a key by which records sort from the oldest to the newest torch."""
    release, _, build = record["torch"].partition("+")
    return _numbers(release), _numbers(build)


def _numbers(version: str) -> list[int]:
    """Return the numbers in a version, such as `[550, 54, 15]` for `"550.54.15"`."""
    separated = "".join(c if c.isdecimal() else " " for c in version)
    return [int(number) for number in separated.split()]


def _blocks(path: str) -> Iterator[dict[str, str]]:
    """Yield the blocks of a file as dictionaries; none if the file cannot be read."""
    for block in _text(path).split("\n\n"):
        lines = [line.partition("=") for line in block.splitlines()]
        if lines:
            yield {key.strip(): value.strip() for key, _, value in lines}


def _text(path: str) -> str:
    """Return the text of a file, or an empty string if the file cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    """Return the sorted names in a folder; none if the folder cannot be read."""
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
        # Hygon's driver has AMD's device node too, so the node alone does not prove an AMD GPU.
        found = [d for d in found if d.row["label"] != "AMD GPU" or d.ids]
    return found


def _device(
    row: Record, functions: Sequence[tuple[str, str, str, str]], root: str
) -> Device | None:
    """Return the accelerator of one row of `HARDWARE`, or `None` if the machine does not have it."""
    evidence, ids = [], []
    for pattern in row["nodes"].split():
        evidence += _nodes(pattern, root)
    for address, vendor, device, code in functions:
        if _matches(row, address, vendor, device, code):
            evidence.append(f"PCI {vendor}:{device} at {address}")
            ids.append(int(device, 16))
    return Device(row, evidence[0], ids) if evidence else None


def _nodes(pattern: str, root: str) -> list[str]:
    """Return the device nodes that match a pattern such as `/dev/nvidia[0-9]*`."""
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
    """Yield the address, vendor id, device id and class code of each PCI function."""
    for address in _names(root + _BUS):
        alias = _text(f"{root}{_BUS}/{address}/modalias").lower()
        # The format is pci:v0000VVVVd0000DDDDsv........sd........bcCCscCCiCC, as in
        # scripts/mod/file2alias.c of Linux.
        if alias.startswith("pci:v0000") and len(alias) == 53:
            code = alias[44:46] + alias[48:50] + alias[51:53]
            yield address, alias[9:13], alias[18:22], code


def _matches(row: Record, address: str, vendor: str, device: str, code: str) -> bool:
    """Return whether a PCI function is an accelerator of a row of `HARDWARE`."""
    excluded = row["not"].split()
    if device in excluded or any(address.startswith(start) for start in excluded):
        return False
    if not address.startswith(row["at"]):
        return False
    for pattern in row["pci"].split():
        ids, _, code_start = pattern.partition("/")
        if f"{vendor}:{device}".startswith(ids) and code.startswith(code_start):
            return True
    return False


def _driver(root: str) -> str:
    """Return the version of NVIDIA's driver, such as `"550.54.15"`; empty if no file contains it."""
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
    """Return the architectures of the machine's AMD GPUs, such as `gfx90a`.

    The kernel's files contain an architecture as a number, such as 90010 for `gfx90a`.
    """
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
    """Choose the environment of `folder` for the machine whose files are below `root`.

    If `DS_ACCELERATOR` names a backend with an environment, this environment is chosen. Otherwise it is
    the environment for the best accelerator of the machine whose needs the machine meets. Without an
    accelerator, it is the environment for the CPU.

    Raises `LookupError` with the next step if no environment can be chosen.
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
    if names[0]:  # A pinned backend is chosen even without a device.
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
    """Return the choice for the first device of a backend that an environment fits, if any.

    An empty `backend` stands for all backends.
    """
    for device in present:
        if backend in ("", device.row["backend"]):
            record = _fitting(every, device, root, lacks)
            if record:
                reason = f"detected {device.row['label']} ({device.evidence})"
                return Choice(record, reason)
    return None


def _fallback(
    folder: str, every: Sequence[Record], present: Sequence[Device], because: str
) -> Choice:
    """Return the environment for the CPU, with a warning if the machine has an unused accelerator."""
    cpu = _of_backend(folder, every, CPU)
    for device in present:
        if device.row["integrated"] == "no":
            label, evidence = device.row["label"], device.evidence
            why = f"no environment fits the {label} of this machine ({evidence})"
            step = _next_step(folder, device.row["setup"])
            return Choice(cpu, why, f"{why}, so the CPU is used. {because}{step}")
    return Choice(cpu, "this machine has no accelerator")


def _pinned_names(folder: str, pin: str) -> list[str]:
    """Return the known backends that a pin lists; `[""]` if the pin does not list a known backend."""
    known = [row["backend"] for row in _blocks(f"{folder}/{HARDWARE}")]
    names = [name.partition("@")[0].strip() for name in pin.split(",")]
    return [name for name in names if name in (CPU, *known)] or [""]


def _fitting(
    every: Sequence[Record], device: Device, root: str, lacks: list[str]
) -> Record | None:
    """Return the newest environment that fits the device, or `None`.

    The unmet needs of newer environments for the device are added to `lacks`.
    """
    for record in every:
        if device.row["label"] in record["serves"].split(", "):
            lacking = unmet(record, device, root)
            if not lacking:
                return record
            lacks.append(f"{record['name']} {lacking}")
    return None


def unmet(record: Record, device: Device, root: str = "") -> str:
    """Return the first need of an environment's build that the machine does not meet, as a clause.

    The string is empty if the machine meets all needs.
    """
    return (
        _unmet_driver(record["oldest_driver"], root)
        or _unmet_architecture(record["gfx"].split(), root)
        or _unmet_device(record["no_code_for"].split(), device.ids)
    )


def _unmet_driver(oldest: str, root: str) -> str:
    """Return a clause if NVIDIA's driver is missing or older than `oldest`, otherwise an empty string.

    `oldest` is empty for a build that does not need NVIDIA's driver.
    """
    if not oldest:
        return ""
    driver = _driver(root)
    if driver:
        if _numbers(driver) >= _numbers(oldest):
            return ""
        return f"needs NVIDIA's driver {oldest} or newer, but this machine has {driver}"
    if "microsoft" in _text(f"{root}/proc/version").lower():
        return ""  # No file of WSL 2 contains the driver's version.
    return "needs NVIDIA's driver, which is not loaded"


def _unmet_architecture(supported: Sequence[str], root: str) -> str:
    """Return a clause if the build has no code for the machine's AMD GPUs, otherwise an empty string.

    `supported` is empty for builds that are not for AMD GPUs.
    """
    gfx = _architectures(root) if supported else []
    if not gfx or set(gfx) & set(supported):
        return ""
    return f"has no code for {', '.join(gfx)}"


def _unmet_device(ranges: Sequence[str], ids: Sequence[int]) -> str:
    """Return a clause if the build has no code for any of the devices, otherwise an empty string.

    `ranges` contains ranges of PCI device ids such as `"0000-1dff"`.
    """
    for pci_id in ids:
        if not any(_is_within(pci_id, text) for text in ranges):
            return ""
    return f"has no code for the device {ids[0]:04x}" if ids else ""


def _is_within(pci_id: int, text: str) -> bool:
    first, _, last = text.partition("-")
    return int(first, 16) <= pci_id <= int(last, 16)


def _of_backend(folder: str, every: Sequence[Record], name: str) -> Record:
    """Return the newest environment of a backend; raise `LookupError` if there is none."""
    for record in every:
        if record["backend"] == name:
            return record
    raise LookupError(
        f"{folder} has no complete environment for {name}. {_next_step(folder, name)}"
    )


def _next_step(folder: str, name: str) -> str:
    """Return the command that makes the environment; `name` is empty if the vendor builds torch."""
    if not name:
        return "Next step: accel setup"
    plain = folder.replace("/", "").replace("-", "").replace("_", "").replace(".", "")
    quoted = folder if plain.isalnum() else "'" + folder.replace("'", "'\\''") + "'"
    return f"Next step: accel setup --into {quoted} {name}"


# --- The start --------------------------------------------------------------------------


def main() -> None:
    """Replace this process with a program of the chosen environment.

    `sys.argv[1]` is the path of the program in `FOLDER/bin`, and `sys.argv[2:]` are its arguments.
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
    # at_start.py reads this option, so that child processes are started through the launcher too.
    option = ["-X", f"accel_launcher={folder}/bin/python"]
    script = [] if program.startswith("python") else [f"{record['path']}/bin/{program}"]
    sys.stderr.flush()
    os.execv(python, [python, *option, *script, *arguments])
