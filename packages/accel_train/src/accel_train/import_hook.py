"""Run code before or around the code of another module when that module is imported."""

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
    """A finder for `sys.meta_path` that runs functions when certain modules are imported.

    The finder returns another finder's spec with a wrapped loader. `contexts[name](module)` returns a context
    manager in which the code of the module `name` runs on import. `callbacks[name]()` is called before the
    code of the module `name` runs, either on import or as a script (`python -m`).
    """

    def __init__(
        self,
        contexts: Mapping[str, Callable[[ModuleType], AbstractContextManager[None]]],
        callbacks: Mapping[str, Callable[[], None]],
    ) -> None:
        self._contexts = contexts
        self._callbacks = callbacks
        #: The running searches for modules, each as the thread's id and the module's name.
        self._searches: set[tuple[int, str]] = set()

    def install(self) -> None:
        """Put this hook first in `sys.meta_path`, ahead of finders that accept any name (editable installs).

        A program may import the module `import_hook` a second time, as a new module object. The hook that the
        first module object installed for the same modules is then removed, because each hook would set a
        different accelerator.
        """
        if self in sys.meta_path:
            return
        # If this module was reloaded, the hook of the old module is removed.
        other_finders = [
            finder for finder in sys.meta_path if not self._is_older_copy(finder)
        ]
        # Changed in place, because an import that is running in another thread holds this list.
        sys.meta_path[:] = [self, *other_finders]

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return another finder's module spec, with a loader that calls this hook's functions.

        Returns `None` for a module that this hook does not handle or that no other finder finds.
        """
        if name not in self._contexts and name not in self._callbacks:
            return None
        # Another finder may search all finders and so call this hook again. The inner call returns `None`.
        search = (threading.get_ident(), name)
        is_inner_call = search in self._searches
        if is_inner_call:
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
        """Return the first spec that another finder has for the module, or `None` if no finder has one."""
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def _wrap_loader(self, name: str, loader: Any) -> None:
        """Wrap the loader's methods so that they call this hook's functions for the module.

        The loader stays the same object, because other code may check its type or read the source from it.
        """
        context = self._contexts.get(name)
        if context:
            original_exec_module = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with context(module):
                    original_exec_module(module)

            loader.exec_module = exec_module
        callback = self._callbacks.get(name)
        if callback:
            original_get_code = loader.get_code

            def get_code(fullname: str) -> Any:
                callback()
                return original_get_code(fullname)

            loader.get_code = get_code

    def _is_older_copy(self, finder: Any) -> bool:
        """Return whether `finder` was created by an earlier import of this module, for the same modules.

        The classes are compared by name, because each import of this module creates a new class object.
        """
        finder_class = type(finder)
        class_name = (finder_class.__module__, finder_class.__qualname__)
        if class_name != (__name__, ImportHook.__qualname__):
            return False
        return bool(finder._contexts.keys() == self._contexts.keys())
