"""Plugins: found by their entry points, imported, their declarations read, their hooks called."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accel_core import __version__
from accel_core._support.guarded import begin, preserved, stdout_to_stderr
from accel_core._support.packages import EntryPoint
from accel_core._support.packages import entry_points as find_entry_points
from accel_core.backend import PROJECT, Backend, Provenance
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded
from accel_core.errors import CAUGHT, InvalidBackendError, clean, raise_if_users, root, root_cause, shown
from accel_core.settings import normalize_distribution

if TYPE_CHECKING:
    import pluggy

__all__ = [
    "EntryPoint", "Unimported", "ask", "ask_each", "declarations", "failure", "find_entry_points",
    "implements", "is_of_another_core", "load", "misfit", "name_of", "of_another_core", "provenance", "read",
    "steps", "unloaded",
]  # fmt: skip


def name_of(entry_point: EntryPoint) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return clean(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def provenance(entry_point: EntryPoint) -> Provenance:
    """Return the provenance of the entry point, as messages name it."""
    # Folder names and metadata may hold anything, and these go into every message.
    distribution, version = clean(entry_point.distribution), clean(entry_point.version)
    return Provenance(distribution, version, entry_point.name, entry_point.value)


class Unimported:
    """A plugin whose declarations a child process has read; it is imported here when a hook is called."""

    def __init__(self, entry_point: EntryPoint) -> None:
        self.entry_point = entry_point

    @functools.cached_property
    def imported(self) -> object:
        """The module; raises whatever its import raises. What it prints goes to stderr."""
        with stdout_to_stderr():
            return self.entry_point.load()

    @property
    def is_imported(self) -> bool:
        """Whether it was imported here since."""
        return "imported" in vars(self)


# --- Declarations --------------------------------------------------------------------------------------


def load(entry_point: EntryPoint) -> tuple[Candidate | Unloaded, ...]:
    """Import one plugin's module and read its declarations; a failure comes back as `Unloaded`."""
    try:
        with stdout_to_stderr(), preserved(provenance(entry_point)):
            return read(entry_point)
    except CAUGHT as error:
        return (unloaded(entry_point, failure(entry_point, error)),)


def read(entry_point: EntryPoint) -> tuple[Candidate, ...]:
    """Import one plugin's module and read its declarations; raises what goes wrong."""
    source = provenance(entry_point)
    importing, declaring = steps(entry_point)
    begin(importing)
    if not entry_point.name:
        raise InvalidBackendError("the entry point has no name, expected that of its backend")
    if not entry_point.module:
        raise InvalidBackendError("the entry point's value names no module, expected e.g. 'accel_npu'")
    plugin = entry_point.load()
    begin(declaring)
    unique = {(b.name, b.priority): b._declared_by(source) for b in declarations(plugin)}
    return tuple(Candidate(backend, plugin) for backend in unique.values())


def steps(entry_point: EntryPoint) -> tuple[str, str]:
    """The two steps of loading a plugin, as `_support.guarded` announces them."""
    source = provenance(entry_point)
    return f"importing {clean(entry_point.value)}, the plugin of {source}", f"accel_backends() of {source}"


def declarations(plugin: object) -> list[Backend]:
    """The backends that `plugin` declares; raises `InvalidBackendError` for none, or for anything else."""
    # Not through the manager, which takes all hooks of a plugin or none.
    found = [getattr(plugin, name) for name in dir(plugin) if _declares(plugin, name)]
    if not found:
        raise InvalidBackendError(
            "the plugin declares no backend: expected a function accel_backends() with @accel_core.hookimpl"
        )
    return [backend for declare in found for backend in _checked(declare())]


def _declares(plugin: object, name: str) -> bool:
    """Whether that function of the plugin implements `accel_backends`, by its name or `specname`."""
    options = _manager().parse_hookimpl_opts(plugin, name)
    return options is not None and (options["specname"] or name) == "accel_backends"


def _checked(declared: object) -> list[Backend]:
    several = isinstance(declared, Sequence) and not isinstance(declared, str)
    items: list[object] = list(declared) if several else [declared]  # type: ignore[call-overload]
    if not items:
        raise InvalidBackendError(
            "accel_backends() returned an empty sequence, expected at least one Backend"
        )
    for item in items:
        kind = type(item)
        if kind is not Backend and (kind.__module__, kind.__name__) == (Backend.__module__, "Backend"):
            raise InvalidBackendError(
                "the plugin holds on to an accel_core that was reloaded, or imported anew, since",
                hint="start Python again, or import the plugin's modules anew as well",
            )
        if not isinstance(item, Backend):
            raise InvalidBackendError(
                f"accel_backends() returned {shown(item)} ({type(item).__name__}), "
                "expected accel_core.Backend or a sequence of them"
            )
    return [item for item in items if isinstance(item, Backend)]


