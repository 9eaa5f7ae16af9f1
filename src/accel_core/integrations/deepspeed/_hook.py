"""An import hook: something to do around the execution of a few modules of somebody else's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["ImportHook"]


class ImportHook:
    """A finder for `sys.meta_path` that finds nothing itself, and follows what the others find.

    `around[name](module)` gives the context in which that module is executed when it is imported.
    `before[name]()` is called before its code is executed, imported or run as a script (`python -m`).
    """

    def __init__(
        self,
        around: Mapping[str, Callable[[ModuleType], AbstractContextManager[None]]],
        before: Mapping[str, Callable[[], None]],
    ) -> None:
        self._around = around
        self._before = before

    def install(self) -> None:
        """Come first: another finder may answer for everything (editable installs do)."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, its loader told to call us."""
        if name not in self._around and name not in self._before:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._follow(name, spec.loader)
                return spec
        return None

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
