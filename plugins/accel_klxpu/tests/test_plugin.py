"""What is Kunlunxin's own: what is behind torch.cuda there, the variable that switches it off, its errors.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

import pytest
from accel_tests.machines import Machine

NODE = "/dev/xpu0"
P800 = ("0000:37:00.0", "1d22", "3688", "120000")


@pytest.mark.parametrize(("value", "status"), [("1", "no_device"), ("0", "usable"), ("", "usable")])
def test_torch_xmlir_switched_off_is_not_cuda(tmp_path, value, status):
    machine = Machine(tmp_path, "accel_klxpu", "torch_xmlir")
    machine.package(
        "import types, torch\ntorch.cuda = types.ModuleType('torch.cuda')\n"
        "torch.cuda.device_count = lambda: 1\n"
    )
    before = "torch.version.cuda = '12.9'\n"  # the simulated torch is a CPU build
    verdict = machine.probe(NODE, before=before, variables={"DISABLE_XPYTORCH": value})
    assert verdict["status"] == status
    if status == "no_device":
        assert verdict["reason"] == "DISABLE_XPYTORCH=1 switches torch_xmlir off"
        assert (verdict["hint"], verdict["vendor_imported"]) == ("unset DISABLE_XPYTORCH", False)


#: A process in which torch_xmlir has torch.cuda, beside an NVIDIA card that torch.cuda no longer shows.
TAKEN_OVER = "import sys, types\nsys.modules['torch_xmlir'] = types.ModuleType('torch_xmlir')\n"
NVIDIA = ("0000:04:00.0", "10de", "2335", "030200")


@pytest.mark.parametrize("pinned", [False, True])
def test_cuda_stands_aside_where_torch_xmlir_is_imported(judge, pinned):
    options = {"pci": (NVIDIA, P800), "nodes": ("/dev/nvidia0", NODE), "pinned": pinned}
    said, _ = judge("cuda", code=TAKEN_OVER, **options)
    for verdict in said:
        assert verdict["status"] == "stands_aside"
        assert verdict["reason"] == "torch.cuda is impersonated by torch_xmlir"
    alone, _ = judge("cuda", **options)
    assert {verdict["status"] for verdict in alone} == {"no_device"}  # this torch is a CPU build
