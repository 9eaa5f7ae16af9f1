"""Operators that draw random numbers; each must advance only the generator from which it draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.claims import require

__all__ = ["require_new_numbers"]

#: The number of random numbers in a draw; two draws of this size are never equal by chance.
_COUNT = 512

#: A function that draws random numbers.
_Draw = Callable[..., torch.Tensor]


def _with_generator(device: torch.device) -> dict[str, _Draw]:
    """Return the operators with an argument `generator`, by default the device's generator."""
    zeros = torch.zeros(_COUNT, device=device)
    halves = torch.full((_COUNT,), 0.5, device=device)
    shape: dict[str, Any] = {"size": (_COUNT,), "device": device}
    return {
        "torch.rand": lambda **g: torch.rand(**shape, **g),
        "torch.randn": lambda **g: torch.randn(**shape, **g),
        "torch.randint(1000)": lambda **g: torch.randint(1000, **shape, **g),
        "torch.randint(-9, 9)": lambda **g: torch.randint(-9, 9, **shape, **g),
        "torch.randperm": lambda **g: torch.randperm(_COUNT, device=device, **g),
        "torch.bernoulli": lambda **g: torch.bernoulli(halves, **g),
        "torch.poisson": lambda **g: torch.poisson(halves * 8, **g),
        "torch.binomial": lambda **g: torch.binomial(halves * 40, halves, **g),
        "torch.multinomial": lambda **g: torch.multinomial(halves, 64, **g),
        "torch.multinomial(replacement)": lambda **g: torch.multinomial(
            halves, _COUNT, replacement=True, **g
        ),
        "torch.multinomial of one": lambda **g: torch.multinomial(
            halves.expand(64, -1), 1, **g
        ),
        "torch.normal(tensor, 2.0)": lambda **g: torch.normal(halves, 2.0, **g),
        "torch.normal(1.0, tensor)": lambda **g: torch.normal(1.0, halves, **g),
        "torch.normal(tensor, tensor)": lambda **g: torch.normal(halves, halves, **g),
        "torch.normal(1.0, 2.0, size)": lambda **g: torch.normal(
            1.0, 2.0, **shape, **g
        ),
        "t.bernoulli_(0.5)": lambda **g: zeros.clone().bernoulli_(0.5, **g),
        "t.bernoulli_(tensor)": lambda **g: zeros.clone().bernoulli_(halves, **g),
        "t.uniform_()": lambda **g: zeros.clone().uniform_(**g),
        "t.normal_()": lambda **g: zeros.clone().normal_(**g),
        "t.exponential_()": lambda **g: zeros.clone().exponential_(**g),
        "t.log_normal_()": lambda **g: zeros.clone().log_normal_(**g),
        "t.geometric_(0.1)": lambda **g: zeros.clone().geometric_(0.1, **g),
        "t.cauchy_()": lambda **g: zeros.clone().cauchy_(**g),
        "t.random_()": lambda **g: zeros.clone().random_(**g),
        "t.random_(100)": lambda **g: zeros.clone().random_(100, **g),
        "t.random_(-50, 50)": lambda **g: zeros.clone().random_(-50, 50, **g),
        "t.half().uniform_()": lambda **g: zeros.half().uniform_(**g),
        "nn.init.trunc_normal_": lambda **g: torch.nn.init.trunc_normal_(
            zeros.clone(), **g
        ),
        "nn.init.kaiming_uniform_": lambda **g: torch.nn.init.kaiming_uniform_(
            zeros.clone().view(16, -1), **g
        ),
        "nn.init.xavier_normal_": lambda **g: torch.nn.init.xavier_normal_(
            zeros.clone().view(16, -1), **g
        ),
    }


