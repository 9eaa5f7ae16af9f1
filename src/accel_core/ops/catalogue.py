"""Who provides an operator, in the order in which they are asked, and which of them is taken.

An operator is known by the name of its builder, as DeepSpeed names it: `FusedAdamBuilder`. For one backend
these are asked, and the first whose builder says that it is compatible is taken: what plugins contribute,
DeepSpeed's own builders, accel-core's compiled ones, accel-core's portable ones. Nothing of them is imported
before the operator is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

__all__ = ["Kind", "OpCandidate", "choose", "table"]


class Kind(Enum):
    """Where a builder comes from."""

    PLUGIN = "plugin"
    DEEPSPEED = "deepspeed"
    COMPILED = "compiled"
    PORTABLE = "portable"


_OWN = (
    ("CPUAdamBuilder", "accel_core.ops.cpu_adam:CPUAdamBuilder", Kind.COMPILED),
    *(
        (op, f"accel_core.ops.portable:{op}", Kind.PORTABLE)
        for op in (
            "CPUAdagradBuilder",
            "CPUAdamBuilder",
            "CPULionBuilder",
            "FusedAdamBuilder",
            "FusedLambBuilder",
            "FusedLionBuilder",
        )
    ),
)
_ERRORS = (Exception, SystemExit)


@dataclass(frozen=True)
class OpCandidate:
    """One builder of one operator; imported, made and asked when its answers are first read."""

    #: The name that is asked for: `"FusedAdamBuilder"`.
    op: str
    #: `"module:Class"`.
    source: str
    kind: Kind
    #: For people: `"accel-npu 1.2"`, `"deepspeed 0.19.8"`, `"accel-core portable"`.
    provider: str

    @property
    def builder_class(self) -> type[Any] | None:
        """The class; `None` where it cannot be imported."""
        return self._imported[0]

    @property
    def error(self) -> BaseException | None:
        """What its import raised; `None` where it can be imported."""
        return self._imported[1]

    @cached_property
    def fault(self) -> str:
        """Why it cannot be used here, as one sentence; empty where its builder says that it is compatible."""
        if self.error is not None:
            return f"{self.source} fails to import: {_said(self.error)}"
        try:
            builder = self._builder
        except _ERRORS as error:
            return f"{self.source} cannot be made: {_said(error)}"
        try:
            return _fault(builder, self.kind)
        except _ERRORS as error:
            return f"{self.source} fails when it is asked whether it is compatible: {_said(error)}"

    @cached_property
    def is_built(self) -> bool | None:
        """Whether nothing is left to compile; `None` where the builder does not say."""
        try:
            if self.kind is Kind.DEEPSPEED:
                from accel_core.ops import deepspeed_builders

                return deepspeed_builders.is_built(self._builder)
            return bool(self._builder.is_built())
        except _ERRORS:  # broken, which `fault` tells, or not a builder of ours
            return None

    @cached_property
    def _imported(self) -> tuple[type[Any] | None, BaseException | None]:
        module, _, attribute = self.source.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute), None
        except _ERRORS as error:
            return None, error

    @cached_property
    def _builder(self) -> Any:
        if self.builder_class is None:
            raise LookupError(self.source)
        return self.builder_class()


def table(device_type: str, contributed: Iterable[OpCandidate] = ()) -> dict[str, tuple[OpCandidate, ...]]:
    """Every operator known for a device type, by name and sorted, each with its candidates in order.

    `contributed`: what plugins bring. DeepSpeed's builders are found by the files on disk. The candidates
    are new at every call, as what failed to import in the middle of another import may work later.
    """
    from accel_core.ops import deepspeed_builders

    own = (OpCandidate(op, source, kind, f"accel-core {kind.value}") for op, source, kind in _OWN)
    deepspeeds = (
        OpCandidate(op, source, Kind.DEEPSPEED, deepspeed_builders.provider())
        for op, source in deepspeed_builders.sources(device_type).items()
    )
    found: dict[str, list[OpCandidate]] = {}
    for candidate in (*contributed, *deepspeeds, *own):
        found.setdefault(candidate.op, []).append(candidate)
    return {op: tuple(found[op]) for op in sorted(found)}


def choose(candidates: Sequence[OpCandidate]) -> OpCandidate | None:
    """The candidate to use: the first compatible one, else the first, so that its `load()` explains.

    A plugin's builder that fails to import is not passed over: it was installed to be used. An only
    candidate is not asked anything; `None` where there is none.
    """
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        if not candidate.fault or (candidate.error is not None and candidate.kind is Kind.PLUGIN):
            return candidate
    return next((c for c in candidates if c.error is None), candidates[0] if candidates else None)


def _fault(builder: Any, kind: Kind) -> str:
    if kind is Kind.DEEPSPEED:
        from accel_core.ops import deepspeed_builders

        return deepspeed_builders.compatibility(builder)
    if hasattr(builder, "compatibility"):
        return str(builder.compatibility())
    if hasattr(builder, "is_compatible") and not builder.is_compatible():
        return "its is_compatible() says no"
    return ""


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
