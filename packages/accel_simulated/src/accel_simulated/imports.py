"""Run code when a module is imported later, without importing the module now."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["on_import"]


def on_import(
    module: str,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[ModuleType], None] | None = None,
    source: str = "",
) -> None:
    """Arrange for functions to be called just before and just after the first import of `module`.

    `before` is called without arguments, and `after` is called with the module. If `before` raises an error,
    this import and all later imports of the module fail with that error. `source` is text that the loader's
    `get_source` returns in front of the module's own source until the import. The text is not executed.
    """
    sys.meta_path.insert(0, _Finder(module, before, after, source))


class _Finder(MetaPathFinder):
    """An import finder for a single module, which wraps the loader that another finder finds."""

    def __init__(
        self,
        module: str,
        before: Callable[[], None] | None,
        after: Callable[[ModuleType], None] | None,
        source: str,
    ) -> None:
        self._module = module
        self.before, self.after, self.source = before, after, source

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        # Only the finders after this finder are called: if two instances patch one module, the first wraps
        # the loader of the second.
        later_finders = list(sys.meta_path)
        if self in later_finders:
            later_finders = later_finders[later_finders.index(self) + 1 :]
        for finder in later_finders:
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader(Loader):
    """An import loader that runs functions before and after the original loader loads the module."""

    def __init__(self, original: Loader, finder: _Finder) -> None:
        self._original, self._finder = original, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self._finder.before is not None:
            self._finder.before()
        # The finder is not removed in find_spec, which is also called to test whether a module exists.
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The original loader is restored, because inspect and importlib.resources read the attribute.
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._original
        self._original.exec_module(module)
        if self._finder.after is not None:
            self._finder.after(module)

    def get_source(self, fullname: str) -> str:
        original: Any = self._original
        return self._finder.source + (original.get_source(fullname) or "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
