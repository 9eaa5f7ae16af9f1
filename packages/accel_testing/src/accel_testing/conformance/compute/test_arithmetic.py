"""Checks that operators, training steps and autocast in each type give the CPU's results."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from accel_core import Accelerator, UnsupportedError
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import (
    BrokenPromise,
    require,
    require_raises,
    skip_unsupported,
)
from accel_testing.conformance.compute.comparison import TOLERANCES, find_wrong_kernel

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


class TestArithmetic(BackendTestBase):
    """Results in every supported data type are correct."""

    def test_claimed_dtypes_compute(self, accelerator: Accelerator) -> None:
        """In each supported data type, common operators give the CPU's results within the tolerance."""
        claimed = list(accelerator.supported_dtypes())
        if accelerator.is_fp64_supported():
            claimed.append(torch.float64)
        generator = torch.Generator().manual_seed(0)
        left = torch.randn(24, 48, generator=generator)
        right = torch.randn(24, 48, generator=generator)
        problems = []
        for dtype in claimed:
            a, b = left.to(dtype), right.to(dtype)
            for name, operator in _OPERATORS.items():
                expected = operator(a.double(), b.double())
                arguments = a.to(accelerator.device()), b.to(accelerator.device())
                try:
                    result = operator(*arguments)
                except Exception as error:
                    message = f"{type(error).__name__}: {str(error)[:100]}"
                    kernel = find_wrong_kernel(operator, *arguments)
                    problems.append(f"{name} in {dtype}: {message}{kernel}")
                    continue
                problem = _describe_error(f"{name} in {dtype}", result, expected, dtype)
                if problem:
                    problems.append(problem + find_wrong_kernel(operator, *arguments))
        require(not problems, "; ".join(problems))

    def test_integers_are_exact(self, accelerator: Accelerator) -> None:
        """Operators on integers and booleans, such as indices, masks and token ids, are exact."""
        host = torch.arange(-8, 8, dtype=torch.int64)
        on_device = host.to(accelerator.device())
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
            result, expected = operator(on_device).cpu(), operator(host)
            message = (
                f"integers {name}: {result.tolist()}; expected {expected.tolist()}"
            )
            require(
                torch.equal(result, expected),
                message + find_wrong_kernel(operator, on_device),
            )

    def test_gradients(self, accelerator: Accelerator) -> None:
        """The gradients of a small network in float32 agree with the CPU's within the tolerance."""
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
            return [
                parameter.grad.cpu()
                for parameter in network.parameters()
                if parameter.grad is not None
            ]

        results, references = gradients(accelerator.device()), gradients("cpu")
        require(
            len(results) == len(references),
            f"{len(results)} of {len(references)} parameters have gradients",
        )
        problems = []
        for number, (result, expected) in enumerate(
            zip(results, references, strict=True)
        ):
            problem = _describe_error(
                f"gradient {number}", result, expected.double(), torch.float32
            )
            if problem:
                problems.append(problem)
        kernel = ""
        if problems:
            kernel = find_wrong_kernel(lambda: gradients(accelerator.device()))
        require(
            not problems,
            f"Linear, GELU, LayerNorm, Linear, cross_entropy: {'; '.join(problems)}{kernel}",
        )

    def test_optimizer_steps(self, accelerator: Accelerator) -> None:
        """Five steps of AdamW and SGD give the CPU's parameters within the tolerance."""

        def train(
            device: torch.device | str, make: Callable[..., torch.optim.Optimizer]
        ) -> torch.Tensor:
            weight = nn.Parameter(torch.linspace(-1, 1, 32).to(device))
            optimizer = make([weight], lr=0.1)
            for step in range(5):
                optimizer.zero_grad()
                torch.autograd.backward((weight * (step + 1)).sin().sum())
                optimizer.step()
            return weight.detach().cpu()

        sgd = partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1, foreach=True)
        device = accelerator.device()
        for make in (torch.optim.AdamW, sgd):
            result, reference = train(device, make), train("cpu", make).double()
            problem = _describe_error("the weight", result, reference, torch.float32)
            if problem:
                kernel = find_wrong_kernel(partial(train, device, make))
                raise BrokenPromise(f"after five steps of {make} {problem}{kernel}")

    def test_copies(self, accelerator: Accelerator) -> None:
        """Copies of tensors and of their parts to the device, between devices and back are unchanged."""
        host = torch.arange(60.0).reshape(3, 4, 5)
        for form, tensor in {
            "whole": host, "transposed": host.transpose(0, 2), "every second": host[:, ::2],
            "one number": host[1, 2, 3],
        }.items():  # fmt: skip
            copied = tensor.to(accelerator.device()).cpu()
            require(
                torch.equal(copied, tensor),
                f"a tensor, {form}, is copied back as {copied.flatten()[:6].tolist()}",
            )
        for index in range(1, accelerator.device_count()):
            copied = host.to(accelerator.device(0)).to(accelerator.device(index)).cpu()
            require(
                torch.equal(copied, host),
                f"copying from device 0 to device {index} changed the numbers",
            )

    def test_saved_tensors_load(self, accelerator: Accelerator) -> None:
        """A checkpoint of the device's tensors can be loaded on the CPU and on the device."""
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
        """After a model and its optimizer were saved and loaded, training continues unchanged."""

        def create() -> tuple[nn.Module, torch.optim.Optimizer]:
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

        network, optimizer = create()
        for number in (1, 2):
            step(network, optimizer, number)
        file = io.BytesIO()
        torch.save([network.state_dict(), optimizer.state_dict()], file)
        step(network, optimizer, 3)
        expected = [parameter.detach().cpu() for parameter in network.parameters()]
        for map_location in (accelerator.device_name(), "cpu"):
            file.seek(0)
            network_state, optimizer_state = torch.load(file, map_location=map_location)
            network, optimizer = create()
            network.load_state_dict(network_state)
            optimizer.load_state_dict(optimizer_state)
            step(network, optimizer, 3)
            for result, reference in zip(network.parameters(), expected, strict=True):
                same = torch.equal(result.detach().cpu(), reference)
                require(
                    same,
                    f"loaded with map_location={map_location!r}, the third step gives different numbers",
                )

    def test_float64_is_refused_where_it_is_not(self, accelerator: Accelerator) -> None:
        """If float64 is unsupported, `DoubleTensor` raises UnsupportedError and does not use float32."""
        if accelerator.is_fp64_supported():
            skip_unsupported("the device supports float64")
        require_raises(
            lambda: accelerator.DoubleTensor([1.0]),
            UnsupportedError,
            "DoubleTensor([1.0])",
        )

    def test_autocast(self, accelerator: Accelerator) -> None:
        """`autocast` computes products in the given type, and has no effect if it is disabled."""
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
        default = torch.get_autocast_dtype(accelerator.device_type)
        with accelerator.autocast():
            inside = (ones @ ones).dtype
            casts_on_cpu = accelerator.is_accelerator() and torch.is_autocast_enabled(
                "cpu"
            )
            has_cache = torch.is_autocast_cache_enabled()
        require(
            inside is default,
            f"inside autocast(), a product has the type {inside}; torch's default is {default}",
        )
        require(
            not casts_on_cpu,
            "inside autocast(), torch also casts on the CPU; expected casts on this device only",
        )
        require(
            has_cache,
            "inside autocast(), torch does not cache casts; expected its usual cache",
        )
        after = (ones @ ones).dtype
        require(after is torch.float32, f"after autocast a product is of {after}")
        with contextlib.suppress(KeyError), accelerator.autocast():
            raise KeyError
        is_on = torch.is_autocast_enabled(accelerator.device_type)
        require(
            not is_on, "after an error inside autocast(), autocast is still enabled"
        )
        self._require_cache_ends_with_block(accelerator, ones)

    def _require_cache_ends_with_block(
        self, accelerator: Accelerator, ones: torch.Tensor
    ) -> None:
        """Require that a weight that changes between two blocks is cast again in the second block."""
        weight = torch.ones(8, 8, device=accelerator.device(), requires_grad=True)
        sums = []
        context = accelerator.autocast()
        for _ in range(2):
            with context:
                product = ones @ weight
            require(
                product.requires_grad,
                "inside autocast(), the product with a weight does not require a gradient",
            )
            sums.append(product.sum().item())
            with torch.no_grad():
                weight.mul_(2)
        first, second = sums
        require(
            second == 2 * first,
            f"inside autocast() a product adds up to {first:g}, and inside the next, after the weight was "
            f"doubled, to {second:g}; expected {2 * first:g}: the cached cast is kept too long",
        )

    def test_autocasts_nest(self, accelerator: Accelerator) -> None:
        """After an inner `autocast`, the outer `autocast` and its type are restored, even after an error."""
        ones = torch.ones(8, 8, device=accelerator.device())
        device_type = accelerator.device_type
        dtypes = accelerator.supported_dtypes()[1:]
        if not dtypes:
            skip_unsupported("the device trains in float32 only")
        default = torch.get_autocast_dtype(device_type)
        for outer, inner in ((dtypes[0], dtypes[-1]), (dtypes[-1], dtypes[0])):
            for enabled in (True, False):
                description = (
                    f"autocast({inner}, enabled={enabled}) inside autocast({outer})"
                )
                with accelerator.autocast(outer):
                    for ending in ("", "an error in "):
                        with (
                            contextlib.suppress(KeyError),
                            accelerator.autocast(inner, enabled=enabled),
                        ):
                            product_dtype = (ones @ ones).dtype
                            if ending:
                                raise KeyError
                        expected = inner if enabled else torch.float32
                        require(
                            product_dtype is expected,
                            f"inside {description} a product is of {product_dtype}; expected {expected}",
                        )
                        product_dtype = (ones @ ones).dtype
                        require(
                            product_dtype is outer,
                            f"after {ending}{description} a product is of {product_dtype}; expected {outer}",
                        )
                product_dtype = (ones @ ones).dtype
                require(
                    product_dtype is torch.float32,
                    f"after {description}, a product has the type {product_dtype}; expected float32",
                )
                default_after = torch.get_autocast_dtype(device_type)
                require(
                    default_after is default,
                    f"after {description} torch.get_autocast_dtype({device_type!r}) is {default_after}; "
                    f"expected {default}, as before",
                )

    def test_scaled_losses(self, accelerator: Accelerator) -> None:
        """In float16, `grad_scaler` scales the loss and not the weights; in other types it is disabled."""
        for dtype in (torch.bfloat16, torch.float32):
            is_on = accelerator.grad_scaler(dtype).is_enabled()
            require(
                is_on is False, f"grad_scaler({dtype}).is_enabled() returned {is_on!r}"
            )
        best = accelerator.training_dtype()
        is_on = accelerator.grad_scaler().is_enabled()
        require(
            is_on is (best is torch.float16),
            f"grad_scaler().is_enabled() returned {is_on!r}, although training_dtype() is {best}",
        )
        is_on = accelerator.grad_scaler(torch.float16, enabled=False).is_enabled()
        require(
            is_on is False,
            f"grad_scaler(float16, enabled=False).is_enabled() returned {is_on!r}",
        )
        if not accelerator.is_fp16_supported():
            skip_unsupported("the device does not train in float16")
        weight = nn.Parameter(torch.ones(2, device=accelerator.device()))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        self._require_loss_scaled(accelerator, weight, optimizer)
        self._require_scale_follows_options(accelerator, weight, optimizer)

    def _require_loss_scaled(
        self,
        accelerator: Accelerator,
        weight: nn.Parameter,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Require a scaled gradient, an unscaled step, and no step if the gradient is infinite."""
        scaler = accelerator.grad_scaler(torch.float16, init_scale=8.0)
        torch.autograd.backward(scaler.scale(weight.sum()))
        gradient = weight.grad.tolist() if weight.grad is not None else None
        require(
            gradient == [8.0, 8.0],
            f"with a scale of 8, the gradients of a sum are {gradient}",
        )
        scaler.step(optimizer)
        scaler.update()
        require(
            weight.tolist() == [0.5, 0.5],
            f"after the step, the weights are {weight.tolist()}",
        )
        for bad in ("inf", "nan"):
            scale_before = scaler.get_scale()
            optimizer.zero_grad()
            factors = torch.tensor([1.0, float(bad)]).to(weight.device)
            torch.autograd.backward(scaler.scale((weight * factors).sum()))
            scaler.step(optimizer)
            scaler.update()
            require(
                weight.tolist() == [0.5, 0.5],
                f"after a step whose gradient contains {bad}, the weights are {weight.tolist()}",
            )
            scale = scaler.get_scale()
            new_scaler = accelerator.grad_scaler(torch.float16, init_scale=8.0)
            new_scale = new_scaler.get_scale()
            require(
                new_scale == 8.0,
                f"a new scaler with init_scale=8 has the scale {new_scale}; another scaler has changed it",
            )
            require(
                scale < scale_before,
                f"after a gradient with {bad}, the scale changed from {scale_before} to {scale}",
            )

    def _require_scale_follows_options(
        self,
        accelerator: Accelerator,
        weight: nn.Parameter,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Require that the scale follows the options of `grad_scaler`, and that `unscale_` works."""
        options: dict[str, Any] = {
            "init_scale": 8.0,
            "growth_factor": 4.0,
            "backoff_factor": 0.25,
            "growth_interval": 2,
        }
        scaler = accelerator.grad_scaler(torch.float16, **options)
        steps = ((1.0, 8.0), (1.0, 32.0), (float("inf"), 8.0), (1.0, 8.0))
        for factor, expected in steps:
            optimizer.zero_grad()
            torch.autograd.backward(scaler.scale((weight * factor).sum()))
            scaler.unscale_(optimizer)
            gradient = weight.grad.tolist() if weight.grad is not None else None
            if factor == 1:
                require(
                    gradient == [1.0, 1.0],
                    f"after unscale_, the gradients of a sum are {gradient}; expected 1",
                )
            scaler.step(optimizer)
            scaler.update()
            scale = scaler.get_scale()
            require(
                scale == expected,
                f"grad_scaler(float16, {options}): after a step whose gradient is {factor} the scale is "
                f"{scale}; expected {expected}",
            )


def _describe_error(
    name: str, result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype
) -> str:
    """Return the difference between result and expected numbers; empty if it is within the tolerance."""
    if tuple(result.shape) != tuple(expected.shape):
        return f"{name} has the shape {tuple(result.shape)}; expected {tuple(expected.shape)}"
    if result.dtype is not dtype:
        return f"{name} is of {result.dtype}; expected {dtype}"
    largest = float(expected.abs().max().clamp_min(1e-6))
    difference = result.detach().cpu().double() - expected
    error = float(difference.abs().max()) / largest
    tolerance = TOLERANCES[dtype]
    # NaN is an error too, and compares as False.
    if error <= tolerance:
        return ""
    return f"{name} differs by {error:.1e} of the largest number; the tolerance is {tolerance:.0e}"
