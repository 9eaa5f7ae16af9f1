"""Checks with inputs that kernels may handle incorrectly: NaN, ties, repeated indices, large integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import BrokenPromise, require, skip_unsupported
from accel_testing.conformance.compute.comparison import (
    Operators,
    find_wrong_kernel,
    gradient,
)
from accel_testing.conformance.compute.comparison import (
    assert_matches_cpu as assert_matches_cpu_if_supported,
)

__all__ = ["TestNumbers"]

#: A length that is not a multiple of a vector, a block or a tile.
_LONG = 10_007
_INF, _NAN = float("inf"), float("nan")

#: Operators that every program uses; the check also fails if the device does not support one of them.
assert_matches_cpu = partial(assert_matches_cpu_if_supported, required=True)

_WITH_NAN: Operators = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clamp": lambda a, _: a.clamp(-1, 1),
    "relu": lambda a, _: a.relu(),
    "exp": lambda a, _: a.exp(),
    "log": lambda a, _: a.log(),
    "sqrt": lambda a, _: a.sqrt(),
    "sigmoid": lambda a, _: a.sigmoid(),
    "tanh": lambda a, _: a.tanh(),
    "gelu": lambda a, _: functional.gelu(a.clamp(-50, 50)),
    "eq": lambda a, _: a == a.clone(),
    "lt": lambda a, b: a < b,
    "isnan": lambda a, _: a.isnan(),
    "isinf": lambda a, _: a.isinf(),
    "nan_to_num": lambda a, _: a.nan_to_num(),
    "sum": lambda a, _: a.sum(1),
    "mean": lambda a, _: a.mean(1),
    "amax": lambda a, _: a.amax(1),
    "max": lambda a, _: a.max(1).values,
    "argmax": lambda a, _: a.argmax(1),
    "cumsum": lambda a, _: a.cumsum(1),
    "softmax": lambda a, _: a.softmax(1),
    "matmul": lambda a, b: a @ b.T,
    "max_pool": lambda a, _: functional.max_pool1d(a[None], 2),
}

#: Operators whose result is wrong if the kernel ignores the strides.
_STRIDED: Operators = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "clamp": lambda a, _: a.clamp(-0.5, 0.5),
    "relu": lambda a, _: a.relu(),
    "gelu": lambda a, _: functional.gelu(a),
    "gt": lambda a, b: a > b,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "masked_fill": lambda a, _: a.masked_fill(
        torch.eye(*a.shape, dtype=torch.bool, device=a.device), 7.0
    ),
    "sum": lambda a, _: a.sum(1),
    "argmax": lambda a, _: a.argmax(1),
    "cumsum": lambda a, _: a.cumsum(1),
    "sort": lambda a, _: a.sort(dim=1, stable=True).values,
    "matmul": lambda a, b: a @ b.T,
    "bmm": lambda a, b: torch.bmm(a[None], b.T[None]),
    "softmax": lambda a, _: a.softmax(1),
    "layer_norm": lambda a, _: functional.layer_norm(a, a.shape[-1:]),
    "batch_norm": lambda a, _: functional.batch_norm(a, None, None, training=True),
    "log": lambda a, _: (a.abs() + 1).log(),
    "sqrt": lambda a, _: (a.abs() + 1).sqrt(),
    "sigmoid": lambda a, _: a.sigmoid(),
    "log_softmax": lambda a, _: a.log_softmax(1),
    "nll_loss": lambda a, _: functional.nll_loss(
        a, torch.zeros_like(a[:, 0]).long(), reduction="none"
    ),
    "conv2d": lambda a, b: functional.conv2d(
        a[None, None], b[None, None, :3, :3], padding=1
    ),
    "foreach_add": lambda a, b: torch._foreach_add([a], [b])[0],
    "foreach_mul": lambda a, _: torch._foreach_mul([a], 1.1)[0],
    "index": lambda a, _: a[torch.tensor([2, 0, 2], device=a.device)],
    "gather": lambda a, _: a.gather(1, torch.zeros_like(a, dtype=torch.int64)),
    "index_select": lambda a, _: a.index_select(
        1, torch.tensor([1, 0], device=a.device)
    ),
    "cat": lambda a, b: torch.cat([a, b], 1),
    "nonzero": lambda a, _: (a > 0).nonzero(),
    "max_pool": lambda a, _: functional.max_pool2d(a[None, None], 2),
    "gradient of gelu": lambda a, b: gradient(
        lambda x: (functional.gelu(x) * b).sum(), a
    ),
}

_INTEGERS: Operators = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * (b % 3),
    "floor_divide": lambda a, b: a // (b % 7 + 1),
    "div": lambda a, _: torch.div(a, 3, rounding_mode="trunc"),
    "div, floor": lambda a, b: torch.div(a, b % 7 + 1, rounding_mode="floor"),
    "remainder": lambda a, _: a % 1009,
    "maximum": torch.maximum,
    "eq": lambda a, _: a == a.flip(0) + (a % 2),
    "lt": lambda a, _: a < int(a.max()),
    "ge": lambda a, _: a >= int(a.max()),
    "gt": lambda a, b: a > b,
    "bitwise_and": lambda a, _: a & 0xFF,
    "where": lambda a, b: torch.where(a > b, a, b),
    "sum": lambda a, _: a.sum(0, dtype=torch.int64),
    "amax": lambda a, _: a.amax(0),
    "max": lambda a, _: a.max(0).values,
    "argmax": lambda a, _: a.argmax(0),
    "cumsum": lambda a, _: a.cumsum(0),
    "sort": lambda a, _: a.sort(stable=True).values,
    "topk": lambda a, _: a.topk(3).values,
    "index": lambda a, _: a[torch.tensor([3, 1], device=a.device)],
    "gather": lambda a, _: a.gather(0, torch.tensor([3, 1], device=a.device)),
    "index_select": lambda a, _: a.index_select(
        0, torch.tensor([3, 1], device=a.device)
    ),
    "cat": lambda a, b: torch.cat([a, b]),
}

#: Functions of rows in which the last elements affect the result as much as the first.
_ON_LONG_ROWS: Operators = {
    "sum": lambda a, _: a.sum(1),
    "mean": lambda a, _: a.mean(1),
    "amax": lambda a, _: a.amax(1),
    "max": lambda a, _: a.max(1).values,
    "argmax": lambda a, _: a.argmax(1),
    "cumsum": lambda a, _: a.cumsum(1),
    "sort": lambda a, _: a.sort(dim=1, stable=True).values,
    "topk": lambda a, _: a.topk(5, 1).values,
    "softmax": lambda a, _: a.softmax(1) * _LONG,
    "log_softmax": lambda a, _: a.log_softmax(1),
    "layer_norm": lambda a, _: functional.layer_norm(a, a.shape[-1:]),
    "matmul": lambda a, b: a @ b.T,
    "linear": lambda a, b: functional.linear(
        a, b, torch.ones(len(b), device=a.device, dtype=a.dtype)
    ),
}


#: Functions of images in the channels_last format.
_ON_IMAGES: Operators = {
    "conv2d": lambda x, w: functional.conv2d(x, w, padding=1),
    "conv2d, stride 2": lambda x, w: functional.conv2d(x, w, stride=2),
    "max_pool2d": lambda x, _: functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x, _: functional.avg_pool2d(x, 3, stride=1),
    "batch_norm": lambda x, _: functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda x, w: functional.group_norm(
        x, 2, w[0, :, 0, 0], w[1, :, 1, 1]
    ),
    "mean of each channel": lambda x, _: x.mean((2, 3)),
    "flatten": lambda x, _: x.flatten(1),
    "gradient of conv2d": lambda x, w: gradient(
        lambda a: functional.conv2d(a, w).square().sum(), x
    ),
}

#: Operators that preserve the memory format of their argument.
_KEEP_MEMORY_FORMAT: Operators = {
    "clone": lambda x, _: x.clone(),
    "x + x": lambda x, _: x + x,
    "relu": lambda x, _: x.relu(),
    "to float16": lambda x, _: x.half(),
    "where": lambda x, _: torch.where(x > 0, x, -x),
    "empty_like": lambda x, _: torch.empty_like(x).fill_(1),
}


#: Functions that copy an 8 × 8 tensor to another device.
_COPIES_BETWEEN_DEVICES: dict[
    str, Callable[[torch.Tensor, torch.device], torch.Tensor]
] = {
    "a.to(d)": lambda a, d: a.to(d),
    "a.T.to(d)": lambda a, d: a.T.to(d),
    "a[:, 1::3].to(d)": lambda a, d: a[:, 1::3].to(d),
    "a[2].expand(5, 8).to(d)": lambda a, d: a[2].expand(5, 8).to(d),
    "a.T.to(d, torch.float16)": lambda a, d: a.T.to(d, torch.float16),
    "a.T.to(d, non_blocking=True)": lambda a, d: a.T.to(d, non_blocking=True),
    "zeros on d, .T.copy_(a)": lambda a, d: torch.zeros(8, 8, device=d).T.copy_(a),
    "zeros on d, [:, ::2].copy_(a.T[:, 1::2])": lambda a, d: torch.zeros(
        8, 8, device=d
    )[:, ::2].copy_(a.T[:, 1::2]),
}


class TestNumbers(BackendTestBase):
    """A kernel that is correct for a few small numbers may be incorrect for these inputs."""

    def test_nan_and_infinity(self, accelerator: Accelerator) -> None:
        """NaN and infinity propagate as on the CPU: masks use minus infinity, and NaN must not be hidden."""
        left = torch.tensor(
            [[1.0, _NAN, 3.0, -2.0], [_INF, 1.0, -1.0, 0.5], [-_INF, -_INF, 2.0, -0.0]]
        )
        right = torch.tensor(
            [[1.0, 2.0, _NAN, 4.0], [2.0, _INF, -_INF, 0.0], [1.0, 2.0, 3.0, 4.0]]
        )
        assert_matches_cpu(accelerator, _WITH_NAN, left, right)
        masked = torch.full((2, 4), -_INF)
        masked[0, 1] = 0.0
        assert_matches_cpu(
            accelerator,
            {"softmax of a mask": lambda a, _: a.softmax(1)},
            masked,
            masked,
        )

    def test_strides(self, accelerator: Accelerator) -> None:
        """A transposed, sliced or expanded tensor is read by its strides and not in memory order."""
        base = torch.randn(12, 10, generator=torch.Generator().manual_seed(3))
        for description, layout in {
            "transposed": lambda t: t.T[:9, :9],
            "every second": lambda t: t[::2, ::2][:5, :5],
            "expanded": lambda t: t[:1].expand(10, 10),
        }.items():  # fmt: skip
            assert_matches_cpu(
                accelerator,
                _STRIDED,
                base,
                base.flip(0),
                description=description,
                layout=layout,
            )

    def test_channels_last(self, accelerator: Accelerator) -> None:
        """Images in channels_last give the same numbers, and elementwise operators preserve the format."""
        images = (torch.arange(2 * 4 * 6 * 6).reshape(2, 4, 6, 6) * 7 % 11 - 5).float()
        kernels = (torch.arange(4 * 4 * 3 * 3).reshape(4, 4, 3, 3) * 5 % 7 - 3).float()
        channels_last = torch.channels_last

        def with_memory_format(
            operator: Callable[..., torch.Tensor],
        ) -> Callable[..., Any]:
            """Return a function that also returns whether the operator's result is in channels_last."""

            def call(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, bool]:
                result = operator(a, b)
                return result, result.is_contiguous(memory_format=channels_last)

            return call

        keeping = {
            f"{name}, its order as result 1": with_memory_format(operator)
            for name, operator in _KEEP_MEMORY_FORMAT.items()
        }
        assert_matches_cpu(
            accelerator,
            {**_ON_IMAGES, **keeping},
            images,
            kernels,
            description="in channels_last",
            layout=partial(torch.Tensor.contiguous, memory_format=channels_last),
        )

    def test_large_integers(self, accelerator: Accelerator) -> None:
        """Integers that float32 cannot represent stay exact: token counts, hashes, byte offsets."""
        steps = torch.tensor([3, 1, 7, 5, 0, 2, 6, 4])
        for dtype, largest in ((torch.int64, 2**53 + 1), (torch.int32, 2**29 + 1)):
            left = (steps + largest).to(dtype)
            assert_matches_cpu(
                accelerator,
                _INTEGERS,
                left,
                (steps.flip(0) + largest).to(dtype),
                description=str(dtype),
            )

    def test_long_rows(self, accelerator: Accelerator) -> None:
        """A row whose length is not a multiple of the block size is computed to its end."""
        generator = torch.Generator().manual_seed(4)
        left = torch.rand(3, _LONG, generator=generator)
        right = torch.rand(3, _LONG, generator=generator)
        left[:, -3] = 3.0  # the largest number is in the last, incomplete block
        left[:, -70:-3] += 1.0
        assert_matches_cpu(accelerator, _ON_LONG_ROWS, left, right)

    def test_indices_that_come_twice(self, accelerator: Accelerator) -> None:
        """Repeated additions at one index, as in gradients of embeddings, are all counted."""
        indices = torch.tensor([2, 0, 2, 2, 1, 0, 2])
        data = torch.arange(1.0, 8.0) * 1.1

        def with_indices(
            function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any],
        ) -> Any:
            return lambda a, _: function(
                torch.zeros(4, device=a.device), indices.to(a.device), a
            )

        assert_matches_cpu(
            accelerator,
            {
                "index_add": with_indices(
                    lambda zeros, index, values: zeros.index_add(0, index, values)
                ),
                "scatter_add": with_indices(
                    lambda zeros, index, values: zeros.scatter_add(0, index, values)
                ),
                "index_put": with_indices(
                    lambda zeros, index, values: zeros.index_put(
                        (index,), values, accumulate=True
                    )
                ),
                "bincount": with_indices(
                    lambda _, index, __: index.bincount(minlength=4)
                ),
                "gradient of embedding": with_indices(
                    lambda zeros, index, values: gradient(
                        lambda w: (functional.embedding(index, w)[:, 0] * values).sum(),
                        zeros[:, None] + 1,
                    )
                ),
                "gradient of gather": with_indices(
                    lambda zeros, index, values: gradient(
                        lambda w: (w.gather(0, index) * values).sum(), zeros + 1
                    )
                ),
            },
            data,
            data,
        )

    def test_ties_and_rounding(self, accelerator: Accelerator) -> None:
        """Stable sorts keep the order of ties, halves round to even, and casts truncate towards zero."""
        ties = torch.tensor([2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0] * 40)
        halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 2.7, -2.7, 255.0])
        assert_matches_cpu(
            accelerator,
            {
                "stable sort": lambda a, _: a.sort(stable=True).indices,
                "stable sort, descending": lambda a, _: (
                    a.sort(stable=True, descending=True).indices
                ),
                "round": lambda _, b: b.round(),
                "to int32": lambda _, b: b.to(torch.int32),
                "floor division": lambda _, b: (b * 2).to(torch.int64) // -3,
            },
            ties,
            halves,
        )
        # Numbers halfway between two bfloat16 numbers are rounded to the even one.
        between = torch.tensor([1.00390625, 1.01171875, -1.00390625])
        if torch.bfloat16 in accelerator.supported_dtypes():
            assert_matches_cpu(
                accelerator,
                {"to bfloat16": lambda a, _: a.bfloat16()},
                between,
                between,
            )

    def test_mistakes_are_refused(self, accelerator: Accelerator) -> None:
        """Mismatched shapes, and tensors on two devices, raise errors after which the device still works."""
        on_device = torch.ones(2, 3, device=accelerator.device())
        on_cpu = torch.ones(2, 3)
        mistakes: Operators = {
            "(2, 3) @ (2, 3)": lambda a, _: a @ a,
            "(2, 3) + (2, 2)": lambda a, _: a + a[:, :2],
            "cat of (2, 3) and (2, 2)": lambda a, _: torch.cat([a, a[:, :2]]),
            "view of 6 numbers as 4": lambda a, _: a.view(4),
            "sum over a third dimension": lambda a, _: a.sum(2),
            "gradient of a tensor changed in place": lambda a, _: gradient(
                lambda x: x.exp().mul_(2).sum(), a
            ),
        }
        if accelerator.device_type != "cpu":
            mistakes = {
                **mistakes,
                "sum of a tensor on the device and one on the host": lambda a, b: a + b,
                "product of a tensor on the device and one on the host": lambda a, b: (
                    a @ b.T
                ),
                "cat of a tensor on the device and one on the host": lambda a, b: (
                    torch.cat([a, b])
                ),
                "where of a condition on the host": lambda a, b: torch.where(
                    b > 0, a, a
                ),
            }
        for name, mistake in mistakes.items():
            has_raised = False
            try:
                mistake(on_device, on_cpu)
                accelerator.synchronize()
            except (RuntimeError, IndexError, ValueError):
                has_raised = True
            if not has_raised:
                kernel = find_wrong_kernel(mistake, on_device, on_cpu)
                raise BrokenPromise(
                    f"{name} did not raise an error; expected a RuntimeError{kernel}"
                )
        require(
            (on_device + on_device).sum().item() == 12,
            "after errors, a sum on the device is wrong",
        )

    def test_nothing_in_it(self, accelerator: Accelerator) -> None:
        """Empty tensors are not errors: the last batch, or an expert without tokens, may be empty."""
        operators: Operators = {
            "add": lambda a, b: a + b,
            "mul": lambda a, b: a * b,
            "sum": lambda a, _: a.sum(1),
            "sum of all": lambda a, _: a.sum(),
            "matmul": lambda a, b: a @ b.T,
            "bmm": lambda a, b: torch.bmm(a[None], b.T[None]),
            "cat": lambda a, b: torch.cat([a, b]),
            "linear": lambda a, _: functional.linear(
                a, torch.ones(2, a.shape[1], device=a.device)
            ),
            "contiguous": lambda a, _: a.T.contiguous(),
        }
        for shape in ((0, 5), (5, 0)):
            empty = torch.ones(shape)
            assert_matches_cpu(
                accelerator, operators, empty, empty, description=f"of shape {shape}"
            )

    def test_every_device_computes(self, accelerator: Accelerator) -> None:
        """Kernels run on the device of their tensors, whichever device is the current device."""
        count = accelerator.device_count()
        if count < 2 or accelerator.device(0) == accelerator.device(1):
            skip_unsupported("there is one device")
        operators: Operators = {
            "add": lambda a, b: a + b,
            "matmul": lambda a, b: a @ b.T,
            "sum": lambda a, _: a.sum(1),
            "softmax": lambda a, _: a.softmax(1),
            "copy": lambda a, _: a.clone(),
        }
        data = torch.randn(8, 8, generator=torch.Generator().manual_seed(5))
        for index in range(count):
            description = f"on device {index}, while device 0 is the current device"
            assert_matches_cpu(
                accelerator,
                operators,
                data,
                data.flip(0),
                description=description,
                index=index,
            )
            device = (data.to(accelerator.device(index)) + 1).device
            is_right = device == torch.device(accelerator.device_type, index)
            require(is_right, f"a sum of tensors on device {index} is on {device}")
        for source, target in ((0, count - 1), (count - 1, 0)):
            source_device = accelerator.device(source)
            target_device = accelerator.device(target)
            for name, copy in _COPIES_BETWEEN_DEVICES.items():
                copied = copy(data.to(source_device), target_device).cpu()
                expected = copy(data, torch.device("cpu"))
                require(
                    torch.equal(copied, expected),
                    f"{name}, a on {source_device} and d {target_device}, gives other numbers than on the "
                    "CPU (in aten::copy_ or aten::_to_copy)",
                )
