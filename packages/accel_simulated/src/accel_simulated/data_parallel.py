"""Copies among devices that `torch.nn.DataParallel` calls in `torch._C`, where only CUDA builds have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FUNCTIONS", "refusals"]


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    return [tensor.to(_cuda(device), non_blocking=True) for device in devices]


def broadcast_out(tensor: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    return [output.copy_(tensor, non_blocking=True) for output in outputs]


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], size: int
) -> list[list[Tensor]]:
    return [
        [broadcast(tensor, [device])[0] for tensor in tensors] for device in devices
    ]


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    sizes: Sequence[int] | None,
    dim: int,
    streams: Any = None,
) -> list[Tensor]:
    import torch

    if sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split(list(sizes), dim)  # type: ignore[no-untyped-call]
    copies = []
    for number, part in enumerate(parts):
        with torch.cuda.stream(streams[number] if streams else None):
            copies.append(part.to(_cuda(devices[number]), non_blocking=True))
    return copies


def scatter_out(
    tensor: Tensor, outputs: Sequence[Tensor], dim: int, streams: Any = None
) -> list[Tensor]:
    parts = tensor.split([output.size(dim) for output in outputs], dim)  # type: ignore[no-untyped-call]
    return [
        output.copy_(part, non_blocking=True)
        for output, part in zip(outputs, parts, strict=True)
    ]


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    import torch

    here = torch.cuda.current_device() if destination is None else destination
    return torch.cat(
        [tensor.to("cpu" if here == -1 else _cuda(here)) for tensor in tensors], dim
    )


def gather_out(tensors: Sequence[Tensor], output: Tensor, dim: int) -> Tensor:
    import torch

    return output.copy_(
        torch.cat([tensor.to(output.device) for tensor in tensors], dim)
    )


def _cuda(device: int) -> str:
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


def refusals(device_type: str) -> dict[str, Callable[..., Any]]:
    """Return functions of the same names that say what to write, for a device type other than CUDA."""
    from accel_core import UnsupportedError

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise UnsupportedError(
            "torch.nn.DataParallel, and torch.nn.parallel.comm that it is made of, are for CUDA only, not "
            f"for {device_type}. Use torch.nn.parallel.DistributedDataParallel, with one process for each "
            "device: accel run SCRIPT"
        )

    return dict.fromkeys(FUNCTIONS, refuse)
