"""Replace the functions in `torch._C` with which `torch.nn.DataParallel` copies tensors between devices.

CPU builds of torch lack these functions. Each replacement takes the same arguments as the C function with the
same name and a leading `_`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FUNCTIONS", "unsupported_functions"]


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Return a list with a copy of the tensor on each device."""
    return [tensor.to(_cuda(device), non_blocking=True) for device in devices]


def broadcast_out(tensor: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    """Copy the tensor into each output tensor, and return the output tensors."""
    for output in outputs:
        output.copy_(tensor, non_blocking=True)
    return list(outputs)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], size: int
) -> list[list[Tensor]]:
    """Copy all tensors to each device, and return one list of copies per device.

    `size` is the size of torch's copy buffer, which the simulation does not need.
    """
    copies_by_device = []
    for device in devices:
        copies = [tensor.to(_cuda(device), non_blocking=True) for tensor in tensors]
        copies_by_device.append(copies)
    return copies_by_device


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    sizes: Sequence[int] | None,
    dim: int,
    streams: Any = None,
) -> list[Tensor]:
    """Split the tensor along `dim`, and copy one part to each device.

    Returns the copies. `sizes` contains the size of each part along `dim`, or is `None` for equal parts.
    `streams` contains the stream to use for each copy, or is `None` for the current streams.
    """
    import torch

    if sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split(list(sizes), dim)  # type: ignore[no-untyped-call]
    copies = []
    for index, part in enumerate(parts):
        stream = None  # the current stream
        if streams:
            stream = streams[index]
        with torch.cuda.stream(stream):
            copies.append(part.to(_cuda(devices[index]), non_blocking=True))
    return copies


def scatter_out(
    tensor: Tensor, outputs: Sequence[Tensor], dim: int, streams: Any = None
) -> list[Tensor]:
    """Split the tensor along `dim` to match the output tensors, and copy each part into its output.

    Returns the output tensors.
    """
    sizes = [output.size(dim) for output in outputs]
    parts = tensor.split(sizes, dim)  # type: ignore[no-untyped-call]
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part, non_blocking=True)
    return list(outputs)


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """Concatenate the tensors along `dim` on one device, and return the result.

    `destination` is the index of that device. As in torch's C function, -1 means the CPU, and `None` means
    the current device.
    """
    import torch

    if destination == -1:  # as in torch's C function
        device = "cpu"
    elif destination is None:
        device = _cuda(torch.cuda.current_device())
    else:
        device = _cuda(destination)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def gather_out(tensors: Sequence[Tensor], output: Tensor, dim: int) -> Tensor:
    """Concatenate the tensors along `dim` into `output`, and return `output`."""
    import torch

    parts = [tensor.to(output.device) for tensor in tensors]
    return output.copy_(torch.cat(parts, dim))


def _cuda(device: int) -> str:
    """Return the name of the CUDA device with this index."""
    return f"cuda:{device}"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"_{function.__name__}": function
    for function in (
        broadcast,
        broadcast_out,
        broadcast_coalesced,
        scatter,
        scatter_out,
        gather,
        gather_out,
    )
}


def unsupported_functions(device_type: str) -> dict[str, Callable[..., Any]]:
    """Return functions that raise `UnsupportedError`, under the names of the functions in `FUNCTIONS`.

    These functions replace torch's functions on device types other than CUDA, because torch supports
    `torch.nn.DataParallel` on CUDA only.
    """
    from accel_core import UnsupportedError

    def unsupported(*arguments: Any, **options: Any) -> Any:
        raise UnsupportedError(
            f"torch.nn.DataParallel and torch.nn.parallel.comm support CUDA only, not {device_type}. Use "
            "torch.nn.parallel.DistributedDataParallel with one process per device: accel run SCRIPT"
        )

    functions: dict[str, Callable[..., Any]] = {}
    for name in FUNCTIONS:
        functions[name] = unsupported
    return functions
