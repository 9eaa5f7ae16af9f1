"""Measure the rate of matrix products by data type, and the time of one kernel launch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core.errors import UnsupportedError
from accel_core.torch_import import import_torch
from accel_tools.bench.copies import buffer_size
from accel_tools.bench.records import Effort, Measurement, Step
from accel_tools.bench.timing import (
    fastest_trial,
    make_measurement,
    mark_wrong,
    run_measurement,
    take_samples,
)

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["launch_steps", "matrix_steps"]

#: The data types that are listed, whether or not the device supports them.
_DTYPES = ("float64", "float32", "float16", "bfloat16")
#: The number of rows of the block that a matrix repeats. Because of the repetition, a large matrix on the
#: device needs little host memory.
_BLOCK_ROWS = 256
#: The number of rows of the first matrices that are tried. With smaller matrices, the time on
#: busy cores would be dominated by the synchronization of threads.
_MIN_ROWS = 512
#: The number of rows and columns of each corner of a product that is compared with float64.
_CORNER = 8
#: The machine epsilon of TF32 and HF32, formats in which devices compute float32 faster.
_TF32_EPS = 2.0**-10


# --- Matrices ------------------------------------------------------------------------


def matrix_steps(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return one benchmark step for each data type.

    Each step multiplies two n × n matrices, which takes 2n³ floating-point operations.
    """
    return [_matrix_step(accelerator, dtype, effort) for dtype in _DTYPES]


def _matrix_step(accelerator: Accelerator, dtype: str, effort: Effort) -> Step:
    """Return the step that measures matrix products of a data type, such as `"float32"`."""
    name, title = f"matrix.{dtype}", f"matrix {dtype}"

    def measure() -> Measurement:
        # This check is part of the measurement, because a query may initialize the device
        # and raise an error.
        _require_dtype(accelerator, dtype)
        torch_dtype = getattr(import_torch(), dtype)
        return _measure_product(accelerator, torch_dtype, effort, name, title)

    return Step(title, lambda: [run_measurement(name, title, "FLOP/s", measure)])


def _require_dtype(accelerator: Accelerator, dtype: str) -> None:
    """Raise `UnsupportedError` if the device does not support the data type."""
    if dtype == "float64":
        if not accelerator.is_fp64_supported():
            raise UnsupportedError(f"{accelerator.name} does not support float64")
        return
    supported_names = [str(supported) for supported in accelerator.supported_dtypes()]
    if f"torch.{dtype}" not in supported_names:
        raise UnsupportedError(
            f"{accelerator.name} does not support training in {dtype} on this machine"
        )


class _Matrices(NamedTuple):
    """Two factors and their product on the device, and the factors' repeated blocks on the host."""

    left: torch.Tensor
    right: torch.Tensor
    product: torch.Tensor
    left_block: torch.Tensor
    right_block: torch.Tensor

    def multiply(self) -> None:
        import_torch().matmul(self.left, self.right, out=self.product)


def _measure_product(
    accelerator: Accelerator, dtype: torch.dtype, effort: Effort, name: str, title: str
) -> Measurement:
    """Time matrix products of a suitable size, and check the last product."""
    torch = import_torch()
    matrices = _make_matrices_of_suitable_size(accelerator, dtype, effort)
    rows = matrices.product.shape[0]
    matrices.product.zero_()  # A device that computes nothing does not pass the check.
    samples = take_samples(matrices.multiply, accelerator.synchronize, effort)
    measurement = make_measurement(
        name,
        title,
        "FLOP/s",
        samples,
        work=2.0 * rows**3,
        size=f"{rows} x {rows}",
        note=_precision_note(dtype),
    )
    error = _relative_error(matrices)
    if error <= _tolerance(torch.finfo(dtype).eps, rows):
        return measurement
    if dtype == torch.float32 and error <= _tolerance(_TF32_EPS, rows):
        return measurement._replace(
            note="computed with less precision than float32, such as TF32"
        )
    return mark_wrong(
        measurement,
        f"the product is wrong: its relative error is {error:.1e}, compared with float64",
    )


def _precision_note(dtype: torch.dtype) -> str:
    """Return the call that set torch's precision for float32 products.

    Returns an empty string if the precision is the default, or for other data types.
    """
    torch = import_torch()
    if dtype != torch.float32:
        return ""
    setting = torch.get_float32_matmul_precision()
    if setting == "highest":
        return ""
    return f"torch.set_float32_matmul_precision({setting!r})"


