"""Random numbers: seeds, states, generators."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.subject import Subject

__all__ = ["TestRandomness"]


def _drawn(accelerator: Accelerator, index: int = 0) -> list[float]:
    return torch.rand(16, device=accelerator.device(index)).tolist()


class TestRandomness(Subject):
    """The same seed gives the same numbers, and a restored state continues its sequence."""

    def test_same_seed_same_numbers(self, accelerator: Accelerator) -> None:
        """The same seed gives the same numbers, another seed other ones, and each draw new ones."""
        accelerator.manual_seed(3)
        first, second = _drawn(accelerator), _drawn(accelerator)
        accelerator.manual_seed(3)
        again = _drawn(accelerator)
        accelerator.manual_seed(4)
        other = _drawn(accelerator)
        require(first == again, "the same seed drew other numbers")
        require(first != second, "the same numbers were drawn twice in a row")
        require(first != other, "another seed drew the same numbers")

    def test_seed_is_told(self, accelerator: Accelerator) -> None:
        """`initial_seed` returns the seed that was set."""
        for seed in (1234, 4321):
            accelerator.manual_seed(seed)
            told = accelerator.initial_seed()
            require(told == seed, f"after manual_seed({seed}) initial_seed() gave {told}")

    def test_all_devices_are_seeded(self, accelerator: Accelerator) -> None:
        """`manual_seed_all` seeds every device, `manual_seed` the current one alone."""
        accelerator.manual_seed_all(5)
        count = accelerator.device_count()
        first = [_drawn(accelerator, index) for index in range(count)]
        accelerator.manual_seed_all(5)
        again = [_drawn(accelerator, index) for index in range(count)]
        require(first == again, "manual_seed_all(5) did not seed every device")
        if accelerator.device(0) == accelerator.device(count - 1):
            return
        accelerator.manual_seed_all(5)
        _drawn(accelerator, count - 1)
        state = accelerator.get_rng_state(count - 1)
        accelerator.manual_seed(6)
        untouched = torch.equal(state, accelerator.get_rng_state(count - 1))
        require(untouched, f"manual_seed(6) on device 0 seeded device {count - 1} too")

    def test_state_restores(self, accelerator: Accelerator) -> None:
        """A restored state draws the same numbers again, whatever was drawn in between."""
        for index in range(accelerator.device_count()):
            state = accelerator.get_rng_state(index)
            first = _drawn(accelerator, index)
            _drawn(accelerator, index)
            accelerator.set_rng_state(state, index)
            require(_drawn(accelerator, index) == first, f"set_rng_state(state, {index}) did not restore it")
        state = accelerator.get_rng_state()
        first = _drawn(accelerator)
        accelerator.set_rng_state(new_state=state)
        require(_drawn(accelerator) == first, "set_rng_state(state) did not restore the current device's")

    def test_fork_rng_restores(self, accelerator: Accelerator) -> None:
        """Drawing inside `fork_rng` changes no random numbers outside it, on device or host, even after an
        error.
        """
        accelerator.manual_seed(7)
        host = torch.get_rng_state()
        with accelerator.fork_rng():
            inside = _drawn(accelerator)
            accelerator.manual_seed(8)
            torch.rand(1)
        try:
            with accelerator.fork_rng(devices=iter([0])):
                accelerator.manual_seed(9)
                raise KeyError
        except KeyError:
            pass
        restored = torch.equal(torch.get_rng_state(), host)
        require(restored, "after fork_rng the host's generator is in another state")
        require(_drawn(accelerator) == inside, "after fork_rng other numbers are drawn than without it")

    def test_generator_is_the_devices(self, accelerator: Accelerator) -> None:
        """Kernels draw from `default_generator`: seeding it seeds them."""
        generator = accelerator.default_generator(0)
        generator.manual_seed(9)
        first = _drawn(accelerator)
        for index in (0, None):
            accelerator.default_generator(index).manual_seed(9)
            same = _drawn(accelerator) == first
            require(same, f"seeding default_generator({index}) does not seed what is drawn")

    def test_host_is_left_alone(self, accelerator: Accelerator) -> None:
        """Drawing on the device, and seeding it, leave the host's generator unchanged."""
        if not accelerator.is_accelerator():
            not_claimed("the device is the host")
        before = torch.get_rng_state()
        _drawn(accelerator)
        accelerator.manual_seed(10)
        require(torch.equal(torch.get_rng_state(), before), "the host's generator changed")

    def test_checkpointing_draws_the_same(self, accelerator: Accelerator) -> None:
        """Activation checkpointing draws the same dropout mask again in the backward pass."""
        masks = []

        def layer(x: torch.Tensor) -> torch.Tensor:
            out = torch.nn.functional.dropout(x, 0.5, training=True)
            masks.append(out.detach().cpu())
            return out * 2

        x = torch.ones(64, device=accelerator.device(), requires_grad=True)
        from torch.utils.checkpoint import set_checkpoint_early_stop

        with set_checkpoint_early_stop(False):
            checkpoint(layer, x, use_reentrant=False).sum().backward()
        require(len(masks) == 2, f"the layer ran {len(masks)} times; expected 2")
        require(torch.equal(masks[0], masks[1]), "the mask that was drawn again is another")
