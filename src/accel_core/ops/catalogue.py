"""All who provide an operator, in the order in which they are asked, and whose builder is used.

An operator is known by the name of its builder: `FusedAdamBuilder`. Of its candidates
the first whose builder says that it is compatible is used; one that would have to be compiled for the
processor waits until it was, while another starts at once. Nothing of them is imported before the operator
is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from accel_core.errors import CAUGHT, raise_if_users, root_cause
from accel_core.ops.providers import OpProvider
from accel_core.settings import Variable, flag

__all__ = ["OpCandidate", "Operator", "choose", "table"]

#: Whether operators are compiled for the processor at their first use; else what starts at once serves.
ACCEL_COMPILE = Variable("ACCEL_COMPILE", flag, False)


@dataclass(frozen=True)
class OpCandidate:
    """One builder of one operator; imported, made and asked when its answers are first read."""

    #: The name that is asked for: `"FusedAdamBuilder"`.
    op: str
    #: `"module:Class"`.
    source: str
    #: Who provides it.
    origin: OpProvider

    @property
    def provider(self) -> str:
        """For people: `"accel-npu 1.2"`, `"accel-train portable"`."""
        return self.origin.name

    @property
    def kind(self) -> str:
        """`"plugin"`, `"compiled"`, `"portable"`, or what the provider says of itself."""
        return self.origin.kind

    @property
    def builder_class(self) -> type[Any] | None:
        """The class; `None` where it cannot be imported."""
        return self._imported[0]

    @property
    def error(self) -> BaseException | None:
        """The exception of its import; `None` if it can be imported."""
        return self._imported[1]

    @property
    def verdict(self) -> str:
        """`"compatible"`, `"not compatible"`, or `"broken"` where it cannot be imported."""
        if self.error is not None:
            return "broken"
        return "not compatible" if self.reason else "compatible"

    @cached_property
    def reason(self) -> str:
        """Why it cannot be used here, as one sentence; empty where its builder says that it is compatible."""
        if self.error is not None:
            return f"{self.source} fails to import: {root_cause(self.error)}"
        failing = "cannot be made"
        try:
            builder = self._builder
            failing = "fails when it is asked whether it is compatible"
            return self.origin.compatibility(builder)
        except CAUGHT as error:
            raise_if_users(error)
            return f"{self.source} {failing}: {root_cause(error)}"

    @cached_property
    def has_to_be_compiled(self) -> bool:
        """Whether its first use would compile for the processor, unasked; another one may start at once.

        False for what a plugin brings, which was installed to be used, for code of a device, and under
        `ACCEL_COMPILE=1`.
        """
        if not self.origin.optional or self.error is not None or ACCEL_COMPILE.read(os.environ):
            return False
        try:
            return not self.origin.is_built(self._builder) and self.origin.compiles_for_host(self._builder)
        except CAUGHT as error:  # `reason` tells
            raise_if_users(error)
            return False

    @cached_property
    def is_built(self) -> bool | None:
        """Whether nothing is left to compile; `None` where the builder does not say."""
        try:
            return self.origin.is_built(self._builder)
        except CAUGHT as error:  # broken, which `reason` tells, or not a builder of ours
            raise_if_users(error)
            return None

    @cached_property
    def _imported(self) -> tuple[type[Any] | None, BaseException | None]:
        try:
            return self.origin.load(self.source), None
        except CAUGHT as error:
            raise_if_users(error)
            return None, error

    @cached_property
    def _builder(self) -> Any:
        if self.builder_class is None:
            raise LookupError(self.source)
        return self.builder_class()


@dataclass(frozen=True)
class Operator:
    """One operator: all who provide it, in the order in which they are asked, and who is used."""

    #: The name of its builder: `"FusedAdamBuilder"`.
    name: str
    #: One or several.
    candidates: tuple[OpCandidate, ...]

    @cached_property
    def used(self) -> OpCandidate:
        """The first compatible candidate that starts at once, else the first compatible one.

        Where none is compatible it is the first, whose `reason` tells why. Candidates are imported and asked
        up to that one, an only one not at all.
        """
        chosen = choose(self.candidates)
        assert chosen is not None  # it is an operator because somebody provides it
        return chosen

    @property
    def failed_to_import(self) -> bool:
        """Whether that one, or one that was asked before it, cannot be imported."""
        asked = self.candidates[: self.candidates.index(self.used) + 1]
        return any(candidate.error is not None for candidate in asked)


def table(providers: Iterable[OpProvider]) -> dict[str, Operator]:
    """Every operator that `providers` have, by name and sorted; candidates in the providers' order.

    The candidates are new at every call, as what failed to import in the middle of another import may work
    later.
    """
    candidates: dict[str, list[OpCandidate]] = {}
    for provider in providers:
        for op, source in provider.builders.items():
            candidates.setdefault(op, []).append(OpCandidate(op, source, provider))
    return {op: Operator(op, tuple(candidates[op])) for op in sorted(candidates)}


def choose(candidates: Sequence[OpCandidate]) -> OpCandidate | None:
    """The candidate to use: the first compatible one that starts at once, else the first compatible one.

    Where none is compatible it is the first, so that its `load()` explains. A builder that fails to import
    is passed over only where its provider is optional. An only candidate is not asked anything; `None` where
    there is none.
    """
    if len(candidates) == 1:
        return candidates[0]
    waiting = []
    for candidate in candidates:
        if candidate.error is not None and not candidate.origin.optional:
            return candidate
        if candidate.has_to_be_compiled:
            waiting.append(candidate)
        elif not candidate.reason:
            return candidate
    compatible = (candidate for candidate in waiting if not candidate.reason)
    importable = (candidate for candidate in candidates if candidate.error is None)
    return next(compatible, None) or next(importable, None) or (candidates[0] if candidates else None)
