"""Provide the optimizer operators for any device, implemented with torch's own operators.

Nothing is compiled. `load()` returns a module with the same functions and arguments as DeepSpeed's compiled
module. Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import ClassVar, NoReturn

from accel_core import torch_build
from accel_core.errors import UnsupportedError

__all__ = [
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "FusedAdamBuilder",
    "FusedLambBuilder",
    "FusedLionBuilder",
]


class _Portable:
    """A builder with DeepSpeed's interface whose operator is the Python module named in `NAME`."""

    NAME: ClassVar[str]
    #: Empty, because nothing is built. DeepSpeed's `setup.py` reads this attribute of each builder.
    BUILD_VAR: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Return the operator's name, such as `fused_adam`."""
        return self.NAME

    def absolute_name(self) -> str:
        """Return the full name of the module that `load()` returns."""
        return f"{__name__}.{self.NAME}"

    def compatibility(self) -> str:
        """Return why the operator cannot be used on this machine, or an empty string if it can be used."""
        if torch_build() is None:
            return "torch is not installed"
        return ""

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether the operator can be used on this machine."""
        return not self.compatibility()

    def is_built(self) -> bool:
        """Return True, because a portable operator needs no build."""
        return True

    def load(self, verbose: bool = True) -> ModuleType:
        """Import and return the module that contains the operator's functions."""
        return import_module(self.absolute_name())

    def builder(self) -> NoReturn:
        """Raise `UnsupportedError`, because a portable operator has no extension to build ahead of time."""
        raise UnsupportedError(
            f"{self.NAME}: the portable operator is written in Python, so it has no extension to build. "
            "Call load() instead."
        )


class FusedAdamBuilder(_Portable):
    """The builder of a module with `multi_tensor_adam`, which performs Adam and AdamW on lists of tensors."""

    NAME = "fused_adam"


class FusedLambBuilder(_Portable):
    """The builder of a module with `lamb`, which performs LAMB on one parameter."""

    NAME = "fused_lamb"


class FusedLionBuilder(_Portable):
    """The builder of a module with `multi_tensor_lion`, which performs Lion on lists of tensors."""

    NAME = "fused_lion"


class CPUAdamBuilder(_Portable):
    """The builder of a module with `create_adam`, `adam_update`, `adam_rollback` and `destroy_adam`."""

    NAME = "cpu_adam"


class CPUAdagradBuilder(_Portable):
    """The builder of a module with `create_adagrad`, `adagrad_update` and `destroy_adagrad`."""

    NAME = "cpu_adagrad"


class CPULionBuilder(_Portable):
    """The builder of a module with `create_lion`, `lion_update` and `destroy_lion`."""

    NAME = "cpu_lion"
