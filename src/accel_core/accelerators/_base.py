"""What every section of the interface stands on: the declaration, torch, and the wording of a refusal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from accel_core._support.torch_import import import_torch
from accel_core.errors import UnsupportedError

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["Base", "Memo", "accelerator_by_name"]

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V], Generic[K, V]):
    """A mapping that makes a missing value once: a hit costs no more than a dictionary look-up."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(key)
        return value


def accelerator_by_name(name: str) -> Any:
    """Rebuild a pickled accelerator: the one that this process has for the backend `name`.

    A device cannot travel between processes, so the pickle holds the name alone.
    """
    import accel_core  # here, because the package's choosing half imports this one

    return accel_core.accelerator(name)


class Base:
    """Identity of an accelerator, and what its sections share."""

    #: Name of the backend: the value of `DS_ACCELERATOR`.
    name: str
    #: The declaration that this accelerator was built from, with its provenance.
    backend: Backend

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        # DeepSpeed's `env_report.py` and op builders read this one.
        self._name = backend.name
        self._torch: Any = import_torch()
        self._device_type = device_type = self._torch_device_type()
        self._names: Memo[int | None, str] = Memo(
            lambda index: device_type if index is None else f"{device_type}:{int(index)}"
        )
        torch_device = self._torch.device
        self._devices: Memo[int | None, Any] = Memo(
            lambda index: (
                torch_device(device_type) if index is None else torch_device(device_type, int(index))
            )
        )

    def _torch_device_type(self) -> str:
        """The device type in torch, asked once, at construction."""
        return self.backend.device_type

    @property
    def api_level(self) -> int:
        """The accel-core API level that the backend's plugin was written for."""
        return self.backend.api_level

    def apply_vendor_defaults(self) -> None:
        """Set up this process as the vendor recommends; nothing does so unless it is called.

        Sets those variables of `Backend.environment` that are not set. A plugin may do more.
        """
        for assignment in self.backend.environment:
            name, _, value = assignment.partition("=")
            os.environ.setdefault(name, value)

    def __repr__(self) -> str:
        origin = f" ({self.backend.provenance})" if self.backend.provenance else ""
        return f"<{type(self).__name__} {self.name!r}{origin}>"

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return accelerator_by_name, (self.name,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def _vendor_version(self) -> str:
        """The vendor's package and version, as an error message names it: `"torch_npu 2.13.0"`."""
        for module in self.backend.vendor_imports:
            package = module.partition(".")[0]
            version = getattr(sys.modules.get(package), "__version__", None)
            if version is None:
                from importlib import metadata  # here, because the import alone takes 30 ms

                try:
                    version = metadata.version(package)
                except metadata.PackageNotFoundError:
                    continue
            return f"{package} {version}"
        return f"torch {self._torch.__version__}"

    def _unsupported(self, member: str, reason: str = "") -> UnsupportedError:
        """The error to raise where the device cannot do `member`."""
        origin = f" ({self.backend.provenance})" if self.backend.provenance else ""
        return UnsupportedError(
            f"{self.name}{origin}: {member} is not supported by {self._vendor_version()}"
            + (f": {reason}" if reason else "")
        )
