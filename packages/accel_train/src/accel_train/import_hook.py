"""Run a function before, or a context around, the execution of modules, by an import hook."""

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
        #: The searches that are running: thread and name of the module.
        self._searches: set[tuple[int, str]] = set()

    def install(self) -> None:
        """Put this hook first in `sys.meta_path`: other finders (editable installs) may handle every name.

        A hook for the same modules that an older copy of this module installed is removed: `accel_core` was
        reloaded or imported again, and each of the two hooks would set its own accelerator.
        """
        if self in sys.meta_path:
            return
        others = [finder for finder in sys.meta_path if not self._is_older_copy(finder)]
        # In place: an import that is running in another thread holds this list.
        sys.meta_path[:] = [self, *others]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the other finders' spec, with a loader that calls this hook."""
        if name not in self._around and name not in self._before:
            return None
        # Another finder may search all finders too, and so call this hook again: it then finds nothing.
        search = (threading.get_ident(), name)
        if search in self._searches:
            return None
        self._searches.add(search)
        try:
            spec = self._spec_of_other_finders(name, path, target)
        finally:
            self._searches.discard(search)
        if spec is not None and spec.loader is not None:
            self._wrap_loader(name, spec.loader)
        return spec

    def _spec_of_other_finders(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Return the first spec that another finder has for the module; `None` if none has."""
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def _wrap_loader(self, name: str, loader: Any) -> None:
        """Replace two methods of the loader, so that this hook's functions for the module are called.

        The loader stays the same object, for code that needs its type or asks it for the source.
        """
        around = self._around.get(name)
        if around:
            original_exec_module = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with around(module):
                    original_exec_module(module)

            loader.exec_module = exec_module
        before = self._before.get(name)
        if before:
            original_get_code = loader.get_code

            def get_code(fullname: str) -> Any:
                before()
                return original_get_code(fullname)

            loader.get_code = get_code

    def _is_older_copy(self, finder: Any) -> bool:
        """Return whether an earlier import of this file, or of another release's, made the finder.

        The classes are compared by name: the finder's class is another object than this hook's.
        """
        finder_class = type(finder)
        class_name = (finder_class.__module__, finder_class.__qualname__)
        if class_name != (__name__, ImportHook.__qualname__):
            return False
        return bool(finder._around.keys() == self._around.keys())