def unloaded(entry_point: EntryPoint, outcome: Outcome) -> Unloaded:
    """The plugin whose declarations cannot be read, and why."""
    return Unloaded(name_of(entry_point), provenance(entry_point), outcome)


def failure(entry_point: EntryPoint, error: BaseException) -> Outcome:
    """The outcome of an `error` that loading the plugin raised.

    What a signal handler of the program's raised is raised anew.
    """
    raise_if_users(error)
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    if isinstance(error, InvalidBackendError):
        hint = error.hint or f"report this to the maintainers of {entry_point.distribution}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    if is_of_another_core(error):
        return of_another_core(error, at)
    return Outcome(
        Status.BROKEN,
        f"the plugin failed to load: {root_cause(error)} ({at})",
        f"pip install --force-reinstall {entry_point.distribution}, or pip uninstall it",
        error=error,
    )


def misfit(distribution: str, error: BaseException) -> Outcome | None:
    """The outcome where pluggy refused the plugin: a hook, or an argument of it, that is not ours."""
    from pluggy import PluginValidationError

    if not isinstance(error, PluginValidationError):
        return None
    hint = f"pip install --upgrade {distribution} accel-core"
    return Outcome(Status.INVALID, f"a hook does not fit: {root_cause(error)}", hint, error=error)


def is_of_another_core(error: BaseException) -> bool:
    """Whether a chain begins with a name or a module that was asked of accel_core, which lacks it."""
    error = root(error)
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "accel_core"
    return isinstance(error, AttributeError) and error.obj is sys.modules["accel_core"]


def of_another_core(error: BaseException, at: str) -> Outcome:
    """The outcome of a plugin that asks accel_core for a name that it does not have."""
    reason = f"it needs another accel-core than {__version__}: {root_cause(error)} ({at})"
    return Outcome(Status.INCOMPATIBLE, reason, "pip install --upgrade accel-core", error=error)


# --- Hooks ---------------------------------------------------------------------------------------------


@functools.cache
def _manager() -> pluggy.PluginManager:
    """The one plugin manager; a plugin is registered when a hook of it is first called.

    Hooks are called plugin by plugin, so that a plugin that raises does not end the others' turn.
    """
    import pluggy

    from accel_core import hookspecs

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _caller(plugin: object, hook: str) -> pluggy.HookCaller:
    """The caller of `hook` for this plugin alone; imports an `Unimported` one.

    Raises pluggy's `PluginValidationError` for a plugin that does not fit our hooks.
    """
    module = plugin.imported if isinstance(plugin, Unimported) else plugin
    manager = _manager()
    if not manager.is_registered(module):
        try:
            manager.register(module, name=f"{getattr(module, '__name__', 'plugin')} at {id(module):x}")
            manager.check_pending()
        except Exception:
            if manager.is_registered(module):
                manager.unregister(module)
            raise
    return manager.subset_hook_caller(hook, [each for each in manager.get_plugins() if each is not module])


def implements(plugin: object, hook: str) -> bool:
    """Whether the plugin has that hook; raises what `ask` does."""
    return bool(_caller(plugin, hook).get_hookimpls())


def ask(plugin: object, hook: str, **arguments: object) -> list[Any]:
    """Return what one plugin answers but `None`; at most one answer of a `firstresult` hook.

    Raises what the import of an `Unimported` plugin and its hook raise.
    """
    caller = _caller(plugin, hook)
    answer: Any = caller(**arguments)
    if caller.spec is not None and caller.spec.opts["firstresult"]:
        return [] if answer is None else [answer]
    return list(answer)


def ask_each(plugins: Iterable[object], hook: str, **arguments: object) -> Iterator[Any]:
    """Yield the answers of the plugins' `hook`; a plugin that fails is passed over."""
    for plugin in plugins:
        try:
            with preserved(getattr(plugin, "__name__", plugin)):
                answers = ask(plugin, hook, **arguments)
        except CAUGHT as error:
            raise_if_users(error)
        else:
            yield from answers
