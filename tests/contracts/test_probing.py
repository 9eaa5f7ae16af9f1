"""How declarations of vendors' packages are judged, on a machine of folders with and without each."""

import pytest
from accel_contracts.plugins import PLUGINS, declared
from accel_tests.machines import Machine

#: A plugin of a vendor's own package, by a node of its device.
NODES = {
    "accel_mlu": "/dev/cambricon_dev0",
    "accel_musa": "/dev/mtgpu.0",
    "accel_sdaa": "/dev/tcaicard0",
    "accel_supa": "/dev/biren/card_0",
    "accel_klxpu": "/dev/xpu0",
    "accel_rbln": "/dev/rbln0",
}


@pytest.mark.parametrize("name", NODES)
def test_its_device_its_package_and_its_torch_make_it_usable(tmp_path, name):
    (backend,) = (b for plugin in PLUGINS if plugin.name == name for b in declared(plugin))
    (vendor,), kind, node = backend.vendor_imports, backend.device_type, NODES[name]
    machine = Machine(tmp_path, name, vendor)
    for requirement in backend.requires:
        if not requirement.startswith("torch>"):
            machine.distribution(requirement.partition(">")[0], "99")
    private = backend.in_torch.private_use1
    # The simulated torch is a CPU build, which a device of torch.cuda's refuses.
    build = "" if private else "torch.version.cuda = '12.9'\n"

    lacking = machine.probe(node, before=build)
    assert (lacking["status"], lacking["hint"]) == ("not_installed", backend.install_hint)
    assert lacking["reason"] == f"{vendor} is not installed, though the hardware is there: {node}"
    takes = f"torch._C.private_use1 = {kind!r}\n" if private else ""
    machine.package(
        f"import types, torch\n{takes}torch.{kind} = types.ModuleType('torch.{kind}')\n"
        f"torch.{kind}.device_count = lambda: 8\n"
    )
    both = machine.probe(node, before=build)
    assert (both["status"], both["devices"]) == ("usable", 8)
    if private:
        held = machine.probe(node, before="torch._C.private_use1 = 'npu'")
        assert (held["status"], held["vendor_imported"], "held by npu" in held["reason"]) == (
            "broken",
            False,
            True,
        )
    machine.distribution("torch", "2.4.0")
    old = machine.probe(node, before=build)
    assert (old["status"], old["vendor_imported"], "torch>=2.6" in old["reason"]) == (
        "incompatible",
        False,
        True,
    )
