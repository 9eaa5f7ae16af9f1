"""`FloatTensor` and its like where they refuse; what they make is `interface.types` of the kit."""

from __future__ import annotations

import pytest
import torch

import accel_core
from accel_core import UnsupportedError


@pytest.fixture
def cpu(fresh):
    return accel_core.accelerator("cpu")


def test_one_whole_number_is_refused_with_what_to_write(cpu):
    with pytest.raises(TypeError, match=r"cpu\.FloatTensor\(5\) could mean") as caught:
        cpu.FloatTensor(5)
    assert "FloatTensor([5])" in str(caught.value)
    assert "torch.empty(5, dtype=torch.float32, device='cpu')" in str(caught.value)
    assert cpu.FloatTensor(5.0).item() == 5.0
    assert cpu.ByteTensor(True).item() == 1
    assert cpu.LongTensor(data=[1, 2]).tolist() == [1, 2]


def test_a_type_that_the_device_lacks_can_be_asked_for_but_not_made(cpu, monkeypatch):
    monkeypatch.setattr(cpu, "is_fp64_supported", lambda: False)
    assert not isinstance(torch.ones(1), cpu.DoubleTensor)
    for data in ((), (2, 3), ([1.0],)):
        with pytest.raises(UnsupportedError, match="the device has no float64"):
            cpu.DoubleTensor(*data)
