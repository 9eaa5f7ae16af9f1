"""Provide the optimizer operators for any device, written with torch's own operators.

Nothing is compiled. `load()` returns a module that has the functions of the compiled one, with the same names
and arguments. Importing this package does not import torch.
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
    """A builder of DeepSpeed's interface whose operator is a Python module: `NAME` is the module's name."""

    NAME: ClassVar[str]
    #: Empty, as nothing is built; DeepSpeed's `setup.py` reads it of each builder.
    BUILD_VAR: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Return the operator's name, as reports print it."""
        return self.NAME

    def absolute_name(self) -> str:
        """Return the name of the module that `load()` returns."""
        return f"{__name__}.{self.NAME}"

    def compatibility(self) -> str:
        """Return why the operator cannot be used, which is without torch; empty if it can."""
        return "" if torch_build() else "torch is not installed"

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether the operator can be used here."""
        return not self.compatibility()

    def is_built(self) -> bool:
        """Return True, as there is nothing to build."""
        return True

    def load(self, verbose: bool = True) -> ModuleType:
        """Import and return the module with the operator's functions."""
        return import_module(self.absolute_name())

    def builder(self) -> NoReturn:
        """Raise `UnsupportedError`: there is no extension to build ahead of time."""
        raise UnsupportedError(
            f"{self.NAME}: the portable operator is Python: it needs load(), but no build"
        )


class FusedAdamBuilder(_Portable):
    """Builder of a module with `multi_tensor_adam`: Adam and AdamW over lists of tensors."""

    NAME = "fused_adam"


class FusedLambBuilder(_Portable):
    """Builder of a module with `lamb`: LAMB on one parameter."""

    NAME = "fused_lamb"


class FusedLionBuilder(_Portable):
    """Builder of a module with `multi_tensor_lion`: Lion over lists of tensors."""

    NAME = "fused_lion"


class CPUAdamBuilder(_Portable):
    """Builder of a module with `create_adam`, `adam_update`, `adam_rollback`, `destroy_adam`."""

    NAME = "cpu_adam"


class CPUAdagradBuilder(_Portable):
    """Builder of a module with `create_adagrad`, `adagrad_update`, `destroy_adagrad`."""

    NAME = "cpu_adagrad"


class CPULionBuilder(_Portable):
    """Builder of a module with `create_lion`, `lion_update`, `destroy_lion`."""

    NAME = "cpu_lion"
