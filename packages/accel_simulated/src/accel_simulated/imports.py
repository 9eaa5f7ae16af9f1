"""Change a module when it is imported later, without importing it now."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["change"]


def change(
    module: str,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[ModuleType], None] | None = None,
    source: str = "",
) -> None:
    """Call `before` just before `module` is loaded for the first time, and `after` with the loaded module.

    If `before` raises an error, the import fails with it, and so does each later import of the module.
    `source` is text that `inspect` shows in front of the module's source; it is not executed.
    """
    sys.meta_path.insert(0, _Finder(module, before, after, source))


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, and has it changed when it is loaded."""

    def __init__(self, module: str, before: Any, after: Any, source: str) -> None:
        self._module, self.before, self.after, self.source = (
            module,
            before,
            after,
            source,
        )

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        # Those behind it: of two that change one module, the one in front asks the other.
        finders = list(sys.meta_path)
        behind = finders.index(self) + 1 if self in finders else 0
        for finder in finders[behind:]:
            if hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self)
                    return spec
        return None


class _Loader(Loader):
    """The module's own loader, and what happens before and after."""

    def __init__(self, theirs: Loader, finder: _Finder) -> None:
        self._theirs, self._finder = theirs, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self._finder.before is not None:
            self._finder.before()
        # Not in find_spec: who only asks whether there is such a module has not loaded it.
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        return self._theirs.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if (
            module.__spec__ is not None
        ):  # which others read: inspect, importlib.resources
            module.__spec__.loader = module.__loader__ = self._theirs
        self._theirs.exec_module(module)
        if self._finder.after is not None:
            self._finder.after(module)

    def get_source(self, fullname: str) -> str:
        theirs: Any = self._theirs
        return self._finder.source + (theirs.get_source(fullname) or "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)
