"""Section of the interface: operators that need a build, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.accelerators._devices import Base
from accel_core.errors import UnsupportedError
from accel_core.ops import catalogue, deepspeed_builders
from accel_core.ops.catalogue import Kind, OpCandidate

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["NotImplementedBuilder", "Ops"]


class NotImplementedBuilder:
    """Stands for a builder that nobody provides: it exists, and says so when it is asked to load.

    `get_op_builder` gives a subclass that knows the operator and the backend. As in DeepSpeed, all of them
    have one `name`, so that reports list what is missing once.
    """

    #: The name that DeepSpeed looks for.
    NAME: ClassVar[str] = "deepspeed_not_implemented"
    name: ClassVar[str] = NAME
    #: The builder that was asked for: `"FusedAdamBuilder"`.
    op: ClassVar[str] = ""
    _missing: ClassVar[str] = "no installed distribution provides this operator builder"

    def compatibility(self) -> str:
        """What is missing."""
        return self._missing

    def is_compatible(self, verbose: bool = False) -> bool:
        """False: there is nothing to build."""
        return False

    def is_built(self) -> bool:
        """False: there is nothing to load either."""
        return False

    def load(self, verbose: bool = True) -> Any:
        """Raise `UnsupportedError` that says what is missing."""
        raise UnsupportedError(self._missing)

    def builder(self) -> Any:
        """Raise `UnsupportedError` that says what is missing."""
        raise UnsupportedError(self._missing)


class Ops(Base):
    """Operators that need a build, found by name: plugins', DeepSpeed's, accel-core's own."""

    #: Gives what plugins contribute for a backend, in order; set where plugins are known.
    _op_builder_sources: Callable[[Backend], Iterable[OpCandidate]] | None

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._op_builder_sources = None
        self._op_builder_classes: dict[str, type[Any]] = {}

    def op_builder_dir(self) -> str:
        """The package that holds this backend's builders; DeepSpeed lists operators by what is in it.

        DeepSpeed's own where it has one for this device, else that of accel-core's builders, which serve
        any device. A plugin that brings a package of builders overrides this; one that brings a table need
        not.
        """
        return deepspeed_builders.package(self._device_type) or "accel_core.ops"

    def op_builders(self) -> Mapping[str, str]:
        """Every operator builder known for this backend, by name, with the `"module:Class"` asked first.

        Nothing is imported for it.
        """
        return MappingProxyType({op: first.source for op, (first, *_) in self._op_candidates().items()})

    def get_op_builder(self, class_name: str) -> type[Any]:
        """The builder class of that name, imported now; a `NotImplementedBuilder` when nobody has it.

        What plugins contribute is asked first, then DeepSpeed's own builders for this device, accel-core's
        compiled ones and its portable ones; the first that is compatible is taken, and where none is, the
        first. Raises `UnsupportedError` when the module that a plugin contributes fails to import.
        """
        known = self._op_builder_classes.get(class_name)
        return self._find_op_builder(class_name) if known is None else known

    def create_op_builder(self, class_name: str) -> Any:
        """An instance of `get_op_builder(class_name)`.

        A builder that cannot be made gives a `NotImplementedBuilder` that says why: DeepSpeed makes one of
        each operator while it is imported, wanted or not.
        """
        found = self.get_op_builder(class_name)
        try:
            return found()
        except Exception as error:
            why = f"{self.name}: {class_name} cannot be made: {type(error).__name__}: {error}"
            return _not_implemented(class_name, why)()

    def build_extension(self) -> type[Any]:
        """The setuptools command that compiles extensions for this device."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def _op_candidates(self) -> dict[str, tuple[OpCandidate, ...]]:
        """The candidates for each operator, in the order in which they are asked."""
        sources = self._op_builder_sources
        return catalogue.table(self._device_type, sources(self.backend) if sources else ())

    def _find_op_builder(self, name: str) -> type[Any]:
        if name == NotImplementedBuilder.__name__:
            return NotImplementedBuilder  # what DeepSpeed compares with
        chosen = catalogue.choose(self._op_candidates().get(name, ()))
        if chosen is None:
            return _not_implemented(
                name, f"{self.name}: no installed distribution provides {name}; {_advice()}"
            )
        if chosen.builder_class is None:
            message = f"{self.name}: {name} comes from {chosen.provider}, but {chosen.fault}"
            if chosen.kind is not Kind.PLUGIN:
                return _not_implemented(name, message)
            raise UnsupportedError(message) from chosen.error
        self._op_builder_classes[name] = chosen.builder_class
        return chosen.builder_class


def _not_implemented(op: str, missing: str) -> type[NotImplementedBuilder]:
    return type("NotImplementedBuilder", (NotImplementedBuilder,), {"op": op, "_missing": missing})


def _advice() -> str:
    if deepspeed_builders.is_installed():
        return "DeepSpeed has none for this device, and accel-core neither. `accel ops` lists what there is."
    return "`pip install deepspeed` may bring it. `accel ops` lists what there is."
