"""A plugin's declarations, and its hooks once somebody asks for them.

Discovery needs one hook of every plugin, its declarations, and reads the mark that pluggy left on it without
importing pluggy. pluggy comes in when a hook is called for a backend, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from accel_core.backend import PROJECT, Backend, shown
from accel_core.detection.records import CAUGHT
from accel_core.errors import InvalidBackendError

if TYPE_CHECKING:
    import pluggy

__all__ = ["Hooks", "declarations"]

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


class Hooks:
    """The hooks of some plugins, under one plugin manager that is made when it is first needed.

    Each plugin is called by itself, so that what one raises is its own affair: whoever calls catches it and
    goes on to the next. `direct` is a plugin whose hooks take every argument, and is called as it stands: a
    process that asks no other plugin never loads pluggy.
    """

    def __init__(self, plugins: Iterable[object], direct: object = None) -> None:
        self._plugins = list({id(plugin): plugin for plugin in plugins}.values())
        self._direct = direct
        self._manager: pluggy.PluginManager | None = None
        #: By identity: why a plugin could not be registered.
        self._misfits: dict[int, Exception] = {}

    def check(self, plugin: object) -> None:
        """Raise pluggy's `PluginValidationError` where a hook of the plugin is not one of ours.

        So does one whose hook asks for an argument that is not given.
        """
        if plugin is self._direct:
            return
        self._registered()
        misfit = self._misfits.get(id(plugin))
        if misfit is not None:
            raise misfit

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

    def each(self, hook: str, first: object = None, **arguments: object) -> Iterator[tuple[object, Any]]:
        """What every plugin's `hook` answers, with the plugin: `first` leads, the others keep their order.

        A plugin that fails, or does not fit, is passed over.
        """
        for plugin in sorted(self._plugins, key=lambda plugin: plugin is not first):
            try:
                answers = self.of(plugin, hook, **arguments)
            except CAUGHT:
                continue
            for answer in answers:
                yield plugin, answer

    def _caller(self, plugin: object, hook: str) -> pluggy.HookCaller:
        """Pluggy's caller for that hook of this plugin alone."""
        self.check(plugin)
        manager = self._registered()
        others = [other for other in manager.get_plugins() if other is not plugin]
        caller = manager.subset_hook_caller(hook, others)
        if any(implementation.plugin is not plugin for implementation in caller.get_hookimpls()):
            # pluggy leaves out by the function's name, so one with a `specname` stayed in.
            alone = _empty_manager()
            alone.register(plugin)
            only: pluggy.HookCaller = getattr(alone.hook, hook)
            return only
        return caller

    def _registered(self) -> pluggy.PluginManager:
        if self._manager is not None:
            return self._manager
        manager = self._manager = _empty_manager()
        for plugin in self._plugins:
            if plugin is self._direct:
                continue
            try:
                manager.register(plugin)
                manager.check_pending()
            except Exception as error:
                if manager.is_registered(plugin):
                    manager.unregister(plugin)
                self._misfits[id(plugin)] = error
        return manager


def _empty_manager() -> pluggy.PluginManager:
    import pluggy

    from accel_core import hookspecs

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager
