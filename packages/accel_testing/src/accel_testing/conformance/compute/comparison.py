"""Compare operators on the device with the CPU, and find the results and kernels that differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from accel_core import Accelerator
from accel_testing.conformance.claims import require

__all__ = [
    "TOLERANCES",
    "Operators",
    "assert_matches_cpu",
    "claimed_types",
    "describe_difference",
    "find_wrong_kernel",
    "gradient",
    "join_problems",
]

#: The largest accepted difference from the result in float64, relative to the largest number in the result. A
#: tolerance is a few units in the last place of the type, times the error of sums of some hundred numbers.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 8e-3,
    torch.bfloat16: 6e-2,
}
#: The relative tolerance for float32 and float64 if numbers are compared one by one.
_SINGLE_NUMBER_TOLERANCE = 1e-4
#: If all numbers in a result are smaller than this value, the tolerance is relative to this value.
_SMALLEST_SCALE = 1e-2
#: The maximum number of operators that a message names.
_MAX_PROBLEMS = 4

#: Functions from tensors to one or several tensors, by a description such as `"amax(1)"`.
Operators = Mapping[str, Callable[..., Any]]


def claimed_types(accelerator: Accelerator) -> list[torch.dtype]:
    """Return the floating-point types that the device claims to support, starting with float32."""
    float64 = [torch.float64] if accelerator.is_fp64_supported() else []
    return [*accelerator.supported_dtypes(), *float64]


def gradient(
    function: Callable[[torch.Tensor], torch.Tensor], point: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of a scalar-valued function at the point `point`."""
    leaf = point.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    (result,) = torch.autograd.grad(function(leaf), leaf)
    return result


