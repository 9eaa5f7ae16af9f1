"""Who provides operators for a backend: the one place where providers are put together.

Two kinds of distributions bring operators: plugins, through the hook `accel_op_builders`, and those that
declare no backend (a framework's builders, a package of kernels), through the entry-point group
`accel.op_builders`, whose modules implement the same hook. accel-core's own come last; `ops` adds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from accel_core._support.quiet import stdout_to_stderr
from accel_core.backend import Backend, Provenance
from accel_core.detection.discovery import CAUGHT, discover, root_cause
from accel_core.detection.entry_points import EntryPoint, find_entry_points
from accel_core.detection.plugin import Plugin
from accel_core.ops.providers import OpProvider
from accel_core.settings import normalize_distribution

__all__ = ["GROUP", "providers"]

#: Entry points that name a module with the hook `accel_op_builders` and no backend.
GROUP = "accel.op_builders"


def providers(backend: Backend) -> tuple[OpProvider, ...]:
    """All who bring operators for `backend`, in the order in which they are asked.

    Plugins first, the backend's own distribution before the others, which stand in rank order; then the
    entry points of `accel.op_builders`, by name. One that fails has no builders, and says why in `advice`.
    """
    return (*_plugins(backend), *_providers_without_backend(backend))


def _plugins(backend: Backend) -> Iterator[OpProvider]:
    by_plugin = {id(c.plugin): c for c in discover() if not c.builtin}
    for candidate in sorted(by_plugin.values(), key=lambda c: c.distribution != backend.distribution):
        if candidate.plugin is not None:
            yield from _ask(candidate.plugin, backend, candidate.provenance, "plugin")


def _providers_without_backend(backend: Backend) -> Iterator[OpProvider]:
    entry_points = find_entry_points(GROUP)
    for entry_point in sorted(entry_points, key=lambda e: (e.name, normalize_distribution(e.distribution))):
        provenance = Provenance(entry_point.distribution, entry_point.version)
        yield from _ask(entry_point, backend, provenance, entry_point.name)


def _ask(source: Plugin | EntryPoint, backend: Backend, origin: Provenance, kind: str) -> list[OpProvider]:
    """What one distribution answers, named after it; what it prints goes to stderr."""
    try:
        with stdout_to_stderr():
            plugin = Plugin(source.load()) if isinstance(source, EntryPoint) else source
            hook = plugin.hook.accel_op_builders
            if isinstance(source, EntryPoint) and not hook.get_hookimpls():
                raise AttributeError(
                    f"{source.value} has no function accel_op_builders(backend) with @accel_core.hookimpl"
                )
            return [_whole(answer, str(origin), kind) for answer in hook(backend=backend)]
    except CAUGHT as error:
        advice = f"{origin} cannot be asked for operators: {root_cause(error)}"
        return [OpProvider({}, name=str(origin), kind=kind, advice=advice)]


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
