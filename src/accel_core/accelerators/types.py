"""Types for annotations: what has no class of its own in torch, or many.

Loaded by type checkers, and by who asks for a name; calling an accelerator loads none of it. A device is
`torch.types.Device`, `int | str | torch.device | None`; a stream is a `torch.Stream`, an event a
`torch.Event`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceCapability", "GradScalerOptions", "Graph", "OpBuilderLike"]


class Graph(Protocol):
    """Work that was captured once: `torch.cuda.CUDAGraph`, `torch.accelerator.Graph`, and vendors' own.

    What not all of them have (`pool()`, which Gaudi's lacks) is not here.
    """

    def capture_begin(self) -> None:
        """Begin to capture what the current stream is given."""

    def capture_end(self) -> None:
        """End it."""

    def replay(self) -> None:
        """Run what was captured."""

    def reset(self) -> None:
        """Forget what was captured."""


class OpBuilderLike(Protocol):
    """Builds and loads one operator: accel-core's `OpBuilder`, a framework's, and the portable ones."""

    @property
    def name(self) -> str:
        """The operator's name, as reports print it."""

    def is_compatible(self, verbose: bool = False) -> bool:
        """Whether the operator can be used here."""

    def load(self, verbose: bool = True) -> Any:
        """What has the operator's functions: a module, or what stands for it."""

    def builder(self) -> Any:
        """The extension for `setuptools`, to build it ahead of time."""


class DeviceCapability(TypedDict):
    """What `get_device_capability` gives."""

    supported_dtypes: set[torch.dtype]


class GradScalerOptions(TypedDict, total=False):
    """What `grad_scaler` passes on: the arguments of `torch.amp.GradScaler` besides the device."""

    init_scale: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    enabled: bool
