"""Providers of operators for a backend: the one place where they are combined.

Two kinds of distributions bring operators: plugins, through the hook `accel_op_builders`, and those that
declare no backend (a framework's builders, a package of kernels), through the entry-point group
`accel.op_builders`, whose modules implement the same hook: accel-train's own, which come last, do so too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from accel_core._support.packages import EntryPoint
from accel_core.backend import Backend, Provenance
from accel_core.detection import Candidate, discovery
from accel_core.detection.guard import quiet, restoring
from accel_core.detection.select import discover
from accel_core.errors import CAUGHT, raise_if_users, root_cause
from accel_core.ops import OpProvider
from accel_core.settings import entry_points

#: Entry points that name a module with the hook `accel_op_builders` and no backend.
GROUP = "accel.op_builders"
_HOOK = "accel_op_builders"


def providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Return all providers of operators for `backend`, in the order in which they are asked.

    The order is: plugins, the backend's own distribution first and the others by rank; the entry points of
    `accel.op_builders`, by name, without those of blocked distributions; at the end, providers with
    `OpProvider.last`. A provider that fails has no builders, and its `advice` says why.
    """
    found = [provider for who in _all_who_may_have(backend) for provider in _ask(backend, *who)]
    return tuple(sorted(found, key=lambda provider: provider.last))


def _all_who_may_have(backend: Backend) -> Iterator[tuple[Callable[[], object], Provenance, str]]:
    """How each is loaded, what it is from and its kind."""
    candidates = [c for c in discover() if isinstance(c, Candidate) and not c.builtin]
    of_plugin = {id(c.plugin): c for c in reversed(candidates)}  # the highest-ranking of each
    in_order = [c for c in candidates if of_plugin[id(c.plugin)] is c]
    for candidate in sorted(in_order, key=lambda c: c.distribution != backend.distribution):
        yield partial(getattr, candidate, "plugin"), candidate.provenance, "plugin"
    for entry_point in sorted(entry_points(GROUP), key=lambda e: (e.name, e.distribution)):
        provenance = Provenance(entry_point.distribution, entry_point.version)
        yield partial(_loaded, entry_point), provenance, entry_point.name


def _loaded(entry_point: EntryPoint) -> object:
    plugin = entry_point.load()
    if not discovery.caller(plugin, _HOOK).get_hookimpls():
        raise AttributeError(
            f"{entry_point.value} has no function {_HOOK}(backend) with @accel_core.hookimpl"
        )
    return plugin


def _ask(backend: Backend, load: Callable[[], object], provenance: Provenance, kind: str) -> list[OpProvider]:
    """Give one distribution's answer, named after it; its output goes to stderr."""
    try:
        with quiet(), restoring(provenance):
            answers = discovery.ask(load(), _HOOK, backend=backend)
            several = (answer if isinstance(answer, list) else [answer] for answer in answers)
            return [_whole(answer, str(provenance), kind) for answer in chain.from_iterable(several)]
    except CAUGHT as error:
        raise_if_users(error)
        advice = f"{provenance} cannot be asked for operators: {root_cause(error)}"
        return [OpProvider({}, name=str(provenance), kind=kind, advice=advice)]


def _whole(answer: object, name: str, kind: str) -> OpProvider:
    """The answer as a provider with a name and a kind; raises where it is neither long nor short."""
    provider = OpProvider(answer) if isinstance(answer, Mapping) else answer
    if not isinstance(provider, OpProvider):
        raise TypeError(
            f"accel_op_builders() returned {answer!r} ({type(answer).__name__}), "
            "expected a mapping or accel_core.OpProvider"
        )
    builders = {str(op): str(source) for op, source in provider.builders.items()}
    return replace(provider, builders=builders, name=provider.name or name, kind=provider.kind or kind)
