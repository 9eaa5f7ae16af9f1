"""`TPUAccelerator`: what differs on torch.tpu from any other device module of torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from accel_core import Backend, DeviceProperties, TorchAccelerator
from accel_tpu.library import LIBRARY, own_library

if TYPE_CHECKING:
    from torch.types import Device

__all__ = ["TPUAccelerator"]


class TPUAccelerator(TorchAccelerator):
    """Google TPUs.

    TorchTPU leaves most functions of `torch.tpu` to torch, so those of
    `torch.accelerator` are used. It orders work by its data, so all streams are one
    queue. A process has one device and cannot select another. With a library in place
    of libtpu, every process starts a runtime of its own.
    """

    def __init__(self, backend: Backend) -> None:
        self._library = own_library()
        self._count = 0
        _register()
        super().__init__(backend)
        if self._library is not None:
            warnings.warn(
                f"{backend.name}: TorchTPU runs on {self._library} ({LIBRARY}) in place of libtpu",
                UserWarning,
                stacklevel=2,
            )
            with _without_launcher_variables():
                self._holds_tensors()

    def resolves_data_dependency(self) -> bool:
        """Return True: XLA orders work by the data that it needs, as TorchTPU documents
        for its streams.
        """
        return True

    def device_count(self) -> int:
        """Return the number of devices that TorchTPU sees; at most 1 with a library in
        place of libtpu.
        """
        if not self._count:  # kept, as torch.compile cannot look into torch's count
            self._count = int(super().device_count())
            if self._library is not None:
                self._count = min(self._count, 1)
        return self._count

    def _select(self, index: int) -> None:
        current = self.current_device()
        if index != current:
            raise self._unsupported(
                "set_device",
                f"it binds a process to device {current}, and device {index} was "
                "named: start a process for each device, with accel run or torchrun",
            )

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return TorchTPU's properties; with a library in place of libtpu, the name
        says so.
        """
        if device is not None:
            device_index = self._one_device(device_index, device)
        properties = super().device_properties(device_index)
        if self._library is None:
            return properties
        return replace(properties, name=f"TorchTPU on {self._library.name}")


@contextmanager
def _without_launcher_variables() -> Iterator[None]:
    """Hide the launcher's variables: with them TorchTPU's runtime looks for a slice of
    TPUs, and aborts.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _register() -> None:
    """Register the device with torch: TorchTPU does it at import only where the PCI bus
    shows a TPU.
    """
    from torch_tpu import _loader

    _loader._init_device("tpu")  # nothing where it is registered; starts no runtime
