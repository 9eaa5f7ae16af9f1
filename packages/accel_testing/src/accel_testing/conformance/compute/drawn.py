"""Operators that draw random numbers: each advances the generator that it draws from, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.claims import require

__all__ = ["every_draw_is_new"]

#: No two draws of so many coins are the same by chance.
_COUNT = 512

_Draw = Callable[..., torch.Tensor]


def _takes_generator(place: torch.device) -> dict[str, _Draw]:
    """Return the operators that take a `generator`; without one they draw from the device's."""
    room, half = (
        torch.zeros(_COUNT, device=place),
        torch.full((_COUNT,), 0.5, device=place),
    )
    many: dict[str, Any] = {"size": (_COUNT,), "device": place}
    return {
        "torch.rand": lambda **g: torch.rand(**many, **g),
        "torch.randn": lambda **g: torch.randn(**many, **g),
        "torch.randint(1000)": lambda **g: torch.randint(1000, **many, **g),
        "torch.randint(-9, 9)": lambda **g: torch.randint(-9, 9, **many, **g),
        "torch.randperm": lambda **g: torch.randperm(_COUNT, device=place, **g),
        "torch.bernoulli": lambda **g: torch.bernoulli(half, **g),
        "torch.poisson": lambda **g: torch.poisson(half * 8, **g),
        "torch.binomial": lambda **g: torch.binomial(half * 40, half, **g),
        "torch.multinomial": lambda **g: torch.multinomial(half, 64, **g),
        "torch.multinomial(replacement)": lambda **g: torch.multinomial(
            half, _COUNT, replacement=True, **g
        ),
        "torch.multinomial of one": lambda **g: torch.multinomial(
            half.expand(64, -1), 1, **g
        ),
        "torch.normal(tensor, 2.0)": lambda **g: torch.normal(half, 2.0, **g),
        "torch.normal(1.0, tensor)": lambda **g: torch.normal(1.0, half, **g),
        "torch.normal(tensor, tensor)": lambda **g: torch.normal(half, half, **g),
        "torch.normal(1.0, 2.0, size)": lambda **g: torch.normal(1.0, 2.0, **many, **g),
        "t.bernoulli_(0.5)": lambda **g: room.clone().bernoulli_(0.5, **g),
        "t.bernoulli_(tensor)": lambda **g: room.clone().bernoulli_(half, **g),
        "t.uniform_()": lambda **g: room.clone().uniform_(**g),
        "t.normal_()": lambda **g: room.clone().normal_(**g),
        "t.exponential_()": lambda **g: room.clone().exponential_(**g),
        "t.log_normal_()": lambda **g: room.clone().log_normal_(**g),
        "t.geometric_(0.1)": lambda **g: room.clone().geometric_(0.1, **g),
        "t.cauchy_()": lambda **g: room.clone().cauchy_(**g),
        "t.random_()": lambda **g: room.clone().random_(**g),
        "t.random_(100)": lambda **g: room.clone().random_(100, **g),
        "t.random_(-50, 50)": lambda **g: room.clone().random_(-50, 50, **g),
        "t.half().uniform_()": lambda **g: room.half().uniform_(**g),
        "nn.init.trunc_normal_": lambda **g: torch.nn.init.trunc_normal_(
            room.clone(), **g
        ),
        "nn.init.kaiming_uniform_": lambda **g: torch.nn.init.kaiming_uniform_(
            room.clone().view(16, -1), **g
        ),
        "nn.init.xavier_normal_": lambda **g: torch.nn.init.xavier_normal_(
            room.clone().view(16, -1), **g
        ),
    }


