"""Providers of operators for a backend: the one place where they are combined.

Two kinds of distributions bring operators: plugins, through the hook `accel_op_builders`, and those that
declare no backend (a framework's builders, a package of kernels), through the entry-point group
`accel.op_builders`, whose modules implement the same hook: accel-train's own, which come last, do so too.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from accel_core.backend import Backend, Provenance
from accel_core.detection import Candidate, discovery
from accel_core.detection.select import discover
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.operators import OpProvider
from accel_core.sandbox.guard import quiet, restoring
from accel_core.settings import permitted_entry_points

#: Entry points that name a module with the hook `accel_op_builders` and no backend.
GROUP = "accel.op_builders"
_HOOK = "accel_op_builders"


def providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Return all providers of operators for `backend`, in the order in which they are asked.

    The order is: plugins, the backend's own distribution first and the others by rank; the entry points of
    `accel.op_builders`, by name, without those of blocked distributions; at the end, providers with
    `OpProvider.last`. A provider that fails has no builders, and its `advice` says why.
    """
    plugins = dict.fromkeys(c.provenance for c in discover() if isinstance(c, Candidate) and not c.builtin)
    found: list[OpProvider] = []
    for plugin in sorted(plugins, key=lambda plugin: plugin.distribution != backend.distribution):
        found += _ask(backend, plugin, "plugin")
    for entry_point in sorted(permitted_entry_points(GROUP), key=lambda e: (e.name, e.distribution)):
        found += _ask(backend, entry_point, entry_point.name, needed=True)
    return tuple(sorted(found, key=lambda provider: provider.last))


def _ask(backend: Backend, source: Provenance, kind: str, *, needed: bool = False) -> list[OpProvider]:
    """Give one distribution's answer, named after it; `needed`: it must have the hook."""
    try:
        with quiet(), restoring(source):
            if not discovery.functions_for(discovery.imported(source), _HOOK):
                if not needed:
                    return []
                raise AttributeError(f"{source.value} lacks a function {_HOOK} with @accel_core.hookimpl")
            answers = discovery.ask(source, _HOOK, backend=backend)
            several = (answer if isinstance(answer, list) else [answer] for answer in answers)
            return [_whole(answer, str(source), kind) for answer in chain.from_iterable(several)]
    except PLUGIN_ERRORS as error:
        advice = f"{source} cannot be asked for operators: {root_cause(error)}"
        return [OpProvider({}, name=str(source), kind=kind, advice=advice)]


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
