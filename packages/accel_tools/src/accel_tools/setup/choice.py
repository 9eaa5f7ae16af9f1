"""Choose an environment from a folder by this machine's hardware, and start its Python.

`accel setup --into FOLDER` copies this module to the folder `lib` in FOLDER, as `accel_choice.py`. Each
program in `FOLDER/bin` runs this module first, so it imports only modules that Python itself imports at
start: the hardware checks of accel-core take 60 ms to import, `re` and `json` 7 ms. The files of a folder
have blocks of lines `key = value`, as in `pyvenv.cfg`. The items of a list are separated by spaces.
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
    "complete_environments",
    "describe_unmet_need",
    "detect_devices",
    "main",
]

#: The name of an environment's file that describes the environment. It is written last, so an
#: environment with this file is complete.
MARK = "environment.cfg"
#: The file in the folder that has a table of the known accelerators, best first.
HARDWARE = "lib/hardware.cfg"
CPU = "cpu"
_BUS = "/sys/bus/pci/devices"
#: The files that contain the NVIDIA driver version.
_DRIVER = ("/sys/module/nvidia/version", "/proc/driver/nvidia/version")
#: The folder with a subfolder for each CPU and each AMD GPU.
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
#: The end of a pattern for device nodes whose names end in a number.
_NUMBER = "[0-9]*"

#: A block of a file.
Record = Mapping[str, str]


class PciFunction:
    """A PCI function, which is one logical device of a PCI device, on this machine."""

    def __init__(
        self, address: str, vendor_id: str, device_id: str, class_code: str
    ) -> None:
        #: The address on the bus, such as `"0000:17:00.0"`.
        self.address = address
        #: The vendor id, such as `"10de"`.
        self.vendor_id = vendor_id
        #: The device id, such as `"2330"`.
        self.device_id = device_id
        #: The class code, such as `"030200"`.
        self.class_code = class_code


class Device:
    """A kind of accelerator that this machine has."""

    def __init__(self, row: Record, evidence: str, pci_ids: Sequence[int]) -> None:
        #: The accelerator's block in the file `HARDWARE`.
        self.row = row
        #: A device node or a PCI function, such as `"PCI 10de:2330 at 0000:17:00.0"`.
        self.evidence = evidence
        #: The PCI device ids of the accelerators of this kind.
        self.pci_ids = pci_ids


class Choice:
    """The environment that is chosen for a machine, and the reason."""

    def __init__(self, environment: Record, reason: str, warning: str = "") -> None:
        #: The content of the environment's file `MARK`, and the environment's `name` and `path`.
        self.environment = environment
        #: The reason for the choice.
        self.reason = reason
        #: The reason why the machine's hardware is not used, and the next step. Otherwise, an empty string.
        self.warning = warning


# --- The folder -------------------------------------------------------------------------


def complete_environments(folder: str) -> list[Record]:
    """Return the records of all complete environments in a folder, newest torch first.

    A record is the content of the environment's file `environment.cfg`, with the environment's `name` and
    `path`.
    """
    records = []
    for name in _list_names(f"{folder}/environments"):
        path = f"{folder}/environments/{name}"
        # The file has one block. An incomplete environment lacks the file.
        for content in _read_blocks(f"{path}/{MARK}"):
            records.append({**content, "name": name, "path": path})
    return sorted(records, key=_torch_version, reverse=True)


def _torch_version(record: Record) -> tuple[list[int], list[int]]:
    """Return the numbers in the release and in the build of an environment's torch, for sorting."""
    release, _, build = record["torch"].partition("+")
    return _version_numbers(release), _version_numbers(build)


def _version_numbers(version: str) -> list[int]:
    """Return the numbers in a version, such as `[550, 54, 15]` for `"550.54.15"`."""
    separated = "".join(c if c.isdecimal() else " " for c in version)
    return [int(number) for number in separated.split()]


