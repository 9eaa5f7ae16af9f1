"""Compare the operators in torch's test database with the CPU, using the samples of torch's tests.

`torch.testing._internal.common_methods_invocations` (torch 2.6 to 2.15) lists about 700 operators. In torch's
`test_ops.py`, `test_compare_cpu` compares a device's results with the CPU's. That test omits operators that
are random, or that may return one of several correct results.
"""

from __future__ import annotations

import math
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from accel_core import Accelerator
from accel_testing.conformance.claims import require, skip_unsupported
from accel_testing.conformance.compute.comparison import (
    describe_difference,
    find_wrong_kernel,
    join_problems,
)
from accel_testing.conformance.compute.copying import DeviceCopier, find_tensors

__all__ = [
    "OpCall",
    "assert_samples_match_cpu",
    "copy_arguments",
    "default_device",
    "forward",
    "gradient_of",
    "gradients",
    "gradients_in_place",
    "operators",
    "several",
    "written",
    "written_into",
]

#: A function that calls an operator with a sample on a device, and returns the results to compare.
OpCall = Callable[[Any, Any, torch.device], Any]

_CPU = torch.device("cpu")
#: The tolerance relative to the largest number, as in `test_compare_cpu` of torch's `test_ops.py`.
_TOLERANCE = 1e-3
#: Operators that return uninitialized memory.
_UNINITIALIZED = ("empty", "new_empty", "resize_")
#: Operators with an argument that torch requires to be on the CPU for every device.
_NEEDS_CPU_ARGUMENTS = ("tensor_split",)


def operators(*, foreach: bool = False) -> list[Any]:
    """Return the `OpInfo` objects of the operators whose results can be compared with the CPU's.

    If `foreach` is true, the result contains the operators on lists of tensors. The check is skipped if
    torch's tests cannot be imported, because some builds of torch do not contain them.
    """
    try:
        # The import would otherwise forbid this process to change the flags of torch.backends.
        with _no_warnings(), mock.patch.object(torch.backends, "disable_global_flags"):
            from torch.testing._internal import common_methods_invocations as database
    except Exception as error:
        skip_unsupported(
            f"torch's database of operators cannot be imported: {type(error).__name__}: {error}"
        )
    if not foreach:
        return [op for op in database.op_db if _is_comparable(op)]
    foreach_ops: list[Any] = []
    for name in dir(database):
        if name.startswith("foreach_") and name.endswith("_op_db"):
            foreach_ops += getattr(database, name)
    return foreach_ops


def _is_comparable(op: Any) -> bool:
    """Return whether torch's tests compare the operator's results with the CPU's."""
    if op.name.startswith(_UNINITIALIZED):
        return False
    skipped = [getattr(decorator, "test_name", None) for decorator in op.decorators]
    return "test_compare_cpu" not in skipped


def assert_samples_match_cpu(
    accelerator: Accelerator,
    call: OpCall,
    *dtypes: torch.dtype,
    most: int,
    foreach: bool = False,
    strided: bool = False,
    backward: bool = False,
    without: Sequence[str] = (),
) -> None:
    """Raise `BrokenPromise` unless `call` returns the CPU's results for each operator's samples.

    At most `most` samples, spread over all samples, are compared for each operator and type. Operators in
    `without` are omitted. If `strided` is true, tensors have gaps between their elements in memory, and
    dimensions are counted from the end. Calls that raise an error on the device are ignored, because the
    device does not support the operator, or not for these arguments.
    """
    device = accelerator.device(0)
    if device.type == "cpu":
        skip_unsupported("the samples are compared with the CPU itself")
    problems: list[str] = []
    compared = 0
    with _seed_cpu_only(0):
        for op in operators(foreach=foreach):
            if op.name in without:
                continue
            for dtype in dtypes:
                samples = _samples(op, dtype, most, strided=strided, backward=backward)
                count, problem = _compare_samples(call, op, samples, dtype, device)
                compared += count
                if problem:
                    problems.append(problem)
                    break
    require(not problems, join_problems(problems, " operators"))
    require(
        compared,
        f"{device} rejects every operator in torch's database; expected some to run",
    )


