"""Requirements of the staged process group on an accelerator, and its name in torch.distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

__all__ = ["STAGED", "Device"]

#: What the staged process group is called in torch.distributed.
STAGED = "staged"


class Device(Protocol):
    """The group's requirements on an accelerator."""

    @property
    def Event(self) -> Any:  # noqa: N802 - torch's names
        """The class of events."""

    @property
    def Stream(self) -> Any:  # noqa: N802
        """The class of streams; `one_queue` where there is none but the device's own."""

    def device_name(self, device_index: int | None = None) -> str:
        """The device type."""

    def device_guard(self, device_index: int | None) -> AbstractContextManager[Any]:
        """Selects a device for a while."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Makes a stream the current one for a while."""

    def current_stream(self, device_index: int | None = None) -> Any:
        """The stream that this thread's work goes to."""

    def pin_empty(self, *size: Any, dtype: torch.dtype) -> torch.Tensor:
        """Page-locked host memory."""
