"""One plugin: its inert module, and its hooks once somebody asks for them.

Discovery needs one hook of every plugin, its declarations, and calls that function as it stands. Only a
plugin that is probed or built is registered with pluggy, which costs more than all the rest of loading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from accel_core.backend import PROJECT, Backend
from accel_core.errors import InvalidBackendError

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Plugin"]


class Plugin:
    """The object that an entry point names, seen through the hooks it implements.

    `builtin`: accel_core's own module. It has every hook with every argument, so it is called as it is,
    and a process without plugins never loads pluggy.
    """

    def __init__(self, module: object, *, builtin: bool = False) -> None:
        self.module = module
        self._builtin = builtin

    @cached_property
    def hook(self) -> Any:
        """The plugin's hooks, in a manager of their own so that its mistakes stay its own.

        Raises `pluggy.PluginValidationError` for a hook that does not exist or asks for an argument that
        is not given.
        """
        if self._builtin:
            return self.module
        import pluggy

        from accel_core import hookspecs

        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(self.module)
        manager.check_pending()
        return manager.hook

    def backends(self) -> list[Backend]:
        """The plugin's declarations; raises `InvalidBackendError` where there is none or another type."""
        declare = getattr(self.module, "accel_backends", None)
        if declare is None or not (self._builtin or hasattr(declare, f"{PROJECT}_impl")):
            raise InvalidBackendError(
                "the plugin declares no backend: "
                "expected a function accel_backends() with @accel_core.hookimpl"
            )
        declared: object = declare()
        several = isinstance(declared, Sequence) and not isinstance(declared, str)
        items: list[object] = list(declared) if several else [declared]  # type: ignore[call-overload]
        if not items:
            raise InvalidBackendError(
                "accel_backends() returned an empty sequence, expected at least one Backend"
            )
        backends = [item for item in items if isinstance(item, Backend)]
        for item in items:
            if not isinstance(item, Backend):
                raise InvalidBackendError(
                    f"accel_backends() returned {item!r} ({type(item).__name__}), "
                    "expected accel_core.Backend or a sequence of them"
                )
        return backends
