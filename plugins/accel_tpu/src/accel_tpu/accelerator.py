"""`TPUAccelerator`: the members to override for torch.tpu."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from accel_core import Backend, DeviceProperties, TorchAccelerator
from accel_tpu.library import LIBRARY_VARIABLE, selected_library

if TYPE_CHECKING:
    from torch.types import Device

__all__ = ["TPUAccelerator"]


class TPUAccelerator(TorchAccelerator):
    """The accelerator for Google TPUs.

    Most functions of `torch.tpu` are internal, so members call `torch.accelerator`.
    TorchTPU orders work by data dependencies, so all streams are the same queue. A
    process has one device and cannot select another. With a PJRT library other than
    libtpu, each process starts its own runtime.
    """

    def __init__(self, backend: Backend) -> None:
        self._library = selected_library()
        self._count = 0
        _register_device()
        super().__init__(backend)
        if self._library is not None:
            warnings.warn(
                f"{backend.name}: TorchTPU runs on {self._library} ({LIBRARY_VARIABLE}) instead of libtpu",
                UserWarning,
                stacklevel=2,
            )
            with _without_launcher_variables():
                self._try_to_create_tensor()  # starts TorchTPU's runtime

    def resolves_data_dependency(self) -> bool:
        """Return True: XLA orders work by data dependencies, as TorchTPU documents."""
        return True

    def device_count(self) -> int:
        """Return the number of devices that TorchTPU reports.

        With a PJRT library other than libtpu, the number is at most 1.
        """
        # The number is cached, because torch.compile cannot trace the call.
        if not self._count:
            self._count = int(super().device_count())
            # With another library, each process starts a runtime for one device.
            if self._library is not None:
                self._count = min(self._count, 1)
        return self._count

    def _select(self, index: int) -> None:
        current = self.current_device()
        # The current device needs no selection, and no other device can be selected.
        if index != current:
            raise self._unsupported(
                "set_device",
                f"this process uses device {current} and cannot select device {index}. "
                "Next step: start one process per device, with `accel run` or torchrun",
            )

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the properties that TorchTPU reports for the device.

        With a PJRT library other than libtpu, the device's name contains the library's
        file name.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        properties = super().device_properties(device_index)
        if self._library is None:
            return properties
        return replace(properties, name=f"TorchTPU on {self._library.name}")


@contextmanager
def _without_launcher_variables() -> Iterator[None]:
    """Remove the launcher's variables until the end of the `with` block.

    With these variables, TorchTPU's runtime expects several TPUs and aborts.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    removed = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


def _register_device() -> None:
    """Register the device with torch.

    When TorchTPU is imported, it registers the device only if the PCI bus has a TPU.
    """
    from torch_tpu import _loader

    # This has no effect if the device is registered already, and starts no runtime.
    _loader._init_device("tpu")