def _read_blocks(path: str) -> Iterator[dict[str, str]]:
    """Yield each block of `key = value` lines as a dictionary.

    Yields nothing if the file cannot be read.
    """
    for block in _read_text(path).split("\n\n"):
        values = {}
        for line in block.splitlines():
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip()
        if values:
            yield values


def _read_text(path: str) -> str:
    """Return the text of a file.

    Returns an empty string if the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _list_names(folder: str) -> list[str]:
    """Return the sorted names in a folder.

    Returns an empty list if the folder cannot be read.
    """
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# --- The machine ------------------------------------------------------------------------


def detect_devices(folder: str, root: str = "") -> list[Device]:
    """Return the accelerators of a machine, best first.

    The machine's files are below `root`. The file `lib/hardware.cfg` in `folder` describes the known
    accelerators.
    """
    pci_functions = list(_list_pci_functions(root))
    devices = []
    for row in _read_blocks(f"{folder}/{HARDWARE}"):
        device = _detect_device(row, pci_functions, root)
        if device is not None:
            devices.append(device)
    labels = [device.row["label"] for device in devices]
    if "Hygon DCU" in labels:
        # Hygon's driver has AMD's device node too, so the node alone does not prove an AMD GPU.
        for device in devices:
            if device.row["label"] == "AMD GPU" and not device.pci_ids:
                devices.remove(device)
                break
    return devices


def _detect_device(
    row: Record, pci_functions: Sequence[PciFunction], root: str
) -> Device | None:
    """Return the accelerator that a row of `HARDWARE` describes.

    Returns `None` if the machine lacks it.
    """
    evidence, pci_ids = [], []
    for pattern in row["nodes"].split():
        evidence += _find_device_nodes(pattern, root)
    for function in pci_functions:
        if _matches_row(row, function):
            id_pair = f"{function.vendor_id}:{function.device_id}"
            evidence.append(f"PCI {id_pair} at {function.address}")
            pci_ids.append(int(function.device_id, 16))
    if not evidence:
        return None
    return Device(row, evidence[0], pci_ids)


def _find_device_nodes(pattern: str, root: str) -> list[str]:
    """Return the device nodes that match a pattern such as `/dev/nvidia[0-9]*`."""
    if not pattern.endswith(_NUMBER):  # The pattern is the path of one node.
        return [pattern] if os.path.exists(root + pattern) else []
    folder, _, prefix = pattern.removesuffix(_NUMBER).rpartition("/")
    nodes = []
    for name in _list_names(root + folder):
        first_character_after_prefix = name.removeprefix(prefix)[:1]
        if name.startswith(prefix) and first_character_after_prefix.isdecimal():
            nodes.append(f"{folder}/{name}")
    return nodes


def _list_pci_functions(root: str) -> Iterator[PciFunction]:
    """Yield the PCI functions of the machine whose files are below `root`."""
    for address in _list_names(root + _BUS):
        alias = _read_text(f"{root}{_BUS}/{address}/modalias").lower()
        # The format is pci:v0000VVVVd0000DDDDsv........sd........bcCCscCCiCC, as in
        # scripts/mod/file2alias.c of Linux.
        if alias.startswith("pci:v0000") and len(alias) == 53:
            vendor_id, device_id = alias[9:13], alias[18:22]
            class_code = alias[44:46] + alias[48:50] + alias[51:53]
            yield PciFunction(address, vendor_id, device_id, class_code)


def _matches_row(row: Record, function: PciFunction) -> bool:
    """Return whether a row of `HARDWARE` describes the PCI function."""
    for excluded in row["not"].split():  # A device id or the beginning of an address.
        if function.device_id == excluded or function.address.startswith(excluded):
            return False
    required_address_prefix = row["at"]
    if not function.address.startswith(required_address_prefix):
        return False
    id_pair = f"{function.vendor_id}:{function.device_id}"
    for pattern in row["pci"].split():
        # The pattern 10de/03 matches devices with vendor id 10de and a class code that starts with 03.
        id_prefix, _, class_prefix = pattern.partition("/")
        has_class = function.class_code.startswith(class_prefix)
        if id_pair.startswith(id_prefix) and has_class:
            return True
    return False


def _nvidia_driver(root: str) -> str:
    """Return the NVIDIA driver version, such as `"550.54.15"`.

    Returns an empty string if no file contains the version.
    """
    for path in _DRIVER:
        for word in _read_text(root + path).split():
            if _is_driver_version(word):
                return word
    return ""


def _is_driver_version(word: str) -> bool:
    """Return whether a word has the form of an NVIDIA driver version, such as `"550.54.15"`."""
    numbers = word.split(".")
    are_digits = "".join(numbers).isdecimal()
    return are_digits and len(numbers) in (2, 3) and len(numbers[0]) >= 3


def _amd_architectures(root: str) -> list[str]:
    """Return the architectures of the machine's AMD GPUs, such as `gfx90a`.

    The kernel's files contain an architecture as a number, such as 90010 for `gfx90a`.
    """
    architectures = []
    for node in _list_names(root + _TOPOLOGY):
        for line in _read_text(f"{root}{_TOPOLOGY}/{node}/properties").splitlines():
            key, _, value = line.partition(" ")
            # The number of a CPU, which is a node too, is 0.
            if key == "gfx_target_version" and int(value):
                # 90010 is version 9.0.10, which is written as gfx90a: 10 is "a" in hexadecimal.
                major_and_minor, stepping = divmod(int(value), 100)
                major, minor = divmod(major_and_minor, 100)
                architectures.append(f"gfx{major}{minor:x}{stepping:x}")
    return architectures


# --- The choice -------------------------------------------------------------------------


def choose(folder: str, environ: Mapping[str, str], root: str = "") -> Choice:
    """Choose the environment in `folder` that fits the machine.

    If `DS_ACCELERATOR` names backends, the environment of one of these backends is chosen, even if the
    machine does not have the backend's device. Otherwise, the choice is for the machine's best accelerator
    for which the folder has an environment that the machine can run. A machine without an accelerator gets
    the environment for the CPU.

    `root` is a prefix of the paths of the machine's files, such as `/sys`. Raises `LookupError` with the
    next step if the folder does not have the environment.
    """
    environments = complete_environments(folder)
    devices = detect_devices(folder, root)
    pin = environ.get("DS_ACCELERATOR", "").strip().lower()
    pinned_backends = _pinned_backends(folder, pin)
    # The functions below add the reasons why environments do not fit the machine.
    unmet_needs: list[str] = []
    if not pinned_backends:
        choice = _choose_for_devices(environments, devices, root, unmet_needs)
        return choice or _fall_back_to_cpu(folder, environments, devices, unmet_needs)
    pin_reason = f"DS_ACCELERATOR={pin}"
    for backend in pinned_backends:
        if backend == CPU:
            environment = _environment_for_cpu(folder, environments, devices, root)
            return Choice(environment, pin_reason)
        pinned_devices = [d for d in devices if d.row["backend"] == backend]
        choice = _choose_for_devices(environments, pinned_devices, root, unmet_needs)
        if choice is not None:
            return choice
    # The machine lacks the pinned devices, or cannot run the environments for them.
    first_backend = pinned_backends[0]
    environment = _require_environment_for(folder, environments, first_backend)
    return Choice(environment, pin_reason, _as_sentence(unmet_needs))


def _pinned_backends(folder: str, pin: str) -> list[str]:
    """Return the backends in the value of `DS_ACCELERATOR` for which the folder describes hardware.

    The CPU is also a backend. Other names are left out.
    """
    known = [CPU]
    for row in _read_blocks(f"{folder}/{HARDWARE}"):
        known.append(row["backend"])
    # A name may be followed by its distribution, as in cuda@accel-cuda.
    names = [name.partition("@")[0].strip() for name in pin.split(",")]
    return [name for name in names if name in known]


def _choose_for_devices(
    environments: Sequence[Record],
    devices: Sequence[Device],
    root: str,
    unmet_needs: list[str],
) -> Choice | None:
    """Return the choice for the first device with an environment that the machine can run, if any.

    The unmet needs of other environments are added to `unmet_needs`.
    """
    for device in devices:
        environment = _newest_for_device(environments, device, root, unmet_needs)
        if environment is not None:
            reason = f"detected {device.row['label']} ({device.evidence})"
            return Choice(environment, reason)
    return None


def _newest_for_device(
    environments: Sequence[Record],
    device: Device,
    root: str,
    unmet_needs: list[str],
) -> Record | None:
    """Return the newest environment for the device that the machine can run, or `None`.

    The unmet needs of newer environments for the device are added to `unmet_needs`.
    """
    for environment in environments:  # The newest environment comes first.
        if device.row["label"] in environment["serves"].split(", "):
            unmet_need = describe_unmet_need(environment, device, root)
            if not unmet_need:
                return environment
            unmet_needs.append(f"{environment['name']} {unmet_need}")
    return None


def _fall_back_to_cpu(
    folder: str,
    environments: Sequence[Record],
    devices: Sequence[Device],
    unmet_needs: Sequence[str],
) -> Choice:
    """Choose the environment for the CPU, with a warning if the machine has an unused accelerator.

    A GPU that is part of the CPU does not cause a warning.
    """
    cpu_environment = _require_environment_for(folder, environments, CPU)
    for device in devices:
        if device.row["integrated"] == "no":
            label = device.row["label"]
            reason = (
                f"no environment fits the {label} of this machine ({device.evidence})"
            )
            warning = f"{reason}, so the CPU is used."
            if unmet_needs:
                warning += f" {_as_sentence(unmet_needs)}"
            warning += f" {_next_step(folder, device.row['setup'])}"
            return Choice(cpu_environment, reason, warning)
    return Choice(cpu_environment, "this machine has no accelerator")


def _as_sentence(clauses: Sequence[str]) -> str:
    """Join clauses into a sentence, or return an empty string if there are no clauses."""
    return f"{'; '.join(clauses)}." if clauses else ""


def describe_unmet_need(environment: Record, device: Device, root: str = "") -> str:
    """Return why the machine cannot run an environment's torch, as a clause.

    An example is `"needs NVIDIA's driver, which is not loaded"`. Returns an empty string if the machine
    can run torch.
    """
    unmet_need = _unmet_driver_need(environment["oldest_driver"], root)
    if not unmet_need:
        unmet_need = _unmet_architecture_need(environment["gfx"].split(), root)
    if not unmet_need:
        id_ranges_without_code = environment["no_code_for"].split()
        unmet_need = _unmet_device_need(id_ranges_without_code, device.pci_ids)
    return unmet_need


def _unmet_driver_need(oldest: str, root: str) -> str:
    """Return a clause if NVIDIA's driver is missing or older than `oldest`, otherwise an empty string.

    `oldest` is empty for a build that does not need NVIDIA's driver.
    """
    if not oldest:
        return ""
    driver = _nvidia_driver(root)
    if driver:
        if _version_numbers(driver) >= _version_numbers(oldest):
            return ""
        return f"needs NVIDIA driver {oldest} or newer, but this machine has {driver}"
    if "microsoft" in _read_text(f"{root}/proc/version").lower():
        return ""  # No file of WSL 2 contains the driver's version.
    return "needs NVIDIA's driver, which is not loaded"


def _unmet_architecture_need(supported: Sequence[str], root: str) -> str:
    """Return a clause if the build has no code for the machine's AMD GPUs, otherwise an empty string.

    `supported` contains the architectures for which the build has code. It is empty for builds that do not
    target AMD GPUs.
    """
    if not supported:
        return ""
    architectures = _amd_architectures(root)
    if not architectures:  # Without the driver's files, nothing is known.
        return ""
    is_any_supported = any(name in supported for name in architectures)
    if is_any_supported:
        return ""
    return f"has no code for {', '.join(architectures)}"


def _unmet_device_need(
    ranges_without_code: Sequence[str], pci_ids: Sequence[int]
) -> str:
    """Return a clause if the build has no code for any of the devices, otherwise an empty string.

    `ranges_without_code` contains ranges of PCI device ids, such as `"0000-1dff"`.
    """
    if not pci_ids:
        return ""
    for pci_id in pci_ids:
        lacks_code = any(
            _is_within(pci_id, id_range) for id_range in ranges_without_code
        )
        if not lacks_code:  # One usable device is enough.
            return ""
    first_id = pci_ids[0]
    return f"has no code for the device {first_id:04x}"


def _is_within(pci_id: int, id_range: str) -> bool:
    """Return whether a PCI device id is in a range such as `"0000-1dff"`."""
    first, _, last = id_range.partition("-")
    return int(first, 16) <= pci_id <= int(last, 16)


def _require_environment_for(
    folder: str, environments: Sequence[Record], backend: str
) -> Record:
    """Return the newest environment of a backend.

    Raises `LookupError` if the folder has no environment of the backend.
    """
    for environment in environments:  # The newest environment comes first.
        if environment["backend"] == backend:
            return environment
    next_step = _next_step(folder, backend)
    raise LookupError(
        f"{folder} has no complete environment for {backend}. {next_step}"
    )


def _environment_for_cpu(
    folder: str, environments: Sequence[Record], devices: Sequence[Device], root: str
) -> Record:
    """Return the newest environment for the CPU, or otherwise the environment for this machine's device.

    Every build of torch also runs on the CPU, and `accel run` pins the CPU for its ranks if it could not use
    the device. Raises `LookupError` if the folder has neither environment.
    """
    has_cpu_environment = any(e["backend"] == CPU for e in environments)
    if not has_cpu_environment:
        choice = _choose_for_devices(environments, devices, root, unmet_needs=[])
        if choice is not None:
            return choice.environment
    return _require_environment_for(folder, environments, CPU)


def _next_step(folder: str, name: str) -> str:
    """Return the next step, a command that makes the environment called `name`.

    `name` is empty for hardware whose vendor builds torch itself.
    """
    if not name:
        return "Next step: accel setup"
    return f"Next step: accel setup --into {_quote(folder)} {name}"


def _quote(argument: str) -> str:
    """Return a command's argument in single quotes if a shell would split or change the argument.

    The module `shlex` would take milliseconds to import.
    """
    without_punctuation = argument
    for character in "/-_.":
        without_punctuation = without_punctuation.replace(character, "")
    if without_punctuation.isalnum():
        return argument
    return "'" + argument.replace("'", "'\\''") + "'"


# --- The start --------------------------------------------------------------------------


def main() -> None:
    """Replace this process with a program of the chosen environment.

    `sys.argv[1]` is the path of the launcher in `FOLDER/bin`, which has the program's name, and
    `sys.argv[2:]` contains the program's arguments.
    """
    launcher, *arguments = sys.argv[1:]
    launcher = os.path.abspath(launcher)  # FOLDER/bin/PROGRAM
    program = os.path.basename(launcher)
    folder = os.path.dirname(os.path.dirname(launcher))
    try:
        choice = choose(folder, os.environ)
    except LookupError as error:
        sys.exit(f"Error: {error.args[0]}")
    environment = choice.environment
    if choice.warning:
        sys.stderr.write(f"Warning: {choice.warning}\n")
    is_logged = os.environ.get("ACCEL_LOG", "").lower() in ("1", "true", "yes", "on")
    if is_logged or arguments[:1] == ["-v"]:
        description = f"environment {environment['name']} of {folder}, torch {environment['torch']}"
        sys.stderr.write(f"accel: {description}: {choice.reason}\n")
    python = f"{environment['path']}/bin/python"
    # at_start.py reads this option, so that child processes are started through the launcher too.
    command = [python, "-X", f"accel_launcher={folder}/bin/python"]
    if not program.startswith("python"):
        command.append(f"{environment['path']}/bin/{program}")
    sys.stderr.flush()
    os.execv(python, [*command, *arguments])
