"""Define operators and their candidate builders.

An operator is known by the name of its builder, such as `FusedAdamBuilder`. Of an
operator's candidates, the first whose builder reports that it is compatible is used. No
builder is imported before its operator is requested.
"""

import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from accel_core.exceptions import PLUGIN_ERRORS, root_cause


@dataclass(frozen=True)
class OpProvider:
    """The operators that one provider has for a backend, with methods that load and
    check their builders.

    A plugin returns an `OpProvider` from the hook `accel_op_builders` if a plain
    mapping is not enough. Override the methods in a subclass if the builders lack
    DeepSpeed's methods, such as `is_compatible`.
    """

    #: The builders by name, such as `{"FusedAdamBuilder": "module:Class"}`. A module is
    #: imported when its operator is requested.
    builders: Mapping[str, str]
    #: The provider's name for people; by default the distribution and its version, such
    #: as `"accel-npu 1.2"`.
    name: str = ""
    #: One word for tables: by default `"plugin"`, or the name of the entry point in
    #: group `accel.op_builders`.
    kind: str = ""
    #: A package with a module for each builder, in which a framework lists operators,
    #: or an empty string if there is none.
    package: str = ""
    #: Whether a builder that fails to import is skipped. By default it is not skipped,
    #: because a user who installs a provider expects that it is used.
    optional: bool = False
    #: Whether this provider comes last, as portable fallbacks do.
    last: bool = False
    #: The next step if no provider has a requested operator, such as `"pip install
    #: acme-kernels may provide it"`.
    advice: str = ""

    def compatibility(self, builder: Any) -> str:
        """Return the reason why a builder cannot be used on this machine, as one
        sentence, or an empty string if the builder can be used.
        """
        if hasattr(builder, "compatibility"):
            return str(builder.compatibility())
        if hasattr(builder, "is_compatible") and not builder.is_compatible():
            return "its is_compatible() returned False"
        return ""

    def is_built(self, builder: Any) -> bool:
        """Return whether a builder's operator is already compiled. An exception means
        that this is unknown.
        """
        return bool(builder.is_built())

    def load(self, source: str) -> type[Any]:
        """Import and return the builder class that `source`, `"module:Class"`, names.
        Errors raised by the import propagate.
        """
        module, _, attribute = source.partition(":")
        return cast("type[Any]", getattr(importlib.import_module(module), attribute))


@dataclass(frozen=True)
class OpCandidate:
    """A candidate builder of one operator, imported when one of its properties is first read."""

    #: The operator's name, such as `"FusedAdamBuilder"`.
    op: str
    #: The builder class, as `"module:Class"`.
    source: str
    #: The provider of the builder.
    origin: OpProvider

    @property
    def provider(self) -> str:
        """The human-readable name of the builder's provider, such as `"accel-npu 1.2"`
        or `"accel-train portable"`.
        """
        return self.origin.name

    @property
    def kind(self) -> str:
        """The kind of the builder's provider, such as `"plugin"` or `"portable"`."""
        return self.origin.kind

    @property
    def builder_class(self) -> type[Any] | None:
        """The builder class, or `None` if it cannot be imported."""
        return self._imported[0]

    @property
    def error(self) -> BaseException | None:
        """The exception that the import of the builder raised, or `None` if the import succeeds."""
        return self._imported[1]

    @property
    def verdict(self) -> str:
        """`"compatible"`, `"not compatible"`, or `"broken"` if the builder cannot be
        imported.
        """
        if self.error is not None:
            return "broken"
        return "not compatible" if self.reason else "compatible"

    @cached_property
    def reason(self) -> str:
        """The reason why the builder cannot be used on this machine, as one sentence.
        It is empty if the builder is compatible.
        """
        if self.error is not None:
            return f"{self.source} fails to import: {root_cause(self.error)}"
        try:
            return self.origin.compatibility(self._builder)
        except PLUGIN_ERRORS as error:
            return f"{self.source} fails when it is created or checked for compatibility: {root_cause(error)}"

    @cached_property
    def is_built(self) -> bool | None:
        """Whether the operator is already compiled, or `None` if that is unknown."""
        with suppress(*PLUGIN_ERRORS):
            return self.origin.is_built(self._builder)
        return None

    @cached_property
    def _imported(self) -> tuple[type[Any] | None, BaseException | None]:
        try:
            return self.origin.load(self.source), None
        except PLUGIN_ERRORS as error:
            return None, error

    @cached_property
    def _builder(self) -> Any:
        builder_class: Any = self.builder_class
        return builder_class()


@dataclass(frozen=True)
class Operator:
    """An operator with all its candidate builders, in order of preference."""

    #: The name of the operator's builder, such as `"FusedAdamBuilder"`.
    name: str
    #: The candidates in order of preference, of which there is at least one.
    candidates: tuple[OpCandidate, ...]

    @cached_property
    def used(self) -> OpCandidate:
        """The candidate builder that is used: the first compatible one.

        If no candidate is compatible, the result is the first candidate that can be
        imported, and its `reason` explains why it cannot be used. A builder that fails
        to import is skipped only if its provider is optional. Candidates after the
        result are not imported.
        """
        if len(self.candidates) == 1:
            return self.candidates[0]
        for candidate in self.candidates:
            must_be_used = candidate.error is not None and not candidate.origin.optional
            is_compatible = not candidate.reason
            if must_be_used or is_compatible:
                return candidate
        for candidate in self.candidates:
            if candidate.error is None:
                return candidate
        return self.candidates[0]

    @property
    def failed_to_import(self) -> bool:
        """Whether the used candidate, or an earlier candidate, cannot be imported."""
        for candidate in self.candidates:
            if candidate.error is not None:
                return True
            if candidate == self.used:  # Later candidates are not imported.
                break
        return False

    def with_new_candidates(self) -> "Operator":
        """Return a copy of the operator in which no candidate is imported, because a
        failed import may succeed later.
        """
        # A copied candidate has no cached import.
        copies = tuple(replace(candidate) for candidate in self.candidates)
        return replace(self, candidates=copies)


def operators_by_name(providers: Iterable[OpProvider]) -> dict[str, Operator]:
    """Return every operator of `providers`, sorted by name. The candidates of an
    operator are in the order of the providers.
    """
    candidates_by_name: dict[str, list[OpCandidate]] = {}
    for provider in providers:
        for name, source in provider.builders.items():
            candidate = OpCandidate(name, source, provider)
            candidates_by_name.setdefault(name, []).append(candidate)
    operators = {}
    for name in sorted(candidates_by_name):
        operators[name] = Operator(name, tuple(candidates_by_name[name]))
    return operators