def _takes_none(place: torch.device) -> dict[str, _Draw]:
    """Return the operators that draw from the device's generator alone."""
    ones = torch.ones(_COUNT, device=place)
    maps = torch.ones(1, _COUNT, 2, 2, device=place)
    layer = torch.nn.Dropout(0.5)
    heads = torch.ones(1, 4, 16, 16, device=place).cumsum(-1) / 16
    return {
        "torch.rand_like": lambda: torch.rand_like(ones),
        "torch.randn_like": lambda: torch.randn_like(ones),
        "torch.randint_like": lambda: torch.randint_like(ones, 1000),
        "functional.dropout": lambda: functional.dropout(ones, 0.5, training=True),
        "functional.dropout of float16": lambda: functional.dropout(
            ones.half(), 0.5, training=True
        ),
        "functional.dropout(inplace=True)": lambda: functional.dropout(
            ones.clone(), 0.5, True, inplace=True
        ),
        "functional.dropout with a gradient": lambda: functional.dropout(
            ones.clone().requires_grad_(), 0.5
        ),
        "nn.Dropout": lambda: layer(ones),
        "torch.native_dropout": lambda: torch.native_dropout(ones, 0.5, True)[0],
        "functional.dropout2d": lambda: functional.dropout2d(maps, 0.5, training=True),
        "functional.alpha_dropout": lambda: functional.alpha_dropout(
            ones, 0.5, training=True
        ),
        "functional.feature_alpha_dropout": lambda: functional.feature_alpha_dropout(
            maps, 0.5, training=True
        ),
        "functional.rrelu": lambda: functional.rrelu(-ones, training=True),
        "functional.gumbel_softmax": lambda: functional.gumbel_softmax(ones, dim=0),
        "functional.scaled_dot_product_attention(dropout_p=0.5)": lambda: (
            functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)
        ),
    }


def _run(draw: _Draw, **given: Any) -> torch.Tensor | None:
    """Return the numbers on the host; `None` if the device lacks the operator, in whose words ever."""
    try:
        return draw(**given).detach().cpu()
    except Exception:
        return None


def every_draw_is_new(accelerator: Accelerator) -> None:
    """Require of each random operator new numbers at each call, and the same ones after the same seed."""
    place = accelerator.device(0)
    takers = _takes_generator(place)
    for name, draw in {**takers, **_takes_none(place)}.items():
        _advances(accelerator, name, draw)
    try:
        own = torch.Generator(device=place)
    except RuntimeError:  # the device has its own alone
        return
    for name, draw in takers.items():
        _draws_from(accelerator, own, name, draw)


def _advances(accelerator: Accelerator, name: str, draw: _Draw) -> None:
    accelerator.manual_seed(21)
    if (first := _run(draw)) is None:
        return
    second = draw().detach().cpu()
    accelerator.manual_seed(21)
    again = [draw().detach().cpu() for _ in range(2)]
    begins = first.flatten()[:4].tolist()
    require(
        not torch.equal(first, second),
        f"{name} on {accelerator.device(0)} gave {begins}… twice in a row; expected other numbers: the "
        "operator does not advance the generator",
    )
    for which, one, other in (("first", first, again[0]), ("second", second, again[1])):
        require(
            torch.equal(one, other),
            f"manual_seed(21), {name} twice: the {which} draw gave {one.flatten()[:4].tolist()}…, and after "
            f"the same once more {other.flatten()[:4].tolist()}…; expected the same",
        )


def _draws_from(
    accelerator: Accelerator, own: torch.Generator, name: str, draw: _Draw
) -> None:
    accelerator.manual_seed(22)
    own.manual_seed(23)
    usual = accelerator.get_rng_state(0)
    if (first := _run(draw, generator=own)) is None:
        return
    second = draw(generator=own).cpu()
    untouched = torch.equal(accelerator.get_rng_state(0), usual)
    accelerator.manual_seed(24)
    own.manual_seed(23)
    again = [draw(generator=own).cpu() for _ in range(2)]
    said = f"{name} with generator=g, a torch.Generator on {accelerator.device(0)},"
    begins = first.flatten()[:4].tolist()
    require(
        untouched,
        f"{said} changed the state of the device's own generator; expected no change",
    )
    require(
        not torch.equal(first, second),
        f"{said} gave {begins}… twice in a row; g does not advance",
    )
    for which, one, other in (("first", first, again[0]), ("second", second, again[1])):
        require(
            torch.equal(one, other),
            f"g.manual_seed(23), {said} twice: the {which} draw gave {one.flatten()[:4].tolist()}…, and "
            f"after the same once more {other.flatten()[:4].tolist()}…; expected the same, whatever the seed "
            "of the device",
        )
