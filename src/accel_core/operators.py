"""Operators, their candidate builders, and which one is used.

An operator is known by the name of its builder: `FusedAdamBuilder`. Of its candidates
the first whose builder reports that it is compatible is used. No builder is imported
before its operator is requested.
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
    """The operators that one provider has for a backend, and how their builders are
    used.

    A plugin returns an `OpProvider` from the hook `accel_op_builders` if a plain
    mapping is not enough. A provider whose builders have another interface derives from
    this class.
    """

    #: `{"FusedAdamBuilder": "module:Class"}`; a module is imported when its operator is
    #: asked for.
    builders: Mapping[str, str]
    #: For people; by default the distribution and its version: `"accel-npu 1.2"`.
    name: str = ""
    #: One word for tables: `"plugin"` by default, or the entry point's name in group
    #: `accel.op_builders`.
    kind: str = ""
    #: A package with a module for each builder, in which a framework lists operators;
    #: empty for none.
    package: str = ""
    #: Whether a builder that fails to import is skipped. By default it is not: whoever
    #: installed the provider wants it used.
    optional: bool = False
    #: Whether this provider is asked last (portable fallbacks).
    last: bool = False
    #: The next step if nobody has an operator: `"pip install acme-kernels may bring
    #: it"`.
    advice: str = ""

    def compatibility(self, builder: Any) -> str:
        """Return one sentence on why a builder cannot be used here; empty if it can."""
        if hasattr(builder, "compatibility"):
            return str(builder.compatibility())
        if hasattr(builder, "is_compatible") and not builder.is_compatible():
            return "its is_compatible() returned False"
        return ""

    def is_built(self, builder: Any) -> bool:
        """Whether nothing is left to compile. An exception means that this is not
        known.
        """
        return bool(builder.is_built())

    def load(self, source: str) -> type[Any]:
        """Return the builder class for `"module:Class"`; raises the errors of the
        import.
        """
        module, _, attribute = source.partition(":")
        return cast("type[Any]", getattr(importlib.import_module(module), attribute))


@dataclass(frozen=True)
class OpCandidate:
    """One builder of one operator, imported when one of its properties is first read."""

    #: The name that is asked for: `"FusedAdamBuilder"`.
    op: str
    #: `"module:Class"`.
    source: str
    #: Who provides it.
    origin: OpProvider

    @property
    def provider(self) -> str:
        """The provider's name for people: `"accel-npu 1.2"`, `"accel-train
        portable"`.
        """
        return self.origin.name

    @property
    def kind(self) -> str:
        """The kind: `"plugin"`, `"portable"`, or the provider's own word."""
        return self.origin.kind

    @property
    def builder_class(self) -> type[Any] | None:
        """The builder class; `None` if it cannot be imported."""
        return self._imported[0]

    @property
    def error(self) -> BaseException | None:
        """The exception that its import raised; `None` if it can be imported."""
        return self._imported[1]

    @property
    def verdict(self) -> str:
        """`"compatible"`, `"not compatible"`, or `"broken"` if it cannot be
        imported.
        """
        if self.error is not None:
            return "broken"
        return "not compatible" if self.reason else "compatible"

    @cached_property
    def reason(self) -> str:
        """Why the builder cannot be used here, as one sentence; empty if it is
        compatible.
        """
        if self.error is not None:
            return f"{self.source} fails to import: {root_cause(self.error)}"
        try:
            return self.origin.compatibility(self._builder)
        except PLUGIN_ERRORS as error:
            return f"{self.source} cannot be made, or asked whether it is compatible: {root_cause(error)}"

    @cached_property
    def is_built(self) -> bool | None:
        """Whether nothing is left to compile; `None` if that is unknown."""
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
    """One operator: all its candidate builders in order of preference, and the one that
    is used.
    """

    #: The name of its builder: `"FusedAdamBuilder"`.
    name: str
    #: One or several.
    candidates: tuple[OpCandidate, ...]

    @cached_property
    def used(self) -> OpCandidate:
        """The first compatible candidate.

        If no candidate is compatible, the result is the first one that can be imported;
        its `reason` explains why. A builder that fails to import is skipped only if its
        provider is optional. Candidates after the result are not imported.
        """
        if len(self.candidates) == 1:
            return self.candidates[0]
        for candidate in self.candidates:
            if candidate.error is not None and not candidate.origin.optional:
                return candidate
            if not candidate.reason:
                return candidate
        for candidate in self.candidates:
            if candidate.error is None:
                return candidate
        return self.candidates[0]

    @property
    def failed_to_import(self) -> bool:
        """Whether the used candidate, or an earlier candidate, cannot be imported."""
        tried = self.candidates[: self.candidates.index(self.used) + 1]
        return any(candidate.error is not None for candidate in tried)

    def untried(self) -> "Operator":
        """Return the operator without imported candidates: an import that failed may
        succeed later.
        """
        # A copy has none of the cached imports.
        copies = tuple(replace(candidate) for candidate in self.candidates)
        return replace(self, candidates=copies)


def operators_by_name(providers: Iterable[OpProvider]) -> dict[str, Operator]:
    """Return every operator of `providers`, sorted by name; its candidates are in the
    providers' order.
    """
    candidates: dict[str, list[OpCandidate]] = {}
    for provider in providers:
        for op, source in provider.builders.items():
            candidates.setdefault(op, []).append(OpCandidate(op, source, provider))
    return {op: Operator(op, tuple(candidates[op])) for op in sorted(candidates)}
