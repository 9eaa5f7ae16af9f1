"""A plugin's declarations, and its hooks once somebody asks for them.

Discovery needs one hook of every plugin, its declarations, and reads the mark that pluggy left on it. A
`PluginManager` is made when another hook is called for a backend, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accel_core._support.quiet import stdout_to_stderr
from accel_core._text import shown
from accel_core.backend import PROJECT, Backend
from accel_core.detection.entry_points import EntryPoint
from accel_core.detection.records import CAUGHT
from accel_core.errors import InvalidBackendError

if TYPE_CHECKING:
    import pluggy

__all__ = ["Hooks", "Unimported", "declarations"]

_DECLARE = "accel_backends"


def declarations(plugin: object) -> list[Backend]:
    """The backends that `plugin` declares; raises `InvalidBackendError` for none, or for anything else."""
    implementations = list(_implementations(plugin))
    if not implementations:
        raise InvalidBackendError(
            "the plugin declares no backend: expected a function accel_backends() with @accel_core.hookimpl"
        )
    return [backend for declare in implementations for backend in _checked(declare())]


def _implementations(plugin: object) -> Iterator[Callable[[], object]]:
    """What implements `accel_backends`, as pluggy reads its marker: by the function's name or `specname`."""
    for name in dir(plugin):
        function = getattr(plugin, name, None)
        mark = getattr(function, f"{PROJECT}_impl", None)
        if not isinstance(mark, dict) or (mark.get("specname") or name) != _DECLARE or not callable(function):
            continue
        if mark.get("wrapper") or mark.get("hookwrapper"):
            raise InvalidBackendError(f"{name}() wraps accel_backends, expected a function that declares")
        yield function


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


class Unimported:
    """A plugin whose declarations another process has read; what it has of this one is imported on demand."""

    def __init__(self, entry_point: EntryPoint) -> None:
        self.entry_point = entry_point
        self._loaded: object = None

    @property
    def is_imported(self) -> bool:
        """Whether it was imported here since."""
        return self._loaded is not None

    def imported(self) -> object:
        """What its entry point names; raises whatever its import raises. What it prints goes to stderr."""
        if self._loaded is None:
            with stdout_to_stderr():
                self._loaded = self.entry_point.load()
        return self._loaded


class Hooks:
    """The hooks of some plugins, each under a plugin manager of its own, made when it is first needed.

    Each plugin is called by itself, so that what one raises is its own affair: whoever calls catches it and
    goes on to the next. `direct` is a plugin whose hooks take every argument, and is called as it stands: a
    process that asks no other plugin never loads pluggy.
    """

    def __init__(self, plugins: Iterable[object], direct: object = None) -> None:
        self._plugins = list({id(plugin): plugin for plugin in plugins}.values())
        self._direct = direct
        #: By the plugin's identity: its manager, or why it could not be registered.
        self._managers: dict[int, pluggy.PluginManager | Exception] = {}

    def check(self, plugin: object) -> None:
        """Raise pluggy's `PluginValidationError` where a hook of the plugin is not one of ours.

        So does one whose hook asks for an argument that is not given. An `Unimported` one is imported, and
        raises what its import raises.
        """
        if plugin is not self._direct:
            self._manager(plugin)

    def implements(self, plugin: object, hook: str) -> bool:
        """Whether the plugin has that hook. Raises what `check` does."""
        if plugin is self._direct:
            return hasattr(plugin, hook)
        return bool(self._caller(plugin, hook).get_hookimpls())

    def of(self, plugin: object, hook: str, **arguments: object) -> list[Any]:
        """What one plugin answers but `None`; at most one where one answer is wanted.

        Raises what `check` does, and whatever the plugin raises.
        """
        if plugin is self._direct:
            implementation = getattr(plugin, hook, None)
            answer: Any = implementation and implementation(**arguments)
            return [] if answer is None else [answer]
        caller = self._caller(plugin, hook)
        answer = caller(**arguments)
        if caller.spec is not None and caller.spec.opts["firstresult"]:
            return [] if answer is None else [answer]
        return list(answer)

    def each(
        self, hook: str, first: object = None, *, importing: bool = False, **arguments: object
    ) -> Iterator[tuple[object, Any]]:
        """What every plugin's `hook` answers, with the plugin: `first` leads, the others keep their order.

        A plugin that fails, or does not fit, is passed over; so is another than `first` that is not imported
        yet, unless this process is one for `importing`.
        """
        from accel_core._support.guest import (
            Guest,
        )  # here, as few choices ask every plugin

        for plugin in sorted(self._plugins, key=lambda plugin: plugin is not first):
            if isinstance(plugin, Unimported) and not (plugin is first or importing or plugin.is_imported):
                continue
            try:
                with Guest(getattr(plugin, "__name__", plugin)):
                    answers = self.of(plugin, hook, **arguments)
            except CAUGHT:
                continue
            for answer in answers:
                yield plugin, answer

    def _caller(self, plugin: object, hook: str) -> pluggy.HookCaller:
        """Pluggy's caller for that hook of this plugin alone."""
        caller: pluggy.HookCaller = getattr(self._manager(plugin).hook, hook)
        return caller

    def _manager(self, plugin: object) -> pluggy.PluginManager:
        known = self._managers.get(id(plugin))
        if known is None:
            known = self._managers[id(plugin)] = _managing(plugin)
        if isinstance(known, Exception):
            raise known
        return known


def _managing(plugin: object) -> pluggy.PluginManager | Exception:
    """A manager of this plugin alone; or why pluggy does not take it."""
    import pluggy

    from accel_core import hookspecs

    loaded = plugin.imported() if isinstance(plugin, Unimported) else plugin
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(loaded)
        manager.check_pending()
    except Exception as error:
        return error
    return manager
