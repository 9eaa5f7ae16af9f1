"""What is Kunlunxin's own: what is behind torch.cuda there, the variable that switches it off, its errors.

What its members do is told by its score card.
"""

import pytest
from accel_tests.machines import Machine

NODE = "/dev/xpu0"


@pytest.fixture
def probed(tmp_path):
    """`probed(value)`: the verdict where DISABLE_XPYTORCH has that value."""
    machine = Machine(tmp_path, "accel_klxpu", "torch_xmlir")
    machine.package(
        "import types, torch\ntorch.cuda = types.ModuleType('torch.cuda')\n"
        "torch.cuda.device_count = lambda: 1\n"
    )
    before = "torch.version.cuda = '12.9'\n"  # the simulated torch is a CPU build

    def probe(value):
        variables = {"DISABLE_XPYTORCH": value}
        return machine.probe(NODE, before=before, variables=variables)

    return probe


def test_torch_xmlir_switched_off_is_not_cuda(probed):
    verdict = probed("1")
    assert verdict["status"] == "no_device"
    assert verdict["reason"] == "DISABLE_XPYTORCH=1 turns torch_xmlir off"
    assert verdict["hint"] == "unset DISABLE_XPYTORCH"
    assert verdict["vendor_imported"] is False


@pytest.mark.parametrize("value", ["0", ""])
def test_torch_xmlir_that_is_not_switched_off_is_usable(probed, value):
    assert probed(value)["status"] == "usable"
