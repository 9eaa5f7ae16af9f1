"""Rate of matrix products by data type, and the time of one launch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_tools.bench.copies import buffer_bytes
from accel_tools.bench.records import Effort, Measurement, Step
from accel_tools.bench.timing import attempted, measured, quickest, sampled, wrong

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["launches", "matrices"]

#: Each has a row, whether the device computes in it or not.
_DTYPES = ("float64", "float32", "float16", "bfloat16")
#: Rows of the block that a matrix repeats, so that a large one is filled without filling the host's memory.
_BLOCK = 256
#: Rows that are tried first: fewer take less than threads need to meet where others want the cores too.
_LEAST = 512
#: The edge of the two corners of a product that are compared with float64.
_CORNER = 8
#: The step from 1 to the next number of formats with which devices compute float32 faster (TF32, HF32).
_TF32_STEP = 2.0**-10


# --- matrices ------------------------------------------------------------------------------------------


def matrices(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return a step for each data type: a product of square matrices of n rows, 2 n³ operations."""
    return [_step(accelerator, dtype, effort) for dtype in _DTYPES]


def _step(accelerator: Accelerator, dtype: str, effort: Effort) -> Step:
    name, title = f"matrix.{dtype}", f"matrix {dtype}"

    def measure() -> Measurement:
        # Asked here, as it may start the device: what it raises is this row's own matter.
        if dtype == "float64":
            if not accelerator.is_fp64_supported():
                raise UnsupportedError(f"{accelerator.name} has no float64")
        elif f"torch.{dtype}" not in map(str, accelerator.supported_dtypes()):
            raise UnsupportedError(f"{accelerator.name} does not train in {dtype} here")
        return _product(
            accelerator, getattr(import_torch(), dtype), effort, name, title
        )

    return Step(title, lambda: [attempted(name, title, "FLOP/s", measure)])


class _Matrices(NamedTuple):
    """Two factors and their product on the device, and the blocks that the factors repeat on the host."""

    left: torch.Tensor
    right: torch.Tensor
    product: torch.Tensor
    left_block: torch.Tensor
    right_block: torch.Tensor

    def multiply(self) -> None:
        import_torch().matmul(self.left, self.right, out=self.product)


def _product(
    accelerator: Accelerator, dtype: torch.dtype, effort: Effort, name: str, title: str
) -> Measurement:
    rows, made = _fitting(accelerator, dtype, effort)
    made.product.zero_()
    samples = sampled(made.multiply, accelerator.synchronize, effort)
    error = _relative_error(made)
    row = measured(
        name,
        title,
        "FLOP/s",
        samples,
        2.0 * rows**3,
        f"{rows} x {rows}",
        _precision(dtype),
    )
    step = import_torch().finfo(dtype).eps
    if error <= _tolerated(step, rows):
        return row
    if (
        step < _TF32_STEP
        and str(dtype) == "torch.float32"
        and error <= _tolerated(_TF32_STEP, rows)
    ):
        return row._replace(
            note="computed with less precision than float32, such as TF32"
        )
    return wrong(
        row,
        f"the product is wrong: its relative error is {error:.1e}, compared with float64",
    )


def _precision(dtype: torch.dtype) -> str:
    torch = import_torch()
    setting = (
        torch.get_float32_matmul_precision() if dtype == torch.float32 else "highest"
    )
    return (
        ""
        if setting == "highest"
        else f"torch.set_float32_matmul_precision({setting!r})"
    )


def _fitting(
    accelerator: Accelerator, dtype: torch.dtype, effort: Effort
) -> tuple[int, _Matrices]:
    """Matrices large enough to keep the device busy, within its memory and the time there is."""
    rows = min(_LEAST, effort.matrix_most)
    while True:
        made = _filled(accelerator, dtype, rows)
        seconds = quickest(made.multiply, accelerator.synchronize, effort).seconds
        wanted = 3 * 4 * rows * rows * made.left.element_size()
        too_slow = (
            8 * seconds > effort.seconds
        )  # twice the rows are eight times the work
        too_large = (
            2 * rows > effort.matrix_most or buffer_bytes(accelerator, wanted) < wanted
        )
        if seconds >= effort.matrix_seconds or too_slow or too_large:
            return rows, made
        rows *= 2


def _filled(accelerator: Accelerator, dtype: torch.dtype, rows: int) -> _Matrices:
    torch = import_torch()
    device = accelerator.device(accelerator.current_device())
    height = min(rows, _BLOCK)
    generator = torch.Generator().manual_seed(
        rows
    )  # the program's own random numbers stay as they are
    blocks = [
        (torch.rand((height, rows), generator=generator) * 2 - 1).to(dtype)
        for _ in range(2)
    ]
    factors = []
    for block in blocks:
        factor = torch.empty((rows, rows), dtype=dtype, device=device)
        for first in range(0, rows, height):
            factor[first : first + height].copy_(block)
        factors.append(factor)
    product = torch.empty((rows, rows), dtype=dtype, device=device)
    return _Matrices(factors[0], factors[1], product, blocks[0], blocks[1])


def _relative_error(made: _Matrices) -> float:
    """How far the first and last corner of the product are off, as a share of their size, by float64."""
    rows, height = made.product.shape[0], made.left_block.shape[0]
    worst = 0.0
    for part in (slice(0, _CORNER), slice(-_CORNER, None)):
        columns = made.right_block[:, part].double().repeat(rows // height, 1)
        right = made.left_block[part].double() @ columns
        ours = made.product[part].to("cpu")[:, part].double()
        error = float((ours - right).norm() / right.norm())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def _tolerated(step: float, rows: int) -> float:
    """The relative error of a sum of `rows` products: roundings add up as a random walk does."""
    return step * math.sqrt(rows)


# --- launches ------------------------------------------------------------------------------------------


def launches(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return a step that times the smallest operation, in seconds: many in a row, and one with waiting."""
    return [
        _launch(accelerator, effort, "launch.queued", "launch, in a row", waited=False),
        _launch(accelerator, effort, "launch.waited", "launch and wait", waited=True),
    ]


def _launch(
    accelerator: Accelerator, effort: Effort, name: str, title: str, *, waited: bool
) -> Step:
    def measure() -> Measurement:
        torch = import_torch()
        device: Any = accelerator.device(accelerator.current_device())
        counter = torch.zeros(1, dtype=torch.float32, device=device)

        def launch() -> None:
            counter.add_(1)

        def launch_and_wait() -> None:
            counter.add_(1)
            accelerator.synchronize()

        call = launch_and_wait if waited else launch
        samples = sampled(call, accelerator.synchronize, effort)
        row = measured(name, title, "s", samples, 1, "1 number")
        counted = counter.item()  # exact: far fewer than 2**24
        if counted == samples.total:
            return row
        return wrong(
            row,
            f"{samples.total} additions of 1 gave {counted:g}: the device skipped some",
        )

    return Step(title, lambda: [attempted(name, title, "s", measure)])
