"""Checks of random numbers: seeds, states, generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, require_raises, skip_unsupported
from accel_testing.conformance.compute.random_operators import require_new_numbers

__all__ = ["TestRandomness"]


def _draw(accelerator: Accelerator, index: int = 0) -> list[float]:
    """Draw and return 16 random numbers on the device."""
    return torch.rand(16, device=accelerator.device(index)).tolist()


def _devices_with_generators(accelerator: Accelerator) -> list[int]:
    """Return the indices of the devices that have separate generators."""
    last = accelerator.device_count() - 1
    if accelerator.device(last) == accelerator.device(0):
        return [0]
    return list(range(last + 1))


def _seed_differently(accelerator: Accelerator) -> dict[int, int]:
    """Seed each device differently, and draw from each device; return the seeds by device."""
    seeds = {index: 100 + index for index in _devices_with_generators(accelerator)}
    for index, seed in seeds.items():
        accelerator.default_generator(index).manual_seed(seed)
        _draw(accelerator, index)
    return seeds


def _require_seeded(accelerator: Accelerator, index: int, seed: int, call: str) -> None:
    """Require that after `call` the device has this seed, and that no number was drawn since."""
    generator = accelerator.default_generator(index)
    actual = generator.initial_seed()
    require(
        actual == seed,
        f"after {call} the seed of default_generator({index}) is {actual}; expected {seed}",
    )
    with accelerator.device_guard(index):
        actual = accelerator.initial_seed()
    require(
        actual == seed,
        f"after {call} initial_seed() of device {index} returned {actual}; expected {seed}",
    )
    actual = accelerator.initial_seed(index)
    require(
        actual == seed,
        f"after {call} initial_seed({index}) returned {actual}; expected {seed}",
    )
    state = accelerator.get_rng_state(index)
    generator.manual_seed(seed)
    is_fresh = torch.equal(state, accelerator.get_rng_state(index))
    require(
        is_fresh,
        f"after {call}, device {index} does not begin with the first random number of the seed",
    )


def _functions_that_seed_all(
    accelerator: Accelerator,
) -> dict[str, Callable[[int], object]]:
    """Return the functions of the accelerator and of torch that seed every device, by name."""
    functions: dict[str, Callable[[int], object]] = {
        "manual_seed_all": accelerator.manual_seed_all
    }
    device_type = accelerator.device_type
    # The types that torch.manual_seed seeds (torch/random.py); the built-in type hpu is not seeded.
    private_type = torch._C._get_privateuse1_backend_name()
    if device_type in ("cuda", "mps", "xpu", private_type):
        functions["torch.manual_seed"] = torch.manual_seed
    module: Any = getattr(torch, device_type, None)
    if hasattr(module, "manual_seed_all"):
        functions[f"torch.{device_type}.manual_seed_all"] = module.manual_seed_all
    return functions


class TestRandomness(BackendTestBase):
    """The same seed gives the same numbers, and a restored state continues the same sequence."""

    def test_same_seed_same_numbers(self, accelerator: Accelerator) -> None:
        """The same seed gives the same numbers; different seeds and further draws give different numbers."""
        accelerator.manual_seed(3)
        first, second = _draw(accelerator), _draw(accelerator)
        accelerator.manual_seed(3)
        again = _draw(accelerator)
        accelerator.manual_seed(4)
        other = _draw(accelerator)
        message = f"torch.rand(16, device=device(0)) returned {first[:2]}…"
        require(
            first == again,
            f"after manual_seed(3) {message}, and after the same calls again {again[:2]}…",
        )
        require(
            first != second, f"{message} twice in a row: its generator does not advance"
        )
        require(
            first != other, f"{message} after manual_seed(3) and after manual_seed(4)"
        )

    def test_seed_is_told(self, accelerator: Accelerator) -> None:
        """`initial_seed` returns the seed that was set."""
        for seed in (1234, 4321, 0, 1, 2**32 + 5, 2**63 - 1):
            draws = []
            for _ in range(2):
                accelerator.manual_seed(seed)
                actual = accelerator.initial_seed()
                require(
                    actual == seed,
                    f"after manual_seed({seed}) initial_seed() returned {actual}",
                )
                draws.append(_draw(accelerator))
            require(
                draws[0] == draws[1],
                f"manual_seed({seed}) twice: {draws[0][:2]}…, then {draws[1][:2]}…",
            )
        accelerator.manual_seed(5)
        numbers = _draw(accelerator)
        try:
            accelerator.manual_seed(-5)
        except Exception:
            return  # some devices do not accept a negative seed
        require(
            _draw(accelerator) != numbers,
            "manual_seed(-5) and manual_seed(5) draw the same numbers",
        )

    def test_all_devices_are_seeded(self, accelerator: Accelerator) -> None:
        """`manual_seed_all` seeds every device with one seed; `manual_seed` seeds only the current device."""
        indices = _devices_with_generators(accelerator)
        for name, seed_all in _functions_that_seed_all(accelerator).items():
            for current in dict.fromkeys((indices[0], indices[-1])):
                for seed in (5, 2**40 + 9):
                    _seed_differently(accelerator)
                    accelerator.set_device(current)
                    seed_all(seed)
                    call = f"{name}({seed}) on device {current}"
                    after = accelerator.current_device()
                    require(
                        after == current,
                        f"{call} changed the current device to {after}",
                    )
                    for index in indices:
                        _require_seeded(accelerator, index, seed, call)
        self._require_seed_all_changes_seeds(accelerator, indices)
        for current in indices:
            self._require_manual_seed_of_one(accelerator, indices, current)

    def _require_seed_all_changes_seeds(
        self, accelerator: Accelerator, indices: list[int]
    ) -> None:
        """Require that `seed_all` in the device's module, if it exists, changes each device's seed."""
        module: Any = getattr(torch, accelerator.device_type, None)
        if not hasattr(module, "seed_all"):
            return
        seeds = _seed_differently(accelerator)
        module.seed_all()
        unchanged = [
            index
            for index in indices
            if accelerator.default_generator(index).initial_seed() == seeds[index]
        ]
        require(
            not unchanged,
            f"torch.{accelerator.device_type}.seed_all() did not change the seed of device {unchanged}",
        )

    def _require_manual_seed_of_one(
        self, accelerator: Accelerator, indices: list[int], current: int
    ) -> None:
        """Require that `manual_seed` seeds the current device only."""
        seeds = _seed_differently(accelerator)
        accelerator.set_device(current)
        accelerator.manual_seed(6)
        call = f"manual_seed(6) on device {current}"
        _require_seeded(accelerator, current, 6, call)
        for index in indices:
            if index == current:
                continue
            seed = accelerator.default_generator(index).initial_seed()
            require(
                seed == seeds[index],
                f"{call} also seeded device {index}: its seed is {seed}",
            )
            seed = accelerator.initial_seed(index)
            require(
                seed == seeds[index],
                f"after {call}, initial_seed({index}) returned {seed}, which is not that device's seed",
            )

    def test_state_restores(self, accelerator: Accelerator) -> None:
        """A restored state repeats its draws on that device only, whatever was drawn in between."""
        indices = _devices_with_generators(accelerator)
        _seed_differently(accelerator)
        states = accelerator.get_rng_state_all()
        count = accelerator.device_count()
        require(
            type(states) is list,
            f"get_rng_state_all() returned a {type(states).__name__}; expected a list",
        )
        require(
            len(states) == count,
            f"get_rng_state_all() returned {len(states)} states for {count} devices",
        )
        for index in indices:
            require(
                torch.equal(states[index], accelerator.get_rng_state(index)),
                f"get_rng_state_all()[{index}] differs from the result of get_rng_state({index})",
            )
            self._require_state_restores(accelerator, indices, index)
        self._require_foreign_states(accelerator, indices)
        rows = torch.stack([torch.zeros_like(states[0]), accelerator.get_rng_state(0)])
        first = _draw(accelerator)
        accelerator.set_rng_state(rows[1], 0)
        require(
            _draw(accelerator) == first,
            "set_rng_state with a row of a tensor of several states did not restore the state",
        )
        for index in indices:
            with accelerator.device_guard(index):
                state = accelerator.get_rng_state()
                first = _draw(accelerator, index)
                accelerator.set_rng_state(new_state=state)
                again = _draw(accelerator, index)
            require(
                again == first,
                f"set_rng_state(state) did not restore the current device's, device {index}",
            )

    def _require_state_restores(
        self, accelerator: Accelerator, indices: list[int], index: int
    ) -> None:
        """Require that a restored device repeats its draws, and that no other device changes."""
        state = accelerator.get_rng_state(index)
        state_before = state.clone()
        first = _draw(accelerator, index)
        require(
            torch.equal(state, state_before),
            f"a draw changed the state that get_rng_state({index}) had returned",
        )
        _draw(accelerator, index)
        other_states = {
            other: accelerator.get_rng_state(other)
            for other in indices
            if other != index
        }
        accelerator.set_rng_state(state, index)
        require(
            _draw(accelerator, index) == first,
            f"set_rng_state(state, {index}) did not restore the state",
        )
        for other, before in other_states.items():
            require(
                torch.equal(accelerator.get_rng_state(other), before),
                f"set_rng_state(state, {index}) changed the generator of device {other}",
            )
        # torch.load(map_location=…) moves states to the device.
        accelerator.set_rng_state(state.to(accelerator.device(index)), index)
        require(
            _draw(accelerator, index) == first,
            f"set_rng_state with a state tensor on device {index} did not restore the state",
        )

    def _require_foreign_states(
        self, accelerator: Accelerator, indices: list[int]
    ) -> None:
        """Require an error for a foreign state, or, if `strict=False`, a seed that the state determines."""
        foreign = torch.arange(23, dtype=torch.uint8)  # no device's state has this size
        call = "set_rng_state of a state of 23 bytes"
        require_raises(lambda: accelerator.set_rng_state(foreign), ValueError, call)
        for index in indices:
            draws = []
            for state in (foreign, foreign, foreign + 1):
                accelerator.set_rng_state(state, index, strict=False)
                draws.append(_draw(accelerator, index))
            first, again, other = draws
            lenient_call = f"{call} on device {index}, with strict=False,"
            require(
                first == again,
                f"{lenient_call} draws different numbers at each repetition",
            )
            require(
                again != other,
                f"{lenient_call} draws the same numbers for two different states",
            )

    def test_fork_rng_restores(self, accelerator: Accelerator) -> None:
        """Drawing inside `fork_rng` does not change draws outside it on devices or host, even if nested or
        after an error.
        """
        indices = _devices_with_generators(accelerator)
        last = indices[-1]
        every_device = [f"device {index}" for index in indices]
        accelerator.manual_seed_all(7)
        before = self._generator_states(accelerator)
        with accelerator.fork_rng():
            self._draw_everywhere(accelerator)
            inner = self._generator_states(accelerator)
            with accelerator.fork_rng():
                self._draw_everywhere(accelerator)
            self._require_restored(accelerator, inner, "fork_rng() inside fork_rng()")
            accelerator.manual_seed_all(8)
        self._require_restored(
            accelerator, before, "fork_rng() with a nested fork_rng()"
        )
        for devices in (None, iter([0])):
            with contextlib.suppress(KeyError), accelerator.fork_rng(devices=devices):
                accelerator.manual_seed(9)
                torch.rand(1)
                raise KeyError
            self._require_restored(accelerator, before, "an error in fork_rng()")
        if accelerator.is_accelerator():  # the CPU's generator is the host's generator
            with accelerator.fork_rng(devices=[]):
                self._draw_everywhere(accelerator)
            self._require_restored(
                accelerator, before, "fork_rng(devices=[])", but=every_device
            )
            before = self._generator_states(accelerator)
        with accelerator.fork_rng(devices=[last]):
            self._draw_everywhere(accelerator)
        self._require_restored(
            accelerator, before, f"fork_rng(devices=[{last}])", but=every_device[:-1]
        )

    def _generator_states(self, accelerator: Accelerator) -> dict[str, torch.Tensor]:
        """Return the state of the host's generator and of each device's generator."""
        states = {"the host": torch.get_rng_state()}
        for index in _devices_with_generators(accelerator):
            states[f"device {index}"] = accelerator.get_rng_state(index)
        return states

    def _draw_everywhere(self, accelerator: Accelerator) -> None:
        """Draw from the host's generator and from each device's generator."""
        torch.rand(1)
        for index in _devices_with_generators(accelerator):
            _draw(accelerator, index)

    def _require_restored(
        self,
        accelerator: Accelerator,
        states: dict[str, torch.Tensor],
        block: str,
        but: Sequence[str] = (),
    ) -> None:
        """Require that `block` restored each generator's state, except for the generators in `but`."""
        for name, state in self._generator_states(accelerator).items():
            is_restored = torch.equal(state, states[name])
            if name in but:
                require(
                    not is_restored,
                    f"after {block}, the generator of {name} is restored, although it was not passed",
                )
            else:
                require(
                    is_restored,
                    f"after {block}, the state of the generator of {name} has changed",
                )

    def test_generator_is_the_devices(self, accelerator: Accelerator) -> None:
        """Kernels draw from `default_generator`, so seeding the generator seeds the kernels."""
        for index in _devices_with_generators(accelerator):
            with accelerator.device_guard(index):
                accelerator.default_generator(index).manual_seed(9)
                first = _draw(accelerator, index)
                for argument in (index, None):
                    accelerator.default_generator(argument).manual_seed(9)
                    require(
                        _draw(accelerator, index) == first,
                        f"with device {index} selected, seeding default_generator({argument}) does not "
                        "seed the numbers drawn on the device",
                    )

    def test_numbers_are_as_asked(self, accelerator: Accelerator) -> None:
        """Random numbers have the documented range, mean and deviation, and each operator draws new
        numbers.
        """
        device, count = accelerator.device(), 20_000
        accelerator.manual_seed(11)
        permutation = torch.randperm(501, device=device).cpu().sort().values
        require(
            torch.equal(permutation, torch.arange(501)),
            "randperm(501) does not contain each number once",
        )
        chosen = torch.multinomial(torch.ones(40, device=device), 30).tolist()
        require(
            len(set(chosen)) == 30,
            f"multinomial(ones(40), 30), without replacement, returned {chosen}",
        )
        numbers = torch.empty(count, device=device).random_(2, 5).cpu()
        smallest, largest = numbers.min().item(), numbers.max().item()
        require(
            (smallest, largest) == (2, 4),
            f"random_(2, 5) returned numbers from {smallest:g} to {largest:g}; expected 2 to 4",
        )
        numbers = torch.randint(-3, 4, (count,), device=device).cpu()
        smallest, largest = numbers.min().item(), numbers.max().item()
        require(
            (smallest, largest) == (-3, 3),
            f"randint(-3, 4) returned numbers from {smallest} to {largest}; expected -3 to 3",
        )
        self._require_distributions(device, count)
        require_new_numbers(accelerator)

    def _require_distributions(self, device: torch.device, count: int) -> None:
        """Require that `count` numbers of each distribution have its mean, deviation and range."""
        ones = torch.ones(count, device=device)
        dropped = torch.nn.functional.dropout(ones, 0.25, training=True).cpu()
        values = sorted(set(dropped.tolist()))
        require(
            len(values) == 2 and values[0] == 0 and abs(values[1] - 4 / 3) < 1e-5,
            f"dropout(0.25) of ones returned {values[:4]}; expected 0 and {4 / 3:.4f}",
        )
        empty = torch.empty(count, device=device)
        #: For each call: the numbers, and their expected mean and deviation.
        samples: dict[str, tuple[torch.Tensor, float, float]] = {
            "rand": (torch.rand(count, device=device), 0.5, 12**-0.5),
            "randn": (torch.randn(count, device=device), 0.0, 1.0),
            "uniform_(-2, 4)": (empty.clone().uniform_(-2, 4), 1.0, 6 * 12**-0.5),
            "normal_(3, 2)": (empty.clone().normal_(3, 2), 3.0, 2.0),
            "bernoulli_(0.25)": (empty.clone().bernoulli_(0.25), 0.25, (3 / 16) ** 0.5),
            "exponential_(2)": (empty.clone().exponential_(2), 0.5, 0.5),
            "the elements that dropout(0.25) keeps": (
                dropped.gt(0).float(),
                0.75,
                (3 / 16) ** 0.5,
            ),
        }
        for name, (numbers, expected_mean, expected_deviation) in samples.items():
            on_cpu = numbers.cpu().double()
            mean, deviation = float(on_cpu.mean()), float(on_cpu.std())
            # The bound is eight standard errors, which no seed exceeds by chance.
            largest_error = 8 * expected_deviation / count**0.5
            is_mean_right = abs(mean - expected_mean) < largest_error
            is_deviation_right = abs(deviation / expected_deviation - 1) < 0.08
            require(
                is_mean_right and is_deviation_right,
                f"{name}: mean {mean:.3f}, deviation {deviation:.3f}; expected {expected_mean:.3f}, "
                f"{expected_deviation:.3f}",
            )
        for name, low, high in (("rand", 0.0, 1.0), ("uniform_(-2, 4)", -2.0, 4.0)):
            on_cpu = samples[name][0].cpu()
            require(
                bool(((on_cpu >= low) & (on_cpu < high)).all()),
                f"{name} returned {float(on_cpu.min())} to {float(on_cpu.max())}; expected [{low}, {high})",
            )

    def test_host_is_left_alone(self, accelerator: Accelerator) -> None:
        """Drawing on the device, and seeding the device, do not change the host's generator."""
        if not accelerator.is_accelerator():
            skip_unsupported("the device is the host")
        before = torch.get_rng_state()
        _draw(accelerator)
        accelerator.manual_seed(10)
        is_unchanged = torch.equal(torch.get_rng_state(), before)
        require(
            is_unchanged,
            "torch.rand on the device, then manual_seed(10): torch.get_rng_state() of the host changed",
        )

    def test_checkpointing_draws_the_same(self, accelerator: Accelerator) -> None:
        """Activation checkpointing repeats the dropout mask in the backward pass."""
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
        require(
            torch.equal(masks[0], masks[1]),
            "checkpoint() drew a different dropout mask in the backward pass: "
            "get_rng_state and set_rng_state, in the device's torch module too, must restore the state",
        )
