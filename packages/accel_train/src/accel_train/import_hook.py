"""An import hook: runs a function before, or a context around, the execution of given modules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["ImportHook"]


class ImportHook:
    """A finder for `sys.meta_path` that uses the spec of the other finders and wraps its loader.

    `around[name](module)` returns the context in which that module is executed when it is imported.
    `before[name]()` is called before the module's code runs, either by an import or as a script (`python
    -m`).
    """

    def __init__(
        self,
        around: Mapping[str, Callable[[ModuleType], AbstractContextManager[None]]],
        before: Mapping[str, Callable[[], None]],
    ) -> None:
        self._around = around
        self._before = before
        #: What is being sought now, by thread and name.
        self._seeking: set[tuple[int, str]] = set()

    def install(self) -> None:
        """Put this hook first in `sys.meta_path`: other finders (editable installs) may handle every name.

        A hook for the same modules that an older copy of this module installed is removed: `accel_core` was
        reloaded or imported again, and each of the two hooks would set its own accelerator.
        """
        if self in sys.meta_path:
            return
        # In place: who holds the list, as an import under way in another thread does, must see it too.
        sys.meta_path[:] = [
            self,
            *(finder for finder in sys.meta_path if not self._replaces(finder)),
        ]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the other finders' spec, with a loader that calls this hook."""
        if name not in self._around and name not in self._before:
            return None
        # Others ask all finders as well; one that asks us in turn is told what it would be told without us.
        asked = (threading.get_ident(), name)
        if asked in self._seeking:
            return None
        self._seeking.add(asked)
        try:
            spec = self._from_others(name, path, target)
        finally:
            self._seeking.discard(asked)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _from_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        specs = (
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if finder is not self
        )
        return next((spec for spec in specs if spec is not None), None)

    def _follow(self, name: str, loader: Any) -> None:
        # On this one object: it stays the loader that it was for whoever asks for its source or type.
        if around := self._around.get(name):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with around(module):
                    execute(module)

            loader.exec_module = exec_module
        if before := self._before.get(name):
            get_code = loader.get_code

            def get_code_after(fullname: str) -> Any:
                before()
                return get_code(fullname)

            loader.get_code = get_code_after

    def _replaces(self, finder: Any) -> bool:
        """By name: its class is not ours, though it was made of the same file, or of an older release's."""
        kind = type(finder)
        is_copy = (kind.__module__, kind.__qualname__) == (
            __name__,
            ImportHook.__qualname__,
        )
        return is_copy and finder._around.keys() == self._around.keys()
