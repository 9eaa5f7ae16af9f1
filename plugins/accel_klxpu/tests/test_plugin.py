"""What is Kunlunxin's own: what is behind torch.cuda there, the variable that switches it off, its errors.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

import pytest
from accel_tests.machines import Machine

from accel_core import hint_for
from accel_klxpu import BACKEND

NODE = "/dev/xpu0"
P800 = ("0000:37:00.0", "1d22", "3688", "120000")
DOCTOR = "torch_xmlir --doctor"


def test_the_declaration():
    assert (BACKEND.in_torch.impersonates, BACKEND.device_type, BACKEND.in_torch.private_use1) == (
        "cuda",
        "cuda",
        False,
    )
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.visibility.variables == ("CUDA_VISIBLE_DEVICES",)
    assert BACKEND.communication_backend == "nccl"
    assert BACKEND.environment.forward == ("BKCL", "XPU", "XMLIR", "LD_LIBRARY", "PATH")


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


SEEN = [
    ("libxpurt.so.2: cannot open shared object file", "xpu-smi"),
    ("libcudart.so.12: cannot open shared object file", DOCTOR),
    ("_XMLIRC.so: undefined symbol: _ZN2at", "XPyTorch"),
    ("Deregister cuda aten ops error", DOCTOR),
    ("libbkcl.so: cannot open shared object file", "XRE"),
    ("libxpu_blas.so: cannot open shared object file", "XRE"),
    ("[ERROR][XPURT] Initialize default context for dev -1 fail", "xpu-smi"),
    ("Cannot re-initialize CUDA in forked subprocess", "spawn"),
    ("CUDA out of memory. Tried to allocate 20.00 GiB", "xpu-smi"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None
