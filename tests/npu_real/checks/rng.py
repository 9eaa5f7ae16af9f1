"""Random numbers, on two devices."""

from __future__ import annotations

import pytest
import torch


def draw(index=0, count=5):
    return torch.randn(count, device=f"npu:{index}").cpu()


def check_a_seed_before_the_device_starts(acc):
    acc.manual_seed_all(7)
    assert acc.is_initialized() is False


def check_default_generators_before_the_device_starts(acc):
    assert torch.npu.default_generators == ()
    generator = acc.default_generator(1)
    assert generator.device == torch.device("npu", 1)
    assert acc.default_generator(None).device == torch.device("npu", 0)
    # The seed from before counts.
    assert (generator.initial_seed(), acc.initial_seed()) == (7, 7)
    with pytest.raises(ValueError, match="device index 2 is out of range, 2 devices visible"):
        acc.default_generator(2)


def check_seeds_of_all_devices(acc):
    acc.manual_seed_all(11)
    first = [draw(0), draw(1)]
    assert torch.equal(*first)
    assert not torch.equal(first[0], draw(0))
    acc.manual_seed_all(11)
    assert torch.equal(first[1], draw(1))


def check_the_seed_of_the_current_device(acc):
    acc.manual_seed_all(1)
    other = acc.get_rng_state(1)
    with acc.device_guard(1):
        acc.manual_seed(5)
        assert acc.initial_seed() == 5
    assert acc.initial_seed() == 1
    assert not torch.equal(acc.get_rng_state(1), other)


def check_states_go_round(acc):
    for index in (None, 0, 1):
        state = acc.get_rng_state(index)
        assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
        numbers = draw(index or 0)
        acc.set_rng_state(state, index)
        assert torch.equal(draw(index or 0), numbers)


def check_forking_restores(acc):
    acc.manual_seed_all(3)
    with acc.fork_rng():
        expected = [draw(0), draw(1), torch.rand(1)]
    with acc.fork_rng(devices=[0]):
        draw(0)
    assert [torch.equal(a, b) for a, b in zip(expected, [draw(0), draw(1), torch.rand(1)], strict=True)] == [
        True
    ] * 3


def check_torchs_own_seed_reaches_the_device(acc):
    torch.manual_seed(21)
    numbers = draw()
    assert acc.initial_seed() == 21
    torch.manual_seed(21)
    assert torch.equal(draw(), numbers)
    assert acc.random() is torch.random


def check_checkpointing_restores_the_devices_numbers(acc):
    """torch.utils.checkpoint runs the function twice; both must draw the same."""
    from torch.utils.checkpoint import checkpoint

    seen = []

    def noisy(x):
        noise = torch.randn(4, device="npu")
        seen.append(noise.detach().cpu())
        return x * noise

    x = torch.ones(4, device="npu", requires_grad=True)
    checkpoint(noisy, x, use_reentrant=False).sum().backward()
    assert len(seen) == 2
    assert torch.equal(*seen)