def _compare_samples(
    call: OpCall,
    op: Any,
    samples: Iterator[Any],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[int, str]:
    """Return the number of compared samples, and the first difference; the text is empty if none differs."""
    compared = 0
    for sample in samples:
        difference = _compare(call, op, sample, device)
        if difference is None:
            continue
        compared += 1
        if difference:
            text = _PREFIXES.get(call, "") + _describe_call(op, sample)
            type_name = str(dtype).removeprefix("torch.")
            return compared, f"{text}, of torch's samples of {type_name}, {difference}"
    return compared, ""


def _samples(
    op: Any, dtype: torch.dtype, most: int, *, strided: bool, backward: bool
) -> Iterator[Any]:
    """Yield at most `most` of torch's samples for the operator, on the CPU, spread over all samples."""
    every = _all_samples(op, dtype, backward=backward)
    step = max(1, math.ceil(len(every) / most))
    for sample in every[::step]:
        if not strided:
            yield sample
            continue
        tensors = find_tensors((sample.input, sample.args, sample.kwargs))
        if all(tensor.layout is torch.strided for tensor in tensors):
            yield _make_strided(op, sample)


def _all_samples(op: Any, dtype: torch.dtype, *, backward: bool) -> list[Any]:
    """Return torch's samples for the CPU; none if the operator does not support the type or gradients."""
    if backward:
        supported = op.supports_autograd and dtype in op.supported_backward_dtypes(
            "cpu"
        )
    else:
        supported = dtype in op.supported_dtypes("cpu")
    if not supported:
        return []
    torch.manual_seed(0)
    with _no_warnings():
        try:
            # `op.sample_inputs` is not used: searching the stack for the running test takes milliseconds.
            return list(op.sample_inputs_func(op, "cpu", dtype, backward))
        except Exception:
            return []  # no samples can be created for the CPU


def _make_strided(op: Any, sample: Any) -> Any:
    """Return the sample with strided tensors, and with negative dimensions if the result is unchanged."""
    strided = sample.noncontiguous()
    from_the_end = _count_dimensions_from_end(sample.noncontiguous())
    expected = _try_call(forward, op, strided, _CPU)
    results = _try_call(forward, op, from_the_end, _CPU)
    if expected and results and not any(map(describe_difference, results, expected)):
        return from_the_end
    return strided  # the argument did not name a dimension


def _count_dimensions_from_end(sample: Any) -> Any:
    """Change arguments that may be dimensions to negative ones, such as `dim=0` of two to `dim=-2`.

    These arguments are the first integer or sequence, and each keyword that begins with `dim`.
    """
    if not isinstance(sample.input, torch.Tensor):
        return sample
    dimensions = sample.input.dim()

    def count_from_end(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(count_from_end, value))
        if type(value) is int and 0 <= value < dimensions:
            return value - dimensions
        return value

    arguments = list(sample.args)
    for position, argument in enumerate(arguments):
        if type(argument) in (int, tuple, list):
            arguments[position] = count_from_end(argument)
            break
    sample.args = tuple(arguments)
    for name, argument in sample.kwargs.items():
        if name.startswith("dim"):
            sample.kwargs[name] = count_from_end(argument)
    return sample


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Ignore warnings inside the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compare(call: OpCall, op: Any, sample: Any, device: torch.device) -> str | None:
    """Return the difference between device and CPU, or an empty string; `None` if either raises an error."""
    expected = _try_call(call, op, sample, _CPU)
    if expected is None:
        return None
    results = _try_call(call, op, sample, device)
    if results is None:
        return None
    difference = _first_difference(results, expected)
    if not difference:
        return ""
    if _is_random(call, op, sample, expected):
        return ""
    if _is_ill_conditioned(call, op, sample, expected):
        return ""
    return difference + find_wrong_kernel(lambda: call(op, sample, device))


def _first_difference(results: list[Any], expected: list[Any]) -> str:
    """Return the difference between the first incorrect result and the expected result; empty if none."""
    if len(results) != len(expected):
        return f"gives {len(results)} results; expected {len(expected)}"
    for result, expected_result in zip(results, expected, strict=True):
        difference = describe_difference(result, expected_result, _TOLERANCE)
        if difference:
            return difference
    return ""


def _try_call(
    call: OpCall, op: Any, sample: Any, device: torch.device
) -> list[Any] | None:
    """Return the results, copied to the CPU; `None` if the call raises an error."""
    torch.manual_seed(1)
    with _no_warnings():
        try:
            results = pytree.tree_leaves(call(op, sample, device))
            return [
                result.detach().cpu() if isinstance(result, torch.Tensor) else result
                for result in results
            ]
        except (Exception, unittest.SkipTest):
            return None


def _is_random(call: OpCall, op: Any, sample: Any, expected: list[Any]) -> bool:
    """Return whether the CPU's results depend on the seed, including seeds that the database sets."""
    for offset in range(1, 17):  # some operators draw one of two numbers
        with _seed_cpu_only(offset):
            again = _try_call(call, op, sample, _CPU)
        if again is None:
            return True
        pairs = zip(again, expected, strict=True)
        if any(describe_difference(result, other, 0.0) for result, other in pairs):
            return True
    return False


def _is_ill_conditioned(
    call: OpCall, op: Any, sample: Any, expected: list[Any]
) -> bool:
    """Return whether the CPU's result differs considerably from the CPU's result in float64."""
    exact_results = _try_call(
        lambda op, sample, device: call(op, sample.transform(_to_double), device),
        op,
        sample,
        _CPU,
    )
    if exact_results is None:
        return False
    for result, exact in zip(expected, exact_results, strict=True):
        # With another shape, memory is laid out differently.
        if isinstance(result, torch.Tensor) and result.shape == exact.shape:
            rounded = exact.to(result.dtype)
            if describe_difference(result, rounded, _TOLERANCE / 20):
                return True
    return False


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    """Return floating-point and complex tensors in double precision, and other tensors unchanged."""
    double = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    dtype = double.get(tensor.dtype)
    if dtype is None:
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def _seed_cpu_only(offset: int) -> Any:
    """Make `torch.manual_seed` add `offset` to the seed, and seed only the CPU.

    Otherwise torch would store a stack trace at each call for devices that this machine does not have.
    """
    seed_cpu = torch.default_generator.manual_seed
    return mock.patch.object(torch, "manual_seed", lambda seed: seed_cpu(seed + offset))


def _describe_call(op: Any, sample: Any) -> str:
    """Return the call as text, such as `"add(a tensor of shape (2, 3), 1)"`."""
    arguments = [
        _describe_argument(argument) for argument in (sample.input, *sample.args)
    ]
    arguments += [
        f"{name}={_describe_argument(argument)}"
        for name, argument in sample.kwargs.items()
    ]
    return f"{op.name}({', '.join(arguments)})"


def _describe_argument(value: Any) -> str:
    """Return a short description of an argument: a tensor's shape, a number of tensors, or the repr."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)) and find_tensors(value):
        return f"{len(value)} tensors"
    return repr(value)[:60]


def copy_arguments(copier: DeviceCopier, op: Any, sample: Any) -> tuple[Any, Any, Any]:
    """Return the sample's input, arguments and keyword arguments as copied by `copier`."""
    if op.name in _NEEDS_CPU_ARGUMENTS:
        return copier(sample.input), sample.args, sample.kwargs
    return copier(sample.input), copier(sample.args), copier(sample.kwargs)


def default_device(device: torch.device, sample: Any) -> Any:
    """Return a context manager that makes `device` the default for a call to an operator.

    Nothing changes if the call has a tensor or a `device` argument, which determines the device.
    """
    tensors = find_tensors((sample.input, sample.args, sample.kwargs))
    if tensors or "device" in sample.kwargs or device.type == "cpu":
        return nullcontext()
    return device


def forward(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the operator's result, normalized as in torch's tests if more than one result is correct."""
    copier = DeviceCopier(device, gradients=False)
    input_, args, kwargs = copy_arguments(copier, op, sample)
    with torch.no_grad(), default_device(device, sample):
        result = op(input_, *args, **kwargs)
    if sample.output_process_fn_grad:
        return sample.output_process_fn_grad(result)
    return result


def gradients(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the gradients of the operator's arguments, for output gradients that are not all equal."""
    input_, args, kwargs = copy_arguments(DeviceCopier(device), op, sample)
    tensors = find_tensors((input_, args, kwargs))
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    result = op(input_, *args, **kwargs)
    if sample.output_process_fn_grad:
        result = sample.output_process_fn_grad(result)
    outputs = [tensor for tensor in find_tensors(result) if tensor.requires_grad]
    output_gradients = [gradient_of(output) for output in outputs]
    return torch.autograd.grad(outputs, inputs, output_gradients, allow_unused=True)


def gradients_in_place(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the gradients of the in-place form of an operator.

    The kernels of this form may use the result in place of the input, which has been overwritten.
    """
    input_, args, kwargs = copy_arguments(DeviceCopier(device), op, sample)
    tensors = find_tensors((input_, args, kwargs))
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    # A leaf that requires a gradient cannot be modified in place.
    result = input_.clone()
    op.inplace_variant(result, *args, **kwargs)
    return torch.autograd.grad(result, inputs, gradient_of(result), allow_unused=True)


def gradient_of(output: torch.Tensor) -> torch.Tensor:
    """Return a gradient for the tensor `output` whose numbers are not all equal."""
    if output.layout != torch.strided:
        return torch.ones_like(output)
    numbers = (
        torch.arange(output.numel(), dtype=torch.float32).remainder_(7).add_(1).div_(8)
    )
    return numbers.reshape(output.shape).to(output.dtype).to(output.device)


def written(op: Any, sample: Any, device: torch.device) -> Any:
    """Return all memory that the in-place operator could have written to."""
    copier = DeviceCopier(device, gradients=False)
    input_, args, kwargs = copy_arguments(copier, op, sample)
    with torch.no_grad():
        op.inplace_variant(input_, *args, **kwargs)
    return copier.storages


def written_into(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the memory of `out` after the operator wrote into it, with the memory before and after `out`.

    `out` is contiguous, because some of torch's kernels do not write correctly into a strided `out`. Raises
    `RuntimeError`, so that the sample is not compared, if the CPU does not write the result into `out`.
    """
    with torch.no_grad():
        input_, args, kwargs = copy_arguments(
            DeviceCopier(_CPU, gradients=False), op, sample
        )
        expected = op(input_, *args, **kwargs)
        process = sample.output_process_fn_grad
        if process and process(expected) is not expected:
            raise RuntimeError("several results are right")
        parts = find_tensors(expected)
        # `out` is the second of three parts of the memory.
        memory = [
            torch.full((3, *part.shape), 3, dtype=part.dtype, device=device)
            for part in parts
        ]
        outs = [three[1] for three in memory]
        out = outs[0] if isinstance(expected, torch.Tensor) else tuple(outs)
        input_, args, kwargs = copy_arguments(
            DeviceCopier(device, gradients=False), op, sample
        )
        with default_device(device, sample):
            op(input_, *args, **kwargs, out=out)
    if device.type == "cpu" and any(map(describe_difference, outs, parts)):
        raise RuntimeError(
            f"torch itself does not write the result of {op.name} into `out`"
        )
    return memory


def several(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the results of an operator on lists of tensors, and the tensors after the in-place form."""
    results: list[Any] = []
    for variant in (op.method_variant, op.inplace_variant):
        if variant:
            copier = DeviceCopier(device, gradients=False)
            input_, args, kwargs = copy_arguments(copier, op, sample)
            with torch.no_grad():
                result = variant(input_, *args, **kwargs)
            results += [result, *copier.storages]
    return results


#: The words before the operator's name in a message.
_PREFIXES: dict[OpCall, str] = {
    gradients: "the gradient of ",
    gradients_in_place: "the gradient in place of ",
    written: "in place, ",
    written_into: "into `out`, ",
    several: "given or in place, ",
}
