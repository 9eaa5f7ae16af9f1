"""Section of the interface: operators that need a build, found by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.accelerators._launch import Launch
from accel_core.errors import UnsupportedError

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["NotImplementedBuilder", "Ops"]


class NotImplementedBuilder:
    """Stands for a builder that nobody provides: it exists, and says so when it is asked to load.

    `get_op_builder` gives a subclass that knows the operator and the backend.
    """

    #: The builder that was asked for: `"FusedAdamBuilder"`.
    name: ClassVar[str] = "an operator builder"
    _missing: ClassVar[str] = "no installed distribution provides this operator builder"

    def is_compatible(self, verbose: bool = False) -> bool:
        """False: there is nothing to build."""
        return False

    def load(self, verbose: bool = True) -> Any:
        """Raise `UnsupportedError` that says what is missing."""
        raise UnsupportedError(self._missing)

    def builder(self) -> Any:
        """Raise `UnsupportedError` that says what is missing."""
        raise UnsupportedError(self._missing)


class Ops(Launch):
    """Operators that need a build, found by name in the tables that plugins bring."""

    #: Gives the table `{"FusedAdamBuilder": "module:Class"}` of a backend; set where plugins are known.
    _op_builder_sources: Callable[[Backend], Mapping[str, str]] | None

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._op_builder_sources = None
        self._op_builder_classes: dict[str, type[Any]] = {}

    def op_builder_dir(self) -> str:
        """The package that holds this backend's own builders.

        The default is the package of accel-core's portable builders, which serve any device. A plugin
        that brings a package of builders overrides this; one that brings a table need not.
        """
        return "accel_core.ops"

    def op_builders(self) -> Mapping[str, str]:
        """Every operator builder known for this backend, by name, with the `"module:Class"` behind it."""
        if self._op_builder_sources is None:
            return MappingProxyType({})
        return MappingProxyType(dict(self._op_builder_sources(self.backend)))

    def get_op_builder(self, class_name: str) -> type[Any]:
        """The builder class of that name, imported now; a `NotImplementedBuilder` when nobody has it.

        Raises `UnsupportedError` when the module that provides it fails to import.
        """
        known = self._op_builder_classes.get(class_name)
        return self._find_op_builder(class_name) if known is None else known

    def create_op_builder(self, class_name: str) -> Any:
        """An instance of `get_op_builder(class_name)`."""
        return self.get_op_builder(class_name)()

    def build_extension(self) -> type[Any]:
        """The setuptools command that compiles extensions for this device."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def _find_op_builder(self, name: str) -> type[Any]:
        source = self.op_builders().get(name)
        if source is None:
            missing = f"{self.name}: no installed distribution provides {name}"
            return type(
                "NotImplementedBuilder", (NotImplementedBuilder,), {"name": name, "_missing": missing}
            )
        module, _, attribute = source.partition(":")
        try:
            found: type[Any] = getattr(import_module(module), attribute)
        except Exception as error:
            raise UnsupportedError(
                f"{self.name}: {name} comes from {source}, which fails to import: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._op_builder_classes[name] = found
        return found
