"""Section of the interface: operators that must be built, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from accel_core.errors import UnsupportedError
from accel_core.hardware.vendors import install_command
from accel_core.interface.devices import Base
from accel_core.operators import Operator, OpProvider, operators_by_name

if TYPE_CHECKING:
    from accel_core.backend import Backend
    from accel_core.interface.records import OpBuilderLike


class NotImplementedBuilder:
    """A placeholder builder for an operator that no provider has, or whose builder
    fails. `load` raises an error with the reason.

    `get_op_builder` returns a subclass for the operator and the backend. All subclasses
    have the same `name`, so a report lists the missing operators once.
    """

    #: The name in reports. An integration may set the name that its framework uses.
    NAME: ClassVar[str] = "not_implemented"
    name: ClassVar[str] = NAME
    #: The name of the requested builder, such as `"FusedAdamBuilder"`.
    op: ClassVar[str] = ""
    _missing: ClassVar[str] = "no installed distribution provides this operator builder"

    def compatibility(self) -> str:
        """Return the reason why this operator cannot be used."""
        return self._missing

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return False, because there is nothing to build."""
        return False

    def is_built(self) -> bool:
        """Return False, because there is no built operator to load."""
        return False

    def load(self, verbose: bool = True) -> Any:
        """Always raise `UnsupportedError`, with the reason why the operator cannot be used."""
        raise UnsupportedError(self._missing)

    builder = load


class Operators(Base):
    """The members that find operators which must be built, by name. The operators come
    from plugins, other providers and accel-train.
    """

    #: Returns the providers of operators for a backend, in order of preference.
    #: `accel_core.current` sets this function.
    _op_providers: Callable[[Backend], Iterable[OpProvider]] | None = None
    #: The providers, and all their operators by name.
    _known_operators: tuple[tuple[OpProvider, ...], dict[str, Operator]] | None = None

    def op_builder_dir(self) -> str:
        """Return the name of the package that contains this backend's builders, for
        frameworks that list builders.

        The result is the first package that a provider names, or otherwise the package
        of accel-train's builders, which support any device. A plugin with a package of
        builders names the package in its `OpProvider` or overrides this member.
        """
        providers, _ = self._providers_and_operators()
        for provider in providers:
            if provider.package:
                return provider.package
        return "accel_core.operators"

    def op_builders(self) -> Mapping[str, str]:
        """Return the name of every known operator builder of this backend, and the
        `"module:Class"` that is tried first.

        No builder is imported.
        """
        _, operators = self._providers_and_operators()
        sources = {}
        for name, operator in operators.items():
            first_candidate = operator.candidates[0]
            sources[name] = first_candidate.source
        return MappingProxyType(sources)

    def operators(self) -> Mapping[str, Operator]:
        """Return all known operators of this backend, by builder name, each with all
        its candidate builders.

        `operators()["FusedAdamBuilder"].used.provider` names the provider that is used.
        `candidates` lists all candidates, each with its kind, its verdict, the reason
        and whether it is built. Builders are imported when these properties are read.
        Each call queries every provider again, and later calls of `get_op_builder` use
        the new result.
        """
        self._known_operators = None  # so that every provider is queried again
        _, operators = self._providers_and_operators()
        return MappingProxyType(operators)

    def get_op_builder(self, class_name: str) -> type[OpBuilderLike]:
        """Import and return the builder class called `class_name`, or a
        `NotImplementedBuilder` if no provider has it.

        Plugins come first, then other providers, such as the builders of a framework
        for this device, and then accel-train's portable builders. The first compatible
        builder is used. If no builder is compatible, the first that can be imported is
        used.

        The result is cached unless an import failed. Raises `UnsupportedError` if the
        module that a plugin names fails to import.
        """
        if class_name == NotImplementedBuilder.__name__:
            # A framework compares builders with this class.
            return NotImplementedBuilder
        providers, operators = self._providers_and_operators()
        operator = operators.get(class_name)
        if operator is None:
            return self._builder_without_provider(class_name, providers)
        used = operator.used
        if operator.failed_to_import:
            # The import may have failed because another import was running. The next
            # call tries every candidate again.
            operators[class_name] = operator.with_new_candidates()
        if used.builder_class is not None:
            return used.builder_class
        message = f"{self.name}: {class_name} from {used.provider} cannot be used: {used.reason}"
        if used.origin.optional:
            return _builder_that_raises(class_name, message)
        raise UnsupportedError(message) from used.error

    def _builder_without_provider(
        self, class_name: str, providers: Iterable[OpProvider]
    ) -> type[NotImplementedBuilder]:
        """Return a builder whose error reports that no installed distribution provides
        the operator.
        """
        message = f"{self.name}: no installed distribution provides {class_name}; "
        step = f"accel-train provides operators for every device: {install_command('accel-train')}."
        for provider in providers:
            if provider.advice:
                message += f"{provider.advice}. "
            if provider.last:  # accel-train is installed.
                step = "`accel ops` lists the available operators."
        return _builder_that_raises(class_name, message + step)

    def create_op_builder(self, class_name: str) -> OpBuilderLike:
        """Return an instance of `get_op_builder(class_name)`.

        If the builder cannot be created, return a `NotImplementedBuilder` with the
        reason, because some frameworks create a builder of each operator at import.
        """
        builder = self.get_op_builder(class_name)
        try:
            return builder()
        except Exception as error:
            message = f"{self.name}: {class_name} cannot be created: {type(error).__name__}: {error}"
            return _builder_that_raises(class_name, message)()

    def build_extension(self) -> type[Any]:
        """Return the setuptools command that compiles extensions for this device."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def _providers_and_operators(
        self,
    ) -> tuple[tuple[OpProvider, ...], dict[str, Operator]]:
        """Return the providers for this device, and their operators by name.

        The result is cached, because collecting the providers takes milliseconds.
        """
        if self._op_providers is None:  # No provider is known yet.
            return (), {}
        if self._known_operators is None:
            providers = self._providers()
            self._known_operators = providers, operators_by_name(providers)
        return self._known_operators

    def _providers(self) -> tuple[OpProvider, ...]:
        """Return the operator providers for this device. An adapted class adds its
        providers at the front.
        """
        assert self._op_providers is not None
        # The declaration of `generic` lacks the device type that torch reports.
        backend = replace(self.backend, device_type=self._device_type)
        return tuple(self._op_providers(backend))


@cache
def _builder_that_raises(op: str, message: str) -> type[NotImplementedBuilder]:
    """Return a builder class for the operator `op`, whose error is `message`."""
    members = {"op": op, "_missing": message}
    return type("NotImplementedBuilder", (NotImplementedBuilder,), members)
