"""How declarations of vendors' packages are judged, on a machine of folders with and without each."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from accel_contracts.plugins import PLUGINS, declared
from accel_tests.machines import Machine

#: A plugin of a vendor's own package, by a node of its device.
NODES = {
    "accel_mlu": "/dev/cambricon_dev0",
    "accel_sdaa": "/dev/tcaicard0",
    "accel_supa": "/dev/biren/card_0",
    "accel_klxpu": "/dev/xpu0",
    "accel_rbln": "/dev/rbln0",
}


class Vendors(NamedTuple):
    """A plugin on a machine, its declaration, and a node of its device."""

    machine: Machine
    backend: object
    node: str

    def package(self, devices):
        """Install the vendor's package, which counts so many devices."""
        source = "import types, torch\n"
        if self.backend.in_torch.private_use1:
            source += f"torch._C.private_use1 = {self.backend.device_type!r}\n"
        module = f"torch.{self.backend.device_type}"
        source += f"{module} = types.ModuleType({module!r})\n{module}.device_count = lambda: {devices}\n"
        self.machine.package(source)

    def probe(self, *nodes, before="", **options):
        # The simulated torch is a CPU build, which a device of torch.cuda's refuses.
        build = "" if self.backend.in_torch.private_use1 else "torch.version.cuda = '12.9'\n"
        return self.machine.probe(*nodes, before=build + before, **options)


@pytest.fixture(params=sorted(NODES))
def vendors(request, tmp_path):
    (backend,) = (b for plugin in PLUGINS if plugin.name == request.param for b in declared(plugin))
    (vendor,) = backend.vendor_imports
    found = Vendors(Machine(tmp_path, request.param, vendor), backend, NODES[request.param])
    for requirement in backend.requires:
        if not requirement.startswith("torch>"):
            found.machine.distribution(requirement.partition(">")[0], "99")
    return found


def test_the_device_and_the_package_make_it_usable(vendors):
    hardware = vendors.probe(vendors.node)
    assert hardware["status"] == "not_installed"
    assert (
        hardware["reason"]
        == f"{vendors.machine.vendor} is not installed, though the hardware is there: {vendors.node}"
    )
    assert hardware["hint"] == vendors.backend.install_hint
    vendors.package(8)
    both = vendors.probe(vendors.node)
    assert (both["status"], both["devices"]) == ("usable", 8)


def test_torch_is_too_old(vendors):
    vendors.package(1)
    vendors.machine.distribution("torch", "2.4.0")
    verdict = vendors.probe(vendors.node)
    assert (verdict["status"], verdict["vendor_imported"]) == ("incompatible", False)
    assert "torch>=2.6" in verdict["reason"]


def test_another_vendor_holds_privateuse1(vendors):
    if not vendors.backend.in_torch.private_use1:
        pytest.skip("it is behind torch's own device")
    vendors.package(1)
    verdict = vendors.probe(vendors.node, before="torch._C.private_use1 = 'npu'")
    assert (verdict["status"], verdict["vendor_imported"]) == ("broken", False)
    assert "held by npu" in verdict["reason"]
