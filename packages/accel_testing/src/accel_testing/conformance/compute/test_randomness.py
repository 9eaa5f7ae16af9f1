"""Random numbers: seeds, states, generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, refused, require
from accel_testing.conformance.compute.drawn import every_draw_is_new
from accel_testing.conformance.subject import Subject

__all__ = ["TestRandomness"]


def _drawn(accelerator: Accelerator, index: int = 0) -> list[float]:
    return torch.rand(16, device=accelerator.device(index)).tolist()


def _places(accelerator: Accelerator) -> list[int]:
    """The devices that have generators of their own, by number."""
    last = accelerator.device_count() - 1
    return (
        [0] if accelerator.device(last) == accelerator.device(0) else [*range(last + 1)]
    )


def _unlike(accelerator: Accelerator) -> dict[int, int]:
    """Give each device a seed of its own, and a draw; the seeds by device."""
    seeds = {index: 100 + index for index in _places(accelerator)}
    for index, seed in seeds.items():
        accelerator.default_generator(index).manual_seed(seed)
        _drawn(accelerator, index)
    return seeds


def _require_seeded(accelerator: Accelerator, index: int, seed: int, what: str) -> None:
    generator = accelerator.default_generator(index)
    told = generator.initial_seed()
    require(
        told == seed,
        f"after {what} the seed of default_generator({index}) is {told}; expected {seed}",
    )
    with accelerator.device_guard(index):
        told = accelerator.initial_seed()
    require(
        told == seed,
        f"after {what} initial_seed() of device {index} gave {told}; expected {seed}",
    )
    told = accelerator.initial_seed(index)
    require(
        told == seed, f"after {what} initial_seed({index}) gave {told}; expected {seed}"
    )
    state = accelerator.get_rng_state(index)
    generator.manual_seed(seed)
    fresh = torch.equal(state, accelerator.get_rng_state(index))
    require(
        fresh,
        f"after {what} device {index} does not begin with its first random number",
    )


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
        said = f"torch.rand(16, device=device(0)) gave {first[:2]}…"
        require(
            first == again,
            f"after manual_seed(3) {said}, and after the same once more {again[:2]}…",
        )
        require(
            first != second, f"{said} twice in a row: its generator does not advance"
        )
        require(first != other, f"{said} after manual_seed(3) and after manual_seed(4)")

    def test_seed_is_told(self, accelerator: Accelerator) -> None:
        """`initial_seed` returns the seed that was set."""
        for seed in (1234, 4321, 0, 1, 2**32 + 5, 2**63 - 1):
            drawn = []
            for _ in range(2):
                accelerator.manual_seed(seed)
                told = accelerator.initial_seed()
                require(
                    told == seed,
                    f"after manual_seed({seed}) initial_seed() gave {told}",
                )
                drawn.append(_drawn(accelerator))
            require(
                drawn[0] == drawn[1],
                f"manual_seed({seed}) twice: {drawn[0][:2]}…, then {drawn[1][:2]}…",
            )
        accelerator.manual_seed(5)
        of_five = _drawn(accelerator)
        try:
            accelerator.manual_seed(-5)
        except Exception:
            return  # some take no negative seed
        require(
            _drawn(accelerator) != of_five,
            "manual_seed(-5) and manual_seed(5) draw the same numbers",
        )

    def test_all_devices_are_seeded(self, accelerator: Accelerator) -> None:
        """`manual_seed_all` seeds every device alike, `manual_seed` the current one alone."""
        places = _places(accelerator)
        module: Any = getattr(torch, accelerator.device_type, None)
        ways: dict[str, Callable[[int], object]] = {
            "manual_seed_all": accelerator.manual_seed_all
        }
        # torch seeds these and the PrivateUse1 device (torch/random.py), and hpu, a type of its own, not.
        if accelerator.device_type in (
            "cuda",
            "mps",
            "xpu",
            torch._C._get_privateuse1_backend_name(),
        ):
            ways["torch.manual_seed"] = torch.manual_seed
        if hasattr(module, "manual_seed_all"):
            ways[f"torch.{accelerator.device_type}.manual_seed_all"] = (
                module.manual_seed_all
            )
        for name, seed_all in ways.items():
            for current in dict.fromkeys((places[0], places[-1])):
                for seed in (5, 2**40 + 9):
                    _unlike(accelerator)
                    accelerator.set_device(current)
                    seed_all(seed)
                    what = f"{name}({seed}) on device {current}"
                    now = accelerator.current_device()
                    require(now == current, f"{what} made {now} the current device")
                    for index in places:
                        _require_seeded(accelerator, index, seed, what)
        if hasattr(module, "seed_all"):
            before = _unlike(accelerator)
            module.seed_all()
            same = [
                index
                for index in places
                if accelerator.default_generator(index).initial_seed() == before[index]
            ]
            require(
                not same,
                f"torch.{accelerator.device_type}.seed_all() left the seed of device {same}",
            )
        for current in places:
            before = _unlike(accelerator)
            accelerator.set_device(current)
            accelerator.manual_seed(6)
            what = f"manual_seed(6) on device {current}"
            _require_seeded(accelerator, current, 6, what)
            for index in (i for i in places if i != current):
                told = accelerator.default_generator(index).initial_seed()
                require(
                    told == before[index],
                    f"{what} seeded device {index} too: its seed is {told}",
                )
                told = accelerator.initial_seed(index)
                require(
                    told == before[index],
                    f"{what}: initial_seed({index}) gave {told}, not that device's",
                )

    def test_state_restores(self, accelerator: Accelerator) -> None:
        """A restored state draws the same numbers again, whatever was drawn since, on that device alone."""
        places = _places(accelerator)
        _unlike(accelerator)
        every = accelerator.get_rng_state_all()
        count = accelerator.device_count()
        require(
            type(every) is list,
            f"get_rng_state_all() gave a {type(every).__name__}; expected a list",
        )
        require(
            len(every) == count,
            f"get_rng_state_all() gave {len(every)} states of {count} devices",
        )
        for index in places:
            state = accelerator.get_rng_state(index)
            same = torch.equal(every[index], state)
            require(
                same,
                f"get_rng_state_all()[{index}] is not what get_rng_state({index}) gave",
            )
            kept = state.clone()
            first = _drawn(accelerator, index)
            require(
                torch.equal(state, kept),
                f"the state that get_rng_state({index}) gave changed with a draw",
            )
            _drawn(accelerator, index)
            others = {
                other: accelerator.get_rng_state(other)
                for other in places
                if other != index
            }
            accelerator.set_rng_state(state, index)
            require(
                _drawn(accelerator, index) == first,
                f"set_rng_state(state, {index}) did not restore it",
            )
            for other, before in others.items():
                same = torch.equal(accelerator.get_rng_state(other), before)
                require(
                    same,
                    f"set_rng_state(state, {index}) changed the generator of device {other}",
                )
            moved = state.to(
                accelerator.device(index)
            )  # as torch.load(map_location=…) moves it
            accelerator.set_rng_state(moved, index)
            same = _drawn(accelerator, index) == first
            require(
                same,
                f"set_rng_state of a state that is on device {index} did not restore it",
            )
        foreign = torch.arange(23, dtype=torch.uint8)  # of no kind of device
        what = "set_rng_state of a state of 23 bytes"
        refused(lambda: accelerator.set_rng_state(foreign), ValueError, what)
        for index in places:
            seeded = []
            for state in (foreign, foreign, foreign + 1):
                accelerator.set_rng_state(state, index, strict=False)
                seeded.append(_drawn(accelerator, index))
            said = f"{what} on device {index}, with strict=False,"
            require(
                seeded[0] == seeded[1], f"{said} draws other numbers at each repetition"
            )
            require(
                seeded[1] != seeded[2],
                f"{said} draws the same numbers as of another such state",
            )
        rows = torch.stack([torch.zeros_like(every[0]), accelerator.get_rng_state(0)])
        first = _drawn(accelerator)
        accelerator.set_rng_state(rows[1], 0)
        require(
            _drawn(accelerator) == first,
            "set_rng_state of a row of several states did not restore it",
        )
        for index in places:
            with accelerator.device_guard(index):
                state = accelerator.get_rng_state()
                first = _drawn(accelerator, index)
                accelerator.set_rng_state(new_state=state)
                same = _drawn(accelerator, index) == first
            require(
                same,
                f"set_rng_state(state) did not restore the current device's, device {index}",
            )

    def test_fork_rng_restores(self, accelerator: Accelerator) -> None:
        """Drawing inside `fork_rng` changes no random numbers outside it, on devices or host, nested or after
        an error.
        """
        places = _places(accelerator)
        last = places[-1]

        def states() -> dict[str, torch.Tensor]:
            host = {"the host": torch.get_rng_state()}
            return {
                **host,
                **{
                    f"device {index}": accelerator.get_rng_state(index)
                    for index in places
                },
            }

        def draw() -> None:
            torch.rand(1)
            for index in places:
                _drawn(accelerator, index)

        def compare(
            before: dict[str, torch.Tensor], what: str, but: tuple[str, ...] = ()
        ) -> None:
            for name, state in states().items():
                same = torch.equal(state, before[name])
                words = (
                    "in another state"
                    if name not in but
                    else "restored, which was not given"
                )
                require(
                    same is (name not in but),
                    f"after {what} the generator of {name} is {words}",
                )

        accelerator.manual_seed_all(7)
        before = states()
        with accelerator.fork_rng():
            draw()
            inner = states()
            with accelerator.fork_rng():
                draw()
            compare(inner, "fork_rng() inside fork_rng()")
            accelerator.manual_seed_all(8)
        compare(before, "fork_rng() with another in it")
        for devices in (None, iter([0])):
            with contextlib.suppress(KeyError), accelerator.fork_rng(devices=devices):
                accelerator.manual_seed(9)
                torch.rand(1)
                raise KeyError
            compare(before, "an error in fork_rng()")
        if accelerator.is_accelerator():  # whose generators are not the host's
            with accelerator.fork_rng(devices=[]):
                draw()
            compare(
                before, "fork_rng(devices=[])", tuple(f"device {i}" for i in places)
            )
            before = states()
        with accelerator.fork_rng(devices=[last]):
            draw()
        compare(
            before,
            f"fork_rng(devices=[{last}])",
            tuple(f"device {i}" for i in places if i != last),
        )

    def test_generator_is_the_devices(self, accelerator: Accelerator) -> None:
        """Kernels draw from `default_generator`: seeding it seeds them."""
        for index in _places(accelerator):
            with accelerator.device_guard(index):
                accelerator.default_generator(index).manual_seed(9)
                first = _drawn(accelerator, index)
                for given in (index, None):
                    accelerator.default_generator(given).manual_seed(9)
                    require(
                        _drawn(accelerator, index) == first,
                        f"seeding default_generator({given}), device {index} selected, does not seed what is "
                        "drawn there",
                    )

    def test_numbers_are_as_asked(self, accelerator: Accelerator) -> None:
        """Random numbers lie in their range and have their mean and spread: a wrong scale trains worse. Each
        operator draws new ones.
        """
        place, count = accelerator.device(), 20_000
        accelerator.manual_seed(11)
        permuted = torch.randperm(501, device=place).cpu().sort().values
        require(
            torch.equal(permuted, torch.arange(501)),
            "randperm(501) does not hold each number once",
        )
        chosen = torch.multinomial(torch.ones(40, device=place), 30).tolist()
        require(
            len(set(chosen)) == 30,
            f"multinomial(ones(40), 30), without replacement, gave {chosen}",
        )
        below = torch.empty(count, device=place).random_(2, 5).cpu()
        require(
            (below.min().item(), below.max().item()) == (2, 4),
            f"random_(2, 5) gave numbers from {below.min():g} to {below.max():g}; expected 2 to 4",
        )
        integers = torch.randint(-3, 4, (count,), device=place).cpu()
        least, most = int(integers.min()), int(integers.max())
        require(
            (least, most) == (-3, 3),
            f"randint(-3, 4) gave numbers from {least} to {most}; expected -3 to 3",
        )
        kept = torch.nn.functional.dropout(
            torch.ones(count, device=place), 0.25, training=True
        ).cpu()
        told = sorted(set(kept.tolist()))
        fits = len(told) == 2 and told[0] == 0 and abs(told[1] - 4 / 3) < 1e-5
        require(
            fits, f"dropout(0.25) of ones gave {told[:4]}; expected 0 and {4 / 3:.4f}"
        )
        room = torch.empty(count, device=place)
        made: dict[str, tuple[torch.Tensor, float, float]] = {
            "rand": (torch.rand(count, device=place), 0.5, 12**-0.5),
            "randn": (torch.randn(count, device=place), 0.0, 1.0),
            "uniform_(-2, 4)": (room.clone().uniform_(-2, 4), 1.0, 6 * 12**-0.5),
            "normal_(3, 2)": (room.clone().normal_(3, 2), 3.0, 2.0),
            "bernoulli_(0.25)": (room.clone().bernoulli_(0.25), 0.25, (3 / 16) ** 0.5),
            "exponential_(2)": (room.clone().exponential_(2), 0.5, 0.5),
            "what dropout(0.25) keeps": (kept.gt(0).float(), 0.75, (3 / 16) ** 0.5),
        }
        for what, (numbers, mean, spread) in made.items():
            host = numbers.cpu().double()
            now, width = float(host.mean()), float(host.std())
            # Eight standard errors: no seed is that unlucky.
            near = (
                abs(now - mean) < 8 * spread / count**0.5
                and abs(width / spread - 1) < 0.08
            )
            require(
                near,
                f"{what}: mean {now:.3f}, deviation {width:.3f}; expected {mean:.3f}, {spread:.3f}",
            )
        for what, low, high in (("rand", 0.0, 1.0), ("uniform_(-2, 4)", -2.0, 4.0)):
            host = made[what][0].cpu()
            inside = bool(((host >= low) & (host < high)).all())
            require(
                inside,
                f"{what} gave {float(host.min())} to {float(host.max())}; expected [{low}, {high})",
            )
        every_draw_is_new(accelerator)

    def test_host_is_left_alone(self, accelerator: Accelerator) -> None:
        """Drawing on the device, and seeding it, leave the host's generator unchanged."""
        if not accelerator.is_accelerator():
            not_claimed("the device is the host")
        before = torch.get_rng_state()
        _drawn(accelerator)
        accelerator.manual_seed(10)
        same = torch.equal(torch.get_rng_state(), before)
        require(
            same,
            "torch.rand on the device, then manual_seed(10): torch.get_rng_state() of the host changed",
        )

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
        require(
            torch.equal(masks[0], masks[1]),
            "checkpoint() drew another dropout mask in the backward pass: "
            "get_rng_state and set_rng_state, of torch's module of the device too, must restore it",
        )
