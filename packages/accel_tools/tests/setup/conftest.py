"""Machines made of files: `planned_for` plans for one."""

import pytest
from accel_tests.computers import Computer

from accel_core.hardware import bus
from accel_tools.setup.machines import Machine
from accel_tools.setup.planning import make_plan

#: What a machine is unless its description has another value.
_USUAL = {
    "system": "linux",
    "architecture": "x86_64",
    "python": "3.12",
    "nvidia_smi": "",
    "glibc": "",
}


def modalias(function):
    """The kernel's line for `"10de:2330/030200"`."""
    ids, _, code = function.upper().partition("/")
    vendor, _, device = ids.partition(":")
    return f"pci:v0000{vendor}d0000{device}sv000010DEsd000016C1bc{code[:2]}sc{code[2:4]}i{code[4:]}"


def files_of(machine):
    """The files of a machine described in short: PCI functions, NVIDIA's driver, gfx, nodes, files."""
    files = dict(machine.get("files", {}))
    for number, function in enumerate(machine.get("pci", ())):
        address = f"0000:{number + 1:02x}:00.0"
        if "@" in function:
            function, _, address = function.partition("@")
        files[f"/sys/bus/pci/devices/{address}/modalias"] = modalias(function)
    if driver := machine.get("nvidia"):
        files["/sys/module/nvidia/version"] = str(driver)
    for number, version in enumerate(machine.get("gfx", ())):
        files[f"/sys/class/kfd/kfd/topology/nodes/{number}/properties"] = (
            f"gfx_target_version {version}"
        )
    files |= dict.fromkeys(machine.get("nodes", ()), "")
    return files


def machine_in(folder, description):
    """Write the files of a described machine below a folder; return the machine."""
    bus.pci_devices.cache_clear()
    computer = Computer(folder)
    for path, text in files_of(description).items():
        computer.write(path, text)
    about = {key: description.get(key, usual) for key, usual in _USUAL.items()}
    return Machine(computer.path, **about)


@pytest.fixture
def described_machine(tmp_path):
    """`described_machine(description)`: a machine whose files are in a folder."""
    return lambda description: machine_in(tmp_path / "machine", description)


@pytest.fixture
def planned_for(described_machine):
    """Plan for such a machine."""

    def plan(description, name="", **wanted):
        return make_plan(described_machine(description), name, **wanted)

    return plan