def assert_matches_cpu(
    accelerator: Accelerator,
    operators: Operators,
    *arguments: torch.Tensor,
    description: str = "",
    reference_dtype: torch.dtype | None = None,
    layout: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.contiguous,
    required: bool = False,
    index: int | None = None,
) -> None:
    """Raise `BrokenPromise` unless each operator gives the same result on the device as on the CPU.

    `arguments` are copied to the device and the CPU after `layout` has been applied to them. The CPU computes
    floating-point numbers in `reference_dtype`, by default in their own type. An operator that raises an
    error on the device is ignored, unless `required` is true or the operator works there with ordinary
    numbers. `description` describes the numbers in the error message.
    """
    device = accelerator.device(index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about operators that may change
        on_device = [layout(tensor.to(device)) for tensor in arguments]
        on_cpu = [
            layout(_to_reference(tensor, reference_dtype)) for tensor in arguments
        ]
        dtype = arguments[0].dtype
        suffix = f", {description}," if description else ""
        problems = []
        for name, operator in operators.items():
            problem = _find_problem(
                operator,
                on_device,
                on_cpu,
                dtype if reference_dtype else None,
                required=required,
            )
            if problem:
                kernel = find_wrong_kernel(operator, *on_device)
                problems.append(
                    f"{name} of {_dtype_name(dtype)}{suffix}{problem}{kernel}"
                )
    require(not problems, join_problems(problems))


def join_problems(problems: list[str], noun: str = "") -> str:
    """Join the first problems into one text, followed by the number of others: `"a; b; and 7 more"`."""
    text = "; ".join(problems[:_MAX_PROBLEMS])
    others = len(problems) - _MAX_PROBLEMS
    if others > 0:
        text += f"; and {others} more{noun}"
    return text


def _dtype_name(dtype: torch.dtype) -> str:
    """Return the type's name without the prefix `torch.`."""
    return str(dtype).removeprefix("torch.")


def _find_problem(
    operator: Callable[..., Any],
    on_device: list[torch.Tensor],
    on_cpu: list[torch.Tensor],
    dtype: torch.dtype | None,
    *,
    required: bool,
) -> str:
    """Return the difference between the operator's results on device and CPU; empty if they agree.

    `dtype` is the required type of floating-point results, by default the type of the CPU's result. An error
    on the CPU is raised, because it is an error in the check.
    """
    expected_results = pytree.tree_leaves(operator(*on_cpu))
    try:
        results = _run_on_device(operator, on_device)
    except Exception as error:
        if required or _works_with_ordinary_numbers(operator, on_device):
            return f" raises {type(error).__name__}: {str(error)[:150]}"
        return ""
    pairs = zip(results, expected_results, strict=True)
    for number, (result, expected) in enumerate(pairs):
        difference = describe_difference(result, expected, dtype=dtype)
        if difference:
            suffix = "" if len(results) == 1 else f" result {number}"
            return f"{suffix} {difference}"
    return ""


def _to_reference(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return a floating-point tensor converted to `dtype`, and any other tensor unchanged."""
    if dtype is not None and tensor.is_floating_point():
        return tensor.to(dtype)
    return tensor


def _run_on_device(
    operator: Callable[..., Any], arguments: list[torch.Tensor]
) -> list[Any]:
    """Return the operator's results copied to the CPU, because some devices compute only when copying."""
    results = pytree.tree_leaves(operator(*arguments))
    return [
        result.detach().cpu() if isinstance(result, torch.Tensor) else result
        for result in results
    ]


def _works_with_ordinary_numbers(
    operator: Callable[..., Any], arguments: list[torch.Tensor]
) -> bool:
    """Return whether the operator runs on the device without NaN and infinity in its arguments."""
    finite = [
        argument.nan_to_num() if argument.is_floating_point() else argument
        for argument in arguments
    ]
    try:
        _run_on_device(operator, finite)
    except Exception:
        return False
    return True


def describe_difference(
    result: Any,
    expected: Any,
    tolerance: float | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> str:
    """Return the difference between a result and the expected result, or an empty string if they agree.

    `dtype` is the required type of floating-point results, by default the type of `expected`. `tolerance` is
    the accepted error relative to the largest number, by default the tolerance of the type.
    """
    if not isinstance(expected, torch.Tensor):
        both_nan = result != result and expected != expected
        if result == expected or both_nan:
            return ""
        return f"gives {result!r}; expected {expected!r}"
    if dtype is None or not expected.is_floating_point():
        dtype = expected.dtype
    if result.shape != expected.shape or result.dtype is not dtype:
        return f"gives {tuple(result.shape)} of {result.dtype}; expected {tuple(expected.shape)} of {dtype}"
    if result.layout is not expected.layout:
        return f"gives {result.layout}; expected {expected.layout}"
    return _describe_wrong_number(_to_real(result), _to_real(expected), tolerance)


def _describe_wrong_number(
    result: torch.Tensor, expected: torch.Tensor, tolerance: float | None
) -> str:
    """Return the first number outside the tolerance, with its indices; empty if all are within it."""
    if torch.equal(result, expected):
        return ""
    is_wrong = ~_is_close(result, expected, tolerance)
    if not is_wrong.any():
        return ""
    index = tuple(is_wrong.nonzero()[0].tolist())
    where = f" at {list(index)}" if index else ""
    return f"gives {result[index].item()}{where}; expected {expected[index].item()}"


def _to_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as a dense tensor of real numbers."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj().resolve_neg())
    return tensor


def _is_close(
    result: torch.Tensor, expected: torch.Tensor, tolerance: float | None
) -> torch.Tensor:
    """Return, for each number, whether the number is within the tolerance; integers must be equal."""
    if not expected.is_floating_point():
        return result == expected
    usual = TOLERANCES[result.dtype]
    if result.dtype in (torch.float32, torch.float64):
        usual = _SINGLE_NUMBER_TOLERANCE
    # For short types, and for an explicit tolerance, the error is relative to the largest number.
    finite = expected[expected.isfinite()]
    is_relative = tolerance is not None or usual > _SINGLE_NUMBER_TOLERANCE
    scale = 1.0
    if is_relative and finite.numel():
        scale = max(float(finite.abs().max()), _SMALLEST_SCALE)
    if tolerance is None:
        tolerance = usual
    return torch.isclose(
        result.to(expected.dtype),
        expected,
        rtol=tolerance,
        atol=tolerance * scale,
        equal_nan=True,
    )


def find_wrong_kernel(operator: Callable[..., Any], *arguments: torch.Tensor) -> str:
    """Return, in parentheses, the first kernel of `operator` whose result differs from the CPU's.

    To find the kernel, the operator is run again with `arguments`, which must be on the device.
    """
    comparer = _KernelComparer()
    try:
        with comparer:
            operator(*arguments)
    except Exception as error:
        if comparer.running:
            return f" (in aten::{comparer.running}, {type(error).__name__})"
    if comparer.wrong:
        return f" (the kernel that differs is aten::{comparer.wrong})"
    names = ", ".join(f"aten::{name}" for name in dict.fromkeys(comparer.finished))
    return f" (it runs {names})" if names else ""


class _KernelComparer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Compares each kernel that runs on the device with the CPU's kernel for the same arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.finished: list[str] = []
        #: The kernel that is running, or that has raised an error.
        self.running = ""
        #: The first kernel whose result differs from the CPU's.
        self.wrong = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = self.running = func.name().removeprefix("aten::")
        cpu_args, cpu_kwargs = pytree.tree_map(_copy_to_cpu, (args, kwargs))
        result = func(*args, **kwargs)
        self.running = ""
        self.finished.append(name)
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if self.wrong or is_random or name.startswith("empty"):
            return result
        try:
            expected = func(*cpu_args, **cpu_kwargs)
            # The arguments are compared too, because the kernel may write into them.
            written = [
                _copy_to_cpu(leaf) for leaf in pytree.tree_leaves((result, args))
            ]
            expected_written = pytree.tree_leaves((expected, cpu_args))
        except Exception:
            return result  # the CPU does not have this kernel
        pairs = zip(written, expected_written, strict=False)
        if any(
            describe_difference(actual, expected_leaf)
            for actual, expected_leaf in pairs
        ):
            self.wrong = name
        return result


def _copy_to_cpu(value: Any) -> Any:
    """Return a tensor's copy on the CPU, the CPU for a device, and any other value unchanged."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type == "cpu":
        return value.detach().clone()
    return value.detach().cpu()
