"""Layers that a test puts over the process and removes: an entry of `sys.path`, variables, a choice.

All of it belongs to the process, not to a thread. Layers are put one over another, and may end in any order:
two threads that install something at the same time leave the process as it was once both have ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from accel_core.errors import InvalidArgumentError
from accel_core.toolkit import exchange, fork_safe_lock

__all__ = ["Layer", "environment", "is_set"]

#: What begins the names of variables that steer a choice.
STEERING = ("ACCEL_", "DS_")

_lock = fork_safe_lock()
#: Those in force, the innermost last.
_layers: list[Layer] = []


class Layer:
    """One installation: a folder before all others on the path, variables, and modules of its own.

    `variables`: those that are set in the block, or unset where the value is `None`. `modules`: names that
    the folder brings; what another installation has imported under them is kept aside.
    """

    def __init__(self, folder: str, variables: Mapping[str, str | None], modules: tuple[str, ...]) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._modules = modules
        self._before: dict[str, str | None] = {}
        self._modules_before: dict[str, ModuleType] = {}
        self._choice: Any = None

    def begin(self) -> None:
        """Put it over the process."""
        with _lock:
            sys.path.insert(0, self._folder)
            for name, value in self._variables.items():
                self._before[name] = os.environ.get(name)
                _set(name, value)
            self._modules_before = _take_out(self._modules)
            self._choice = exchange(None)
            _layers.append(self)

    def end(self) -> None:
        """Take it away; what is under it is as it was."""
        with _lock:
            above = _layers[_layers.index(self) + 1 :]
            _layers.remove(self)
            if self._folder in sys.path:  # whoever replaced the whole path may have dropped it
                sys.path.remove(self._folder)
            sys.path_importer_cache.pop(self._folder, None)
            for name, value in self._before.items():
                heir = next((layer for layer in above if name in layer._before), None)
                if heir is None:
                    _set(name, value)
                else:
                    heir._before[name] = value
            _take_out(self._modules)
            sys.modules.update(self._modules_before)
            if above:  # they began later, in another thread: what is chosen now may be of what goes
                above[0]._choice = self._choice
                exchange(None)
            else:
                exchange(self._choice)

    def keeps(self, name: str) -> bool:
        """Whether it has set that variable."""
        return self._variables.get(name) is not None


def is_set(name: str) -> bool:
    """Whether what is installed has set that variable."""
    return name in os.environ and any(layer.keeps(name) for layer in tuple(_layers))


def environment(variables: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The variables for a child process that sees what is `installed`: the whole of its environment.

    Those of this process, but for what steers a choice (`ACCEL_…`, `DS_…`) and was not set by `installed`;
    and `variables`, of which one that is `None` is left out. Raises `InvalidArgumentError` for what is no
    text.
    """
    check(variables or {})
    kept = {n: v for n, v in os.environ.items() if not n.startswith(STEERING) or is_set(n)}
    return {name: value for name, value in {**kept, **(variables or {})}.items() if value is not None}


def check(variables: Mapping[str, str | None]) -> None:
    """Raise `InvalidArgumentError` unless these are names with texts, or `None`."""
    for name, value in variables.items():
        if isinstance(name, str) and (not name or "=" in name or "\0" in f"{name}{value}"):
            raise InvalidArgumentError(
                f"variables: {name!r}: {value!r} cannot be in an environment, expected a name without '=', "
                "and no null character. Correct it."
            )
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise InvalidArgumentError(
                f"variables: {name!r} is {value!r} ({type(value).__name__}), expected a text, or None to "
                f"unset it. Write {str(name)!r}: {str(value)!r}."
            )


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _take_out(names: tuple[str, ...]) -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in names if name in sys.modules}
