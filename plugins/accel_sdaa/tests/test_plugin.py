"""What is Tecorigin's own: its nodes, the next step after its errors, the compiler that its package brings.

How it is probed is told in `tests/contracts/test_probing.py`, what its members do by its score card.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from accel_core import hint_for
from accel_sdaa import BACKEND

SETVARS = "source /opt/tecoai/setvars.sh"


def test_the_declaration():
    """A SCSI disk, /dev/sda, is no card."""
    assert (BACKEND.hardware.nodes, BACKEND.hardware.pci_ids) == (("/dev/tcaicard[0-9]*",), ())
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.visibility.variables == ("SDAA_VISIBLE_DEVICES",)
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("tccl", "teco_inductor")
    assert {"TCCL", "SDAA", "TECO", "TORCH_SDAA", "LD_LIBRARY", "PATH"} == set(BACKEND.environment.forward)


SEEN = [
    ("libsdaart.so: cannot open shared object file", SETVARS),
    ("libtecodnn_ext.so: cannot open shared object file", SETVARS),
    ("libtccl.so: cannot open shared object file", SETVARS),
    ("_C.so: undefined symbol: _ZN2at", "made for your torch"),
    ("torch.register_privateuse1_backend() has already been set! Current: npu", "DS_ACCELERATOR=sdaa"),
    ("Cannot re-initialize SDAA in forked subprocess", "spawn"),
    ("SDAA out of memory. Tried to allocate 20.00 GiB", "teco-smi"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN)
def test_known_errors(message, hint):
    assert hint in (hint_for(RuntimeError(message), BACKEND.hints) or "")


@pytest.mark.parametrize("message", ["", "list index out of range", "libssl.so.1.1: cannot open"])
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None


@pytest.mark.parametrize("brought", [True, False])
def test_the_vendors_compiler_where_its_package_registers_one(monkeypatch, brought):
    """The simulated device has none: what `get_compile_backend` gives with one is seen here alone."""
    torch = pytest.importorskip("torch")
    from accel_sdaa.accelerator import SDAAAccelerator

    dynamo, package = ModuleType("torch._dynamo"), ModuleType("torch_sdaa")
    dynamo.list_backends = lambda exclude_tags=(): [
        "inductor", *(["teco_inductor"] if "torch_sdaa._inductor" in sys.modules else []),
    ]  # fmt: skip
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    monkeypatch.setitem(sys.modules, "torch_sdaa", package)
    if brought:
        monkeypatch.setitem(sys.modules, "torch_sdaa._inductor", ModuleType("torch_sdaa._inductor"))
    monkeypatch.setattr(torch, "sdaa", ModuleType("torch.sdaa"), raising=False)
    accelerator = SDAAAccelerator(BACKEND)
    assert accelerator.get_compile_backend() == ("teco_inductor" if brought else "inductor")
    with pytest.raises(ValueError, match="inductor"):
        accelerator.set_compile_backend("no_such_backend")
