"""Machines made of files: `planned_for` plans for one."""

import json

import pytest

from accel_core.hardware import bus
from accel_tools.setup import machines
from accel_tools.setup.planning import planned

#: Keys of a machine's description that `machine.json` has too.
_ABOUT = ("system", "architecture", "python", "nvidia_smi", "glibc")


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


@pytest.fixture
def saved_machine(tmp_path, monkeypatch):
    """A machine, which goes through the file that `accel setup --machine` reads: a context manager."""

    def save(machine):
        bus.pci_devices.cache_clear()
        about = {key: machine[key] for key in _ABOUT if key in machine}
        file = tmp_path / "machine.json"
        file.write_text(
            json.dumps({"python": "3.12", **about, "files": files_of(machine)})
        )
        return machines.saved(str(file))

    return save


@pytest.fixture
def planned_for(saved_machine):
    """Plan for such a machine."""

    def plan(machine, name="", **wanted):
        with saved_machine(machine) as saved:
            return planned(saved, name, **wanted)

    return plan
