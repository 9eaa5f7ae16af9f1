"""Tests for `pytest --accel`, which test_fixtures.py copies and runs."""

import pytest, torch


def test_accelerator(accelerator):
    assert accelerator.device_count() in (2, 3)
    assert torch.ones(2, device=accelerator.device()).sum().item() == 2
    assert "simulated" in repr(accelerator)


@pytest.mark.accel("acme", devices=3)
def test_of_acme_alone(simulated):
    with simulated.injected("oom@1"), pytest.raises(torch.OutOfMemoryError):
        torch.ones(2, device="acme")
    simulated.set_memory_limit(0)


@pytest.mark.accel("plain")
def test_that_fails():
    assert torch.accelerator.device_count() == 1


@pytest.mark.accel(devices=4)
def test_of_many(): ...
