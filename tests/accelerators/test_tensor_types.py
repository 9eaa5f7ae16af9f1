"""`FloatTensor` and its like beside torch's own types, which the processor has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import accel_core
from accel_core import Accelerator, UnsupportedError

KINDS = ("BFloat16", "Byte", "Double", "Float", "Half", "Int", "Long")


@pytest.fixture
def cpu(fresh: None) -> Accelerator:
    return accel_core.accelerator("cpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [(), (2, 3), (0, 4), (torch.Size([2, 3]),), ([1, 2],), ((1, 2),), ([],)])
def test_it_makes_what_torchs_type_makes(cpu: Accelerator, kind: str, data: tuple[Any, ...]) -> None:
    theirs, ours = getattr(torch, f"{kind}Tensor")(*data), getattr(cpu, f"{kind}Tensor")(*data)
    assert (ours.dtype, ours.device, ours.shape) == (theirs.dtype, theirs.device, theirs.shape)
    if data and isinstance(data[0], (list, tuple)) and not isinstance(data[0], torch.Size):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_isinstance_tells_what_torchs_type_tells(cpu: Accelerator, kind: str, other: str) -> None:
    tensor = getattr(torch, f"{other}Tensor")([1])
    ours, theirs = getattr(cpu, f"{kind}Tensor"), getattr(torch, f"{kind}Tensor")
    assert isinstance(tensor, ours) is isinstance(tensor, theirs)
    assert isinstance(tensor.to("meta"), ours) is isinstance([1.0], ours) is False


def test_one_whole_number_is_refused_with_what_to_write(cpu: Accelerator) -> None:
    with pytest.raises(TypeError, match=r"cpu\.FloatTensor\(5\) could mean") as caught:
        cpu.FloatTensor(5)
    assert "FloatTensor([5])" in str(caught.value)
    assert "torch.empty(5, dtype=torch.float32, device='cpu')" in str(caught.value)
    assert cpu.FloatTensor(5.0).item() == 5.0
    assert cpu.ByteTensor(True).item() == 1


def test_keywords_are_torch_tensors(cpu: Accelerator) -> None:
    assert cpu.FloatTensor([1], requires_grad=True).requires_grad
    assert cpu.LongTensor(data=[1, 2]).tolist() == [1, 2]


def test_a_type_that_the_device_lacks_can_be_asked_for_but_not_made(
    cpu: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "is_fp64_supported", lambda: False)
    assert not isinstance(torch.ones(1), cpu.DoubleTensor)
    for data in ((), (2, 3), ([1.0],)):
        with pytest.raises(UnsupportedError, match="the device has no float64"):
            cpu.DoubleTensor(*data)