def _without_generator(device: torch.device) -> dict[str, _Draw]:
    """Return the operators that can only draw from the device's generator."""
    ones = torch.ones(_COUNT, device=device)
    images = torch.ones(1, _COUNT, 2, 2, device=device)
    layer = torch.nn.Dropout(0.5)
    queries = torch.ones(1, 4, 16, 16, device=device).cumsum(-1) / 16
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
        "functional.dropout2d": lambda: functional.dropout2d(
            images, 0.5, training=True
        ),
        "functional.alpha_dropout": lambda: functional.alpha_dropout(
            ones, 0.5, training=True
        ),
        "functional.feature_alpha_dropout": lambda: functional.feature_alpha_dropout(
            images, 0.5, training=True
        ),
        "functional.rrelu": lambda: functional.rrelu(-ones, training=True),
        "functional.gumbel_softmax": lambda: functional.gumbel_softmax(ones, dim=0),
        "functional.scaled_dot_product_attention(dropout_p=0.5)": lambda: (
            functional.scaled_dot_product_attention(
                queries, queries, queries, dropout_p=0.5
            )
        ),
    }


def _try_draw(draw: _Draw, **options: Any) -> torch.Tensor | None:
    """Return the drawn numbers on the CPU; `None` if the device does not support the operator."""
    try:
        return draw(**options).detach().cpu()
    except Exception:
        return None


def require_new_numbers(accelerator: Accelerator) -> None:
    """Require that each random operator draws new numbers, and repeats them after the same seed."""
    device = accelerator.device(0)
    operators = _with_generator(device)
    for name, draw in {**operators, **_without_generator(device)}.items():
        _require_advance(accelerator, name, draw)
    try:
        generator = torch.Generator(device=device)
    except RuntimeError:  # the device only supports its default generator
        return
    for name, draw in operators.items():
        _require_own_generator(accelerator, generator, name, draw)


def _require_advance(accelerator: Accelerator, name: str, draw: _Draw) -> None:
    """Require that a second draw differs, and that both draws are repeated after the same seed."""
    accelerator.manual_seed(21)
    first = _try_draw(draw)
    if first is None:
        return
    second = draw().detach().cpu()
    accelerator.manual_seed(21)
    first_again = draw().detach().cpu()
    second_again = draw().detach().cpu()
    require(
        not torch.equal(first, second),
        f"{name} on {accelerator.device(0)} returned {_beginning(first)} twice in a row; expected other "
        "numbers: the operator does not advance the generator",
    )
    for which, numbers, again in (
        ("first", first, first_again),
        ("second", second, second_again),
    ):
        require(
            torch.equal(numbers, again),
            f"in the {which} call after manual_seed(21), {name} returned {_beginning(numbers)}, and after "
            f"another manual_seed(21) {_beginning(again)}; expected equal numbers",
        )


def _beginning(numbers: torch.Tensor) -> str:
    """Return the first four numbers as text."""
    return f"{numbers.flatten()[:4].tolist()}…"


def _require_own_generator(
    accelerator: Accelerator, generator: torch.Generator, name: str, draw: _Draw
) -> None:
    """Require that a draw with `generator` neither depends on nor changes the device's generator."""
    accelerator.manual_seed(22)
    generator.manual_seed(23)
    device_state = accelerator.get_rng_state(0)
    first = _try_draw(draw, generator=generator)
    if first is None:
        return
    second = draw(generator=generator).cpu()
    is_unchanged = torch.equal(accelerator.get_rng_state(0), device_state)
    accelerator.manual_seed(24)
    generator.manual_seed(23)
    first_again = draw(generator=generator).cpu()
    second_again = draw(generator=generator).cpu()
    operation = (
        f"{name} with generator=g, a torch.Generator on {accelerator.device(0)},"
    )
    require(
        is_unchanged,
        f"{operation} changed the state of the device's default generator; expected no change",
    )
    require(
        not torch.equal(first, second),
        f"{operation} returned {_beginning(first)} twice in a row; g does not advance",
    )
    for which, numbers, again in (
        ("first", first, first_again),
        ("second", second, second_again),
    ):
        require(
            torch.equal(numbers, again),
            f"in the {which} call after g.manual_seed(23), {operation} returned {_beginning(numbers)}, and "
            f"after another g.manual_seed(23) {_beginning(again)}; expected equal numbers, whatever the "
            "seed of the device",
        )
