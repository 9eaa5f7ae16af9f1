"""Kernels against the processor's in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.compute.compared import BOUNDS, blamed
from accel_testing.conformance.subject import Subject

__all__ = ["TestArithmetic"]

_OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b.abs() + 1),
    "matmul": lambda a, b: a @ b.T,
    "sum": lambda a, _: a.sum(1),
    "mean": lambda a, _: a.mean(0),
    "max": lambda a, _: a.amax(1),
    "exp": lambda a, _: a.exp(),
    "tanh": lambda a, _: a.tanh(),
    "gelu": lambda a, _: functional.gelu(a),
    "softmax": lambda a, _: a.softmax(1),
    "layer_norm": lambda a, _: functional.layer_norm(a, a.shape[-1:]),
    "cat": lambda a, b: torch.cat([a, b], 1),
    "transpose": lambda a, _: a.T.contiguous(),
    "index": lambda a, _: a[torch.arange(0, 24, 2, device=a.device)],
    "where": lambda a, b: torch.where(a > b, a, b),
    "attention": lambda a, b: functional.scaled_dot_product_attention(
        a[None, None], b[None, None], b[None, None]
    ),
}


class TestArithmetic(Subject):
    """Results in every supported data type are right."""

    def test_claimed_dtypes_compute(self, accelerator: Accelerator) -> None:
        """In each supported data type, common operators give the CPU's results, within bounds."""
        claimed = list(accelerator.supported_dtypes())
        if accelerator.is_fp64_supported():
            claimed.append(torch.float64)
        generator = torch.Generator().manual_seed(0)
        left, right = (
            torch.randn(24, 48, generator=generator),
            torch.randn(24, 48, generator=generator),
        )
        faults = []
        for dtype in claimed:
            a, b = left.to(dtype), right.to(dtype)
            for name, operator in _OPERATORS.items():
                expected = operator(a.double(), b.double())
                here = a.to(accelerator.device()), b.to(accelerator.device())
                try:
                    given = operator(*here)
                except Exception as error:
                    words = f"{type(error).__name__}: {str(error)[:100]}{blamed(operator, *here)}"
                    faults.append(f"{name} in {dtype}: {words}")
                    continue
                found = _fault(f"{name} in {dtype}", given, expected, dtype)
                faults.extend(f"{fault}{blamed(operator, *here)}" for fault in found)
        require(not faults, "; ".join(faults))

    def test_integers_are_exact(self, accelerator: Accelerator) -> None:
        """Integers and booleans come out exactly: indices, masks and token numbers."""
        host = torch.arange(-8, 8, dtype=torch.int64)
        here = host.to(accelerator.device())
        operators: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "multiplied": lambda t: t * 3 - 1,
            "divided": lambda t: t // 3,
            "compared": lambda t: t > 2,
            "summed up": lambda t: t.cumsum(0),
            "sorted": lambda t: t.flip(0).sort().values,
            "in int32": lambda t: t.to(torch.int32) * 2,
            "as uint8": lambda t: t.abs().to(torch.uint8),
        }
        for name, operator in operators.items():
            given, expected = operator(here).cpu(), operator(host)
            told = f"integers {name}: {given.tolist()}; expected {expected.tolist()}"
            require(torch.equal(given, expected), told + blamed(operator, here))

    def test_gradients(self, accelerator: Accelerator) -> None:
        """A small network's gradients are the processor's, in float32 within the bound."""
        generator = torch.Generator().manual_seed(1)
        data = torch.randn(16, 12, generator=generator)

        def gradients(device: torch.device | str) -> list[torch.Tensor]:
            torch.manual_seed(2)
            network = nn.Sequential(
                nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3)
            )
            network.to(device)
            torch.autograd.backward(
                functional.cross_entropy(
                    network(data.to(device)), torch.arange(16, device=device) % 3
                )
            )
            return [p.grad.cpu() for p in network.parameters() if p.grad is not None]

        ours, theirs = gradients(accelerator.device()), gradients("cpu")
        require(
            len(ours) == len(theirs),
            f"{len(ours)} parameters have gradients, of {len(theirs)}",
        )
        faults = [
            fault
            for place, (given, expected) in enumerate(zip(ours, theirs, strict=True))
            for fault in _fault(
                f"gradient {place}", given, expected.double(), torch.float32
            )
        ]
        where = blamed(lambda: gradients(accelerator.device())) if faults else ""
        require(
            not faults,
            f"Linear, GELU, LayerNorm, Linear, cross_entropy: {'; '.join(faults)}{where}",
        )

    def test_optimizer_steps(self, accelerator: Accelerator) -> None:
        """Five steps of AdamW and SGD end where the processor's do, within the bound."""

        def trained(
            device: torch.device | str, kind: Callable[..., torch.optim.Optimizer]
        ) -> torch.Tensor:
            weight = nn.Parameter(torch.linspace(-1, 1, 32).to(device))
            optimizer = kind([weight], lr=0.1)
            for step in range(5):
                optimizer.zero_grad()
                torch.autograd.backward((weight * (step + 1)).sin().sum())
                optimizer.step()
            return weight.detach().cpu()

        for kind in (
            torch.optim.AdamW,
            partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1, foreach=True),
        ):
            ours, theirs = (
                trained(accelerator.device(), kind),
                trained("cpu", kind).double(),
            )
            faults = _fault("the weight", ours, theirs, torch.float32)
            where = (
                blamed(lambda k=kind: trained(accelerator.device(), k))
                if faults
                else ""
            )
            require(
                not faults, f"after five steps of {kind} {'; '.join(faults)}{where}"
            )

    def test_copies(self, accelerator: Accelerator) -> None:
        """Data copied to the device come back the same, in parts too, and by way of another device."""
        host = torch.arange(60.0).reshape(3, 4, 5)
        for name, given in {
            "whole": host, "transposed": host.transpose(0, 2), "every second": host[:, ::2],
            "one number": host[1, 2, 3],
        }.items():  # fmt: skip
            back = given.to(accelerator.device()).cpu()
            require(
                torch.equal(back, given),
                f"a tensor, {name}, comes back as {back.flatten()[:6].tolist()}",
            )
        for index in range(1, accelerator.device_count()):
            back = host.to(accelerator.device(0)).to(accelerator.device(index)).cpu()
            require(
                torch.equal(back, host), f"from device 0 to {index} the numbers change"
            )

    def test_saved_tensors_load(self, accelerator: Accelerator) -> None:
        """A checkpoint of the device's tensors loads on the processor and comes back to the device."""
        import io

        file = io.BytesIO()
        state = {"weight": torch.arange(6.0, device=accelerator.device()), "step": 3}
        torch.save(state, file)
        file.seek(0)
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        require(
            loaded["weight"].tolist() == [0, 1, 2, 3, 4, 5],
            f"loaded: {loaded['weight'].tolist()}",
        )
        again = loaded["weight"].to(accelerator.device())
        require(
            accelerator.on_accelerator(again),
            f"after .to(device()) it is on {again.device}",
        )

    def test_training_resumes(self, accelerator: Accelerator) -> None:
        """A model and its optimizer, saved and loaded, go on as if training had never stopped."""
        import io

        def made() -> tuple[nn.Module, torch.optim.Optimizer]:
            torch.manual_seed(3)
            network = nn.Linear(8, 4).to(accelerator.device())
            return network, torch.optim.AdamW(network.parameters(), lr=0.1)

        def step(
            network: nn.Module, optimizer: torch.optim.Optimizer, number: int
        ) -> None:
            optimizer.zero_grad()
            data = torch.linspace(-1, number, 16, device=accelerator.device()).reshape(
                2, 8
            )
            torch.autograd.backward(network(data).square().mean())
            optimizer.step()

        network, optimizer = made()
        for number in (1, 2):
            step(network, optimizer, number)
        file = io.BytesIO()
        torch.save([network.state_dict(), optimizer.state_dict()], file)
        step(network, optimizer, 3)
        expected = [parameter.detach().cpu() for parameter in network.parameters()]
        for place in (accelerator.device_name(), "cpu"):
            file.seek(0)
            of_network, of_optimizer = torch.load(file, map_location=place)
            network, optimizer = made()
            network.load_state_dict(of_network)
            optimizer.load_state_dict(of_optimizer)
            step(network, optimizer, 3)
            for given, kept in zip(network.parameters(), expected, strict=True):
                same = torch.equal(given.detach().cpu(), kept)
                require(
                    same,
                    f"loaded with map_location={place!r}, the third step gives other numbers",
                )

    def test_float64_is_refused_where_it_is_not(self, accelerator: Accelerator) -> None:
        """Without float64, `DoubleTensor` raises UnsupportedError instead of silently using float32."""
        from accel_core.errors import UnsupportedError
        from accel_testing.conformance.claims import refused

        if accelerator.is_fp64_supported():
            not_claimed("the device has float64")
        refused(
            lambda: accelerator.DoubleTensor([1.0]),
            UnsupportedError,
            "DoubleTensor([1.0])",
        )

    def test_autocast(self, accelerator: Accelerator) -> None:
        """`autocast` computes products in the given type, and does nothing if it is disabled."""
        ones = torch.ones(8, 8, device=accelerator.device())
        for dtype in accelerator.supported_dtypes()[1:]:
            with accelerator.autocast(dtype):
                inside = (ones @ ones).dtype
            require(
                inside is dtype, f"inside autocast({dtype}) a product is of {inside}"
            )
            with accelerator.autocast(dtype, enabled=False):
                inside = (ones @ ones).dtype
            require(
                inside is torch.float32,
                f"inside autocast({dtype}, enabled=False) a product is of {inside}",
            )
        usual = torch.get_autocast_dtype(accelerator.device_type)
        with accelerator.autocast():
            inside = (ones @ ones).dtype
            beside = accelerator.is_accelerator() and torch.is_autocast_enabled("cpu")
            kept = torch.is_autocast_cache_enabled()
        require(
            inside is usual,
            f"inside autocast() a product is of {inside}; torch has {usual}",
        )
        require(
            not beside,
            "inside autocast() torch casts on the processor too; expected this device alone",
        )
        require(
            kept,
            "inside autocast() torch keeps nothing that it casts; expected its usual cache",
        )
        after = (ones @ ones).dtype
        require(after is torch.float32, f"after autocast a product is of {after}")
        try:
            with accelerator.autocast():
                raise KeyError
        except KeyError:
            pass
        still = torch.is_autocast_enabled(accelerator.device_type)
        require(not still, "after an error inside it autocast is still on")
        weight, made = (
            torch.ones(8, 8, device=accelerator.device(), requires_grad=True),
            [],
        )
        again = accelerator.autocast()
        for _ in range(2):
            with again:
                product = ones @ weight
            require(
                product.requires_grad,
                "inside autocast() a product with a weight requires no gradient",
            )
            made.append(product.sum().item())
            with torch.no_grad():
                weight.mul_(2)
        require(
            made[1] == 2 * made[0],
            f"inside autocast() a product adds up to {made[0]:g}, and inside the next, after the weight was "
            f"doubled, to {made[1]:g}; expected {2 * made[0]:g}: what was cast is kept too long",
        )

    def test_autocasts_nest(self, accelerator: Accelerator) -> None:
        """After an inner `autocast` the outer one is as before, its type too, even after an error."""
        ones, kind = (
            torch.ones(8, 8, device=accelerator.device()),
            accelerator.device_type,
        )
        types = accelerator.supported_dtypes()[1:]
        if not types:
            not_claimed("float32 is the only type to train in")
        usual = torch.get_autocast_dtype(kind)
        for outer, inner in ((types[0], types[-1]), (types[-1], types[0])):
            for enabled in (True, False):
                what = f"autocast({inner}, enabled={enabled}) inside autocast({outer})"
                with accelerator.autocast(outer):
                    for how in ("", "an error in "):
                        with (
                            contextlib.suppress(KeyError),
                            accelerator.autocast(inner, enabled=enabled),
                        ):
                            now = (ones @ ones).dtype
                            if how:
                                raise KeyError
                        wanted = inner if enabled else torch.float32
                        require(
                            now is wanted,
                            f"inside {what} a product is of {now}; expected {wanted}",
                        )
                        now = (ones @ ones).dtype
                        require(
                            now is outer,
                            f"after {how}{what} a product is of {now}; expected {outer}",
                        )
                now = (ones @ ones).dtype
                require(
                    now is torch.float32,
                    f"after both, {what}, a product is of {now}; expected float32",
                )
                left = torch.get_autocast_dtype(kind)
                require(
                    left is usual,
                    f"after {what} torch.get_autocast_dtype({kind!r}) is {left}, was {usual}",
                )

    def test_scaled_losses(self, accelerator: Accelerator) -> None:
        """A step in float16 with `grad_scaler` scales the loss, not the weights; in other types it is off."""
        for dtype in (torch.bfloat16, torch.float32):
            on = accelerator.grad_scaler(dtype).is_enabled()
            require(on is False, f"grad_scaler({dtype}).is_enabled() gave {on!r}")
        best, on = accelerator.training_dtype(), accelerator.grad_scaler().is_enabled()
        require(
            on is (best is torch.float16),
            f"grad_scaler().is_enabled() gave {on!r}, to train in {best}",
        )
        on = accelerator.grad_scaler(torch.float16, enabled=False).is_enabled()
        require(
            on is False, f"grad_scaler(float16, enabled=False).is_enabled() gave {on!r}"
        )
        if not accelerator.is_fp16_supported():
            not_claimed("no training in float16")
        weight = nn.Parameter(torch.ones(2, device=accelerator.device()))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scaler = accelerator.grad_scaler(torch.float16, init_scale=8.0)
        torch.autograd.backward(scaler.scale(weight.sum()))
        scaled = weight.grad.tolist() if weight.grad is not None else None
        require(
            scaled == [8.0, 8.0],
            f"with a scale of 8 the gradients of a sum are {scaled}",
        )
        scaler.step(optimizer)
        scaler.update()
        require(
            weight.tolist() == [0.5, 0.5],
            f"after the step the weights are {weight.tolist()}",
        )
        for wrong in ("inf", "nan"):
            before = scaler.get_scale()
            optimizer.zero_grad()
            torch.autograd.backward(
                scaler.scale(
                    (weight * torch.tensor([1.0, float(wrong)]).to(weight.device)).sum()
                )
            )
            scaler.step(optimizer)
            scaler.update()
            kept = weight.tolist()
            require(
                kept == [0.5, 0.5],
                f"a step whose gradient holds {wrong} made the weights {kept}",
            )
            scale = scaler.get_scale()
            first = accelerator.grad_scaler(torch.float16, init_scale=8.0).get_scale()
            require(
                first == 8.0,
                f"a new scaler with init_scale=8 begins at {first}, as another one stands",
            )
            require(
                scale < before,
                f"after a gradient with {wrong} the scale went from {before} to {scale}",
            )
        options: dict[str, Any] = {
            "init_scale": 8.0,
            "growth_factor": 4.0,
            "backoff_factor": 0.25,
            "growth_interval": 2,
        }
        scaler = accelerator.grad_scaler(torch.float16, **options)
        for factor, expected in (
            (1.0, 8.0),
            (1.0, 32.0),
            (float("inf"), 8.0),
            (1.0, 8.0),
        ):
            optimizer.zero_grad()
            torch.autograd.backward(scaler.scale((weight * factor).sum()))
            scaler.unscale_(optimizer)
            unscaled = weight.grad.tolist() if weight.grad is not None else None
            fits = factor != 1 or unscaled == [1.0, 1.0]
            require(
                fits,
                f"after unscale_ the gradients of a sum are {unscaled}; expected 1",
            )
            scaler.step(optimizer)
            scaler.update()
            scale = scaler.get_scale()
            told = f"grad_scaler(float16, {options}): after a step whose gradient is {factor} the scale is"
            require(scale == expected, f"{told} {scale}; expected {expected}")


def _fault(
    what: str, given: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype
) -> list[str]:
    if tuple(given.shape) != tuple(expected.shape):
        return [
            f"{what} has the shape {tuple(given.shape)}; expected {tuple(expected.shape)}"
        ]
    if given.dtype is not dtype:
        return [f"{what} is of {given.dtype}; expected {dtype}"]
    here = given.detach().cpu().double()
    largest = float(expected.abs().max().clamp_min(1e-6))
    error = float((here - expected).abs().max()) / largest
    # Not `error > bound`: that a number is missing, NaN, is a fault too.
    return (
        []
        if error <= BOUNDS[dtype]
        else [f"{what} is off by {error:.1e} of the largest, bound {BOUNDS[dtype]:.0e}"]
    )