def _make_matrices_of_suitable_size(
    accelerator: Accelerator, dtype: torch.dtype, effort: Effort
) -> _Matrices:
    """Return square matrices that are large enough to keep the device busy.

    The size is limited by the device's memory and by the time limits of `effort`.
    """
    rows = min(_MIN_ROWS, effort.matrix_max_rows)
    while True:
        matrices = _make_matrices(accelerator, dtype, rows)
        trial = fastest_trial(matrices.multiply, accelerator.synchronize, effort)
        if trial.seconds >= effort.matrix_seconds:
            return matrices
        # A product of matrices with twice as many rows takes eight times as long.
        if 8 * trial.seconds > effort.seconds or 2 * rows > effort.matrix_max_rows:
            return matrices
        # Two factors and a product with twice as many rows have four times as many numbers.
        next_bytes = 3 * 4 * rows * rows * matrices.left.element_size()
        if buffer_size(accelerator, next_bytes) < next_bytes:
            return matrices
        rows *= 2


def _make_matrices(
    accelerator: Accelerator, dtype: torch.dtype, rows: int
) -> _Matrices:
    """Return two square matrices with random numbers from -1 to 1, and a matrix for the product.

    Each matrix has `rows` rows. Its first rows are a block of random numbers, which repeats below.
    """
    torch = import_torch()
    device = accelerator.device(accelerator.current_device())
    block_rows = min(rows, _BLOCK_ROWS)
    # A separate generator does not affect the random numbers of the program.
    generator = torch.Generator().manual_seed(rows)
    blocks, factors = [], []
    for _ in range(2):
        block = torch.rand((block_rows, rows), generator=generator) * 2 - 1
        block = block.to(dtype)
        factor = torch.empty((rows, rows), dtype=dtype, device=device)
        # The factor repeats the block, so that a large factor needs little host memory.
        for first_row in range(0, rows, block_rows):
            factor[first_row : first_row + block_rows].copy_(block)
        blocks.append(block)
        factors.append(factor)
    product = torch.empty((rows, rows), dtype=dtype, device=device)
    left, right = factors
    left_block, right_block = blocks
    return _Matrices(left, right, product, left_block, right_block)


def _relative_error(matrices: _Matrices) -> float:
    """Return the larger relative error of the product's upper left and lower right corner.

    The corners are compared with products in float64. NaN counts as an infinite error.
    """
    rows, block_rows = matrices.product.shape[0], matrices.left_block.shape[0]
    largest_error = 0.0
    first_rows, last_rows = slice(0, _CORNER), slice(-_CORNER, None)
    # Only two corners of the product are computed again on the CPU, to save time.
    for corner in (first_rows, last_rows):
        right_columns = matrices.right_block[:, corner].double()
        # The right factor repeats its block.
        right_columns = right_columns.repeat(rows // block_rows, 1)
        expected = matrices.left_block[corner].double() @ right_columns
        actual = matrices.product[corner].to("cpu")[:, corner].double()
        error = float((actual - expected).norm() / expected.norm())
        if math.isnan(error):
            return math.inf
        largest_error = max(largest_error, error)
    return largest_error


def _tolerance(eps: float, rows: int) -> float:
    """Return the tolerated relative error of a sum of `rows` products.

    It grows with the square root of `rows`, because rounding errors add up as in a random walk.
    """
    return eps * math.sqrt(rows)


# --- Launches ------------------------------------------------------------------------


def launch_steps(accelerator: Accelerator, effort: Effort) -> list[Step]:
    """Return two benchmark steps that measure the time of a kernel launch.

    Both steps add 1 to a tensor with one element. The first step queues many additions in a row. The second
    step waits for each addition.
    """
    return [
        _launch_step(
            accelerator, effort, "launch.queued", "launch, in a row", waits=False
        ),
        _launch_step(
            accelerator, effort, "launch.waited", "launch and wait", waits=True
        ),
    ]


def _launch_step(
    accelerator: Accelerator, effort: Effort, name: str, title: str, *, waits: bool
) -> Step:
    """Return the step that times kernel launches; `waits` means to wait for each launch."""

    def measure() -> Measurement:
        torch = import_torch()
        device: Any = accelerator.device(accelerator.current_device())
        counter = torch.zeros(1, dtype=torch.float32, device=device)

        def launch() -> None:
            counter.add_(1)

        def launch_and_wait() -> None:
            counter.add_(1)
            accelerator.synchronize()

        call = launch_and_wait if waits else launch
        samples = take_samples(call, accelerator.synchronize, effort)
        measurement = make_measurement(
            name, title, "s", samples, work=1, size="1 number"
        )
        total = counter.item()  # The sum is exact, because it is below 2**24.
        if total == samples.total:
            return measurement
        reason = (
            f"after {samples.total} additions of 1, the sum is {total:g} "
            f"instead of {samples.total}"
        )
        return mark_wrong(measurement, reason)

    return Step(title, lambda: [run_measurement(name, title, "s", measure)])
