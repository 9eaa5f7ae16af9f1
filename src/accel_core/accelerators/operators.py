"""Section of the interface: operators that need a build, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.accelerators.devices import Base
from accel_core.errors import UnsupportedError
from accel_core.machine.vendors import sourced

if TYPE_CHECKING:
    from accel_core.accelerators.records import OpBuilderLike
    from accel_core.backend import Backend
    from accel_core.ops import Operator, OpProvider


#: The next step where nobody has an operator: with those that serve every device, and without them.
_LISTS = "`accel ops` lists what there is."
_BRINGS = "accel-train brings operators for every device: pip install accel-train."


class NotImplementedBuilder:
    """Stands for a builder that nobody provides: it exists, and says so when it is asked to load.

    `get_op_builder` gives a subclass that knows the operator and the backend. All of them have one `name`, so
    that reports list what is missing once.
    """

    #: The name in reports; an integration may set its framework's.
    NAME: ClassVar[str] = "not_implemented"
    name: ClassVar[str] = NAME
    #: The builder that was asked for: `"FusedAdamBuilder"`.
    op: ClassVar[str] = ""
    _missing: ClassVar[str] = "no installed distribution provides this operator builder"

    def compatibility(self) -> str:
        """Return the name of what is missing."""
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


class Operators(Base):
    """Operators that need a build, found by name: plugins', other providers', accel-train's."""

    #: Gives who else has operators for a backend, in the order of asking; set where plugins are known.
    _op_providers: Callable[[Backend], Iterable[OpProvider]] | None = None
    #: What they answered, and from it every operator by name.
    _answers: tuple[tuple[OpProvider, ...], dict[str, Operator]] | None = None

    def op_builder_dir(self) -> str:
        """Return the package that holds this backend's builders; a framework lists what is in it.

        The first that a provider names (a framework its own, where it has one for this device), else that of
        accel-train's builders, which serve any device. A plugin that brings a package of builders names it
        in its `OpProvider`, or overrides this; one that brings a table need not.
        """
        return next((p.package for p in self._known()[0] if p.package), "accel_core.ops")

    def op_builders(self) -> Mapping[str, str]:
        """Every operator builder known for this backend, by name, with the `"module:Class"` asked first.

        Nothing is imported for it.
        """
        return MappingProxyType({name: op.candidates[0].source for name, op in self._known()[1].items()})

    def operators(self) -> Mapping[str, Operator]:
        """Every operator known for this backend, by the name of its builder, with all who provide it.

        `operators()["FusedAdamBuilder"].used.provider` names who is used; `candidates` holds all, each with
        its provider, kind, verdict, reason and whether it is built. Builders are imported when that is
        read. Each call asks every provider anew, and `get_op_builder` goes by that from then on.
        """
        self._answers = None
        return MappingProxyType(self._known()[1])

    def get_op_builder(self, class_name: str) -> type[OpBuilderLike]:
        """The builder class of that name, imported now; a `NotImplementedBuilder` when nobody has it.

        What plugins contribute is asked first, then other providers (a framework's own builders for this
        device), accel-train's compiled builders and its portable ones; the first that is compatible is taken,
        and where none is, the first. What would have to be compiled for the processor waits until it is
        built, or `ACCEL_COMPILE=1` asks for it, while another starts at once. The answer is kept, unless
        something failed to import on the way.
        Raises `UnsupportedError` when the module that a plugin contributes fails to import.
        """
        if class_name == NotImplementedBuilder.__name__:
            return NotImplementedBuilder  # with which a framework compares
        providers, operators = self._known()
        operator = operators.get(class_name)
        if operator is None:
            notes = "".join(f"{provider.advice}. " for provider in providers if provider.advice)
            step = _LISTS if any(provider.last for provider in providers) else sourced(_BRINGS)
            missing = f"{self.name}: no installed distribution provides {class_name}; {notes}{step}"
            return _not_implemented(class_name, missing)
        used = operator.used
        if operator.failed_to_import:  # perhaps in the middle of another import: the next time all are tried
            operators[class_name] = operator.untried()
        if used.builder_class is not None:
            return used.builder_class
        message = f"{self.name}: {class_name} comes from {used.provider}, but {used.reason}"
        if used.origin.optional:
            return _not_implemented(class_name, message)
        raise UnsupportedError(message) from used.error

    def create_op_builder(self, class_name: str) -> OpBuilderLike:
        """An instance of `get_op_builder(class_name)`.

        A builder that cannot be made gives a `NotImplementedBuilder` that says why: a framework may make
        one of each operator while it is imported, wanted or not.
        """
        builder = self.get_op_builder(class_name)
        try:
            return builder()
        except Exception as error:
            why = f"{self.name}: {class_name} cannot be made: {type(error).__name__}: {error}"
            return _not_implemented(class_name, why)()

    def build_extension(self) -> type[Any]:
        """The setuptools command that compiles extensions for this device."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def _known(self) -> tuple[tuple[OpProvider, ...], dict[str, Operator]]:
        """Providers for this device, asked once as that takes milliseconds, and the operators they have."""
        if self._op_providers is None:  # there is nobody to ask yet
            return (), {}
        if self._answers is None:
            from accel_core import ops  # here: most processes never ask for an operator

            providers = self._providers()
            self._answers = providers, ops.table(providers)
        return self._answers

    def _providers(self) -> tuple[OpProvider, ...]:
        """Ask who has operators for this device; an adapted class puts its own before them."""
        assert self._op_providers is not None
        # The device's type may be known only since torch was asked.
        return tuple(self._op_providers(replace(self.backend, device_type=self._device_type)))


@cache
def _not_implemented(op: str, missing: str) -> type[NotImplementedBuilder]:
    return type("NotImplementedBuilder", (NotImplementedBuilder,), {"op": op, "_missing": missing})
