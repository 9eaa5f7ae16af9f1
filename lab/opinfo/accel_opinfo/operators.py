"""Each operator of torch's `op_db` with all its samples: forward, backward, in place, `out=`, and errors."""

import torch

from accel_opinfo.settled import settled
from accel_opinfo.tally import first_line
from accel_testing.conformance.compute.copying import DeviceCopier, find_tensors
from accel_testing.conformance.compute.samples import (
    copy_arguments,
    default_device,
    gradient_of,
)

#: Their values are whatever was in memory, in whole or in part.
UNWRITTEN = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
    "resize_as_",
}  # fmt: skip


def _database():
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op
        for op in op_db
    }


def cases(dtypes):
    """Give name and dtype of everything in the database that the CPU supports."""
    return [
        [name, dtype]
        for name, op in _database().items()
        for dtype in dtypes
        if getattr(torch, dtype) in op.supported_dtypes("cpu")
    ]


def run(name, dtype, tally):
    """Run all samples of one operator with one dtype. Raises what making the samples raises."""
    op = _database()[name]
    wanted = getattr(torch, dtype)
    backward = op.supports_autograd and wanted in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", wanted, requires_grad=backward))
    for sample in samples:
        sample.kwargs = settled(sample.kwargs, wanted)
    values = op.name not in UNWRITTEN
    for variant, turn in (
        ("forward", _forward),
        ("backward", _backward),
        ("in-place", _in_place),
        ("out=", _out),
    ):
        if tally.wants(variant):
            for number, sample in enumerate(samples):
                turn(op, sample, f"sample {number}", tally, values)
    if (
        dtype == "float32"
        and op.error_inputs_func is not None
        and tally.wants("errors")
    ):
        _errors(op, tally)


def _forward(op, sample, what, tally, values):
    def call(device):
        given, args, kwargs = copy_arguments(
            DeviceCopier(device, gradients=False), op, sample
        )
        with torch.no_grad(), default_device(torch.device(device), sample):
            return op(given, *args, **kwargs)

    tally.run("forward", call, what, values=values)


def _backward(op, sample, what, tally, values):
    wanted = [
        tensor
        for tensor in find_tensors((sample.input, sample.args, sample.kwargs))
        if tensor.requires_grad
    ]
    if not wanted:
        return

    def call(device):
        given, args, kwargs = copy_arguments(DeviceCopier(device), op, sample)
        inputs = [
            tensor
            for tensor in find_tensors((given, args, kwargs))
            if tensor.requires_grad
        ]
        outputs = op(given, *args, **kwargs)
        if sample.output_process_fn_grad is not None:
            outputs = sample.output_process_fn_grad(outputs)
        outputs = [tensor for tensor in find_tensors(outputs) if tensor.requires_grad]
        upstream = [gradient_of(tensor) for tensor in outputs]
        return torch.autograd.grad(outputs, inputs, upstream, allow_unused=True)

    tally.run("backward", call, what, values=values)


def _in_place(op, sample, what, tally, values):
    if op.inplace_variant is None or sample.broadcasts_input:
        return

    def call(device):
        given, args, kwargs = copy_arguments(
            DeviceCopier(device, gradients=False), op, sample
        )
        with torch.no_grad():
            returned = op.inplace_variant(given, *args, **kwargs)
        return [returned, given, returned is given]

    tally.run("in-place", call, what, values=values)


def _out(op, sample, what, tally, values):
    if not op.supports_out:
        return
    made = []
    many = False

    def expected():
        nonlocal many
        given, args, kwargs = copy_arguments(
            DeviceCopier("cpu", gradients=False), op, sample
        )
        torch.manual_seed(1)
        try:
            with torch.no_grad():
                result = op(given, *args, **kwargs)
        except Exception:
            return False
        many = not isinstance(result, torch.Tensor)
        made.extend(find_tensors(result))
        return bool(made) and all(tensor.layout == torch.strided for tensor in made)

    if not expected():
        return

    def with_out(prepare):
        def call(device):
            given, args, kwargs = copy_arguments(
                DeviceCopier(device, gradients=False), op, sample
            )
            out = [prepare(tensor, device) for tensor in made]
            starts = [tensor.data_ptr() for tensor in out]
            with torch.no_grad(), default_device(torch.device(device), sample):
                returned = op(
                    given, *args, **kwargs, out=tuple(out) if many else out[0]
                )
            kept = [
                start == tensor.data_ptr()
                for start, tensor in zip(starts, out, strict=True)
            ]
            return [returned, out, kept if any(starts) else None]

        return call

    tally.run("out=", with_out(_exact), f"{what}, of its size", values=values)
    tally.run("out=", with_out(_nothing), f"{what}, empty", values=values)
    tally.run("out=", with_out(_apart), f"{what}, strided", values=values)


def _exact(tensor, device):
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=device)


def _nothing(tensor, device):
    return torch.empty(0, dtype=tensor.dtype, device=device)


def _apart(tensor, device):
    return torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=device)[..., 0]


def _errors(op, tally):
    try:
        refused = list(op.error_inputs("cpu"))
    except Exception as error:
        raise RuntimeError(
            f"the database cannot make its error inputs: {first_line(error)}"
        ) from error
    for number, each in enumerate(refused):

        def call(device, sample=each.sample_input):
            given, args, kwargs = copy_arguments(
                DeviceCopier(device, gradients=False), op, sample
            )
            return op(given, *args, **kwargs)

        tally.raises("errors", call, f"error input {number}")
