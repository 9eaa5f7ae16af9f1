"""Declare the accelerator members that the staged process group needs, and the name of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["STAGED", "Device"]

#: The staged process group's name in torch.distributed.
STAGED = "staged"


class Device(Protocol):
    """The accelerator members that the staged process group calls."""

    @property
    def Event(self) -> Any:  # noqa: N802 - torch's names
        """Return the class of the device's events."""

    @property
    def Stream(self) -> Any:  # noqa: N802
        """Return the class of the device's streams.

        The class attribute `one_queue` is True if the device has only a single queue.
        """

    def device_name(self, device_index: int | None = None) -> str:
        """Return the device type, such as `npu`."""

    def device_guard(self, device_index: int | None) -> AbstractContextManager[Any]:
        """Return a context manager that selects the device with the index `device_index`."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context manager that makes `stream` the current stream."""

    def current_stream(self, device_index: int | None = None) -> Any:
        """Return the calling thread's current stream on the device with the given index."""
