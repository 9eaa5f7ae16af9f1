"""Collect the providers of operators for a backend.

Plugins provide operators through the hook `accel_op_builders`. Distributions that
declare no backend, such as a framework or a package of kernels, provide operators
through the entry-point group `accel.op_builders`, whose modules implement the same
hook. accel-train's portable operators use that group too, and come last.
"""

from collections.abc import Mapping
from dataclasses import replace

from accel_core.backend import Backend, Provenance
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.operators import OpProvider
from accel_core.plugins import Plugin
from accel_core.sandbox.guard import preserved_state, stdout_to_stderr
from accel_core.select import discover
from accel_core.settings import permitted_entry_points

#: The group of entry points that name a module with the hook `accel_op_builders` but
#: declare no backend.
GROUP = "accel.op_builders"
_HOOK = "accel_op_builders"


def providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Return all providers of operators for `backend`, in order of preference.

    Plugins come first: the plugin of the backend's distribution, and then the other
    plugins by rank. The entry points of `accel.op_builders` that the settings permit
    follow, sorted by name. Providers that set `OpProvider.last` are
    moved to the end. A provider that fails has no builders, and its `advice` contains
    the error.
    """
    result: list[OpProvider] = []
    for plugin in _plugins_with_own_first(backend):
        result += _providers_of(backend, plugin, "plugin")
    for entry_point in sorted(
        permitted_entry_points(GROUP), key=_name_and_distribution
    ):
        result += _providers_of(
            backend, entry_point, entry_point.name, must_have_hook=True
        )
    fallbacks = [provider for provider in result if provider.last]
    preferred = [provider for provider in result if not provider.last]
    return (*preferred, *fallbacks)


def _plugins_with_own_first(backend: Backend) -> list[Provenance]:
    """Return the installed plugins, each once, with the backend's plugin first."""
    own_plugins: list[Provenance] = []
    other_plugins: list[Provenance] = []
    for verdict in discover():
        if verdict.backend is None or verdict.builtin:
            continue
        plugin = verdict.provenance
        if plugin in own_plugins or plugin in other_plugins:
            continue
        if plugin.distribution == backend.distribution:
            own_plugins.append(plugin)
        else:
            other_plugins.append(plugin)
    return own_plugins + other_plugins


def _name_and_distribution(entry_point: Provenance) -> tuple[str, str]:
    return entry_point.name, entry_point.distribution


def _providers_of(
    backend: Backend, source: Provenance, kind: str, *, must_have_hook: bool = False
) -> list[OpProvider]:
    """Return the operator providers of one distribution.

    With `must_have_hook`, a module without the hook is a failure.
    """
    try:
        with stdout_to_stderr(), preserved_state(source):
            hook = getattr(Plugin(source).hooks, _HOOK)
            if not hook.get_hookimpls():
                if not must_have_hook:
                    return []
                raise AttributeError(
                    f"{source.value} lacks a function {_HOOK} with @accel_core.hookimpl"
                )
            results = hook(backend=backend)
            return [_as_provider(result, str(source), kind) for result in results]
    except PLUGIN_ERRORS as error:
        advice = f"{source} cannot list its operators: {root_cause(error)}"
        return [OpProvider({}, name=str(source), kind=kind, advice=advice)]


def _as_provider(result: object, name: str, kind: str) -> OpProvider:
    """Return the result of the hook as an `OpProvider` with a name and a kind.

    Raises `TypeError` if the result is neither a mapping nor an `OpProvider`.
    """
    if isinstance(result, Mapping):
        result = OpProvider(result)
    if not isinstance(result, OpProvider):
        raise TypeError(
            f"accel_op_builders() returned {result!r} ({type(result).__name__}), "
            "expected a mapping or accel_core.OpProvider"
        )
    builders = {str(op): str(source) for op, source in result.builders.items()}
    return replace(
        result,
        builders=builders,
        name=result.name or name,
        kind=result.kind or kind,
    )
