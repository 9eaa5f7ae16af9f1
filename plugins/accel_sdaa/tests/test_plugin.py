"""What is Tecorigin's own: its nodes, the next step after its errors, the compiler that its package brings.

What its members do is told by its score card.
"""

import sys
from types import ModuleType

import pytest

from accel_sdaa import BACKEND


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
        monkeypatch.setitem(
            sys.modules, "torch_sdaa._inductor", ModuleType("torch_sdaa._inductor")
        )
    monkeypatch.setattr(torch, "sdaa", ModuleType("torch.sdaa"), raising=False)
    accelerator = SDAAAccelerator(BACKEND)
    assert accelerator.get_compile_backend() == (
        "teco_inductor" if brought else "inductor"
    )
    with pytest.raises(ValueError, match="inductor"):
        accelerator.set_compile_backend("no_such_backend")
