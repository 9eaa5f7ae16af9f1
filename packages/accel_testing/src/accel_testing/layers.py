"""Temporary changes to the process for a test: `sys.path`, environment variables, and the chosen accelerator.

The changes affect the whole process rather than a single thread. Layers are stacked and can end in any order.
If two threads install backends at the same time, the process is restored once both of their blocks have
ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from accel_core.current import swap_state
from accel_core.errors import InvalidArgumentError
from accel_core.locks import ForkSafeLock

__all__ = [
    "STEERING_PREFIXES",
    "Layer",
    "check_variables",
    "environment",
    "is_set_by_layer",
]

#: The prefixes of environment variables that affect the choice of the accelerator.
STEERING_PREFIXES = ("ACCEL_", "DS_")

#: The argument of `swap_state` for a process that has not chosen an accelerator yet.
_NO_CHOICE = None

_lock = ForkSafeLock()
#: The active layers, with the innermost layer last.
_layers: list[Layer] = []


class Layer:
    """The changes that an `installed` block makes to the process, and undoes at its end.

    `folder` becomes the first entry of `sys.path`. `variables` are environment variables to set, or to unset
    if the value is `None`. `modules` names the modules in the folder. If modules with these names have
    already been imported, they are removed from `sys.modules` and restored at the end. The previously chosen
    accelerator is also restored at the end.
    """

    def __init__(
        self, folder: str, variables: Mapping[str, str | None], modules: tuple[str, ...]
    ) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._modules = modules
        self._previous_values: dict[str, str | None] = {}
        self._previous_modules: dict[str, ModuleType] = {}
        self._previous_core_state: Any = None

    def begin(self) -> None:
        """Make this layer's changes to the process, such as environment variables to set."""
        with _lock.held():
            sys.path.insert(0, self._folder)
            for name, value in self._variables.items():
                self._previous_values[name] = os.environ.get(name)
                _set_variable(name, value)
            self._previous_modules = _remove_modules(self._modules)
            self._previous_core_state = swap_state(_NO_CHOICE)
            _layers.append(self)

    def end(self) -> None:
        """Undo this layer's changes to the process, but keep the changes of other layers."""
        with _lock.held():
            position = _layers.index(self)
            later_layers = _layers[position + 1 :]
            _layers.remove(self)
            if self._folder in sys.path:  # code under test may have replaced `sys.path`
                sys.path.remove(self._folder)
            sys.path_importer_cache.pop(self._folder, None)
            for name, value in self._previous_values.items():
                _restore_variable(name, value, later_layers)
            _remove_modules(self._modules)
            sys.modules.update(self._previous_modules)
            if later_layers:
                # The next layer, which began in another thread, restores the state at its end. Until then,
                # the choice is made anew, because the chosen accelerator may come from this layer.
                later_layers[0]._previous_core_state = self._previous_core_state
                swap_state(_NO_CHOICE)
            else:
                swap_state(self._previous_core_state)

    def sets(self, name: str) -> bool:
        """Return whether this layer sets the environment variable `name`."""
        return self._variables.get(name) is not None


def _restore_variable(
    name: str, value: str | None, later_layers: Sequence[Layer]
) -> None:
    """Restore the value that a variable had before a layer that ends.

    If a later layer has also changed the variable, that layer restores the value at its own end.
    """
    for layer in later_layers:
        if name in layer._previous_values:
            layer._previous_values[name] = value  # restored when that layer ends
            return
    _set_variable(name, value)


def is_set_by_layer(name: str) -> bool:
    """Return whether the environment variable `name` is set, and an active layer has set it."""
    if name not in os.environ:
        return False
    return any(layer.sets(name) for layer in tuple(_layers))


def environment(variables: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment for a child process that should see the same `installed` backends.

    The result is a copy of this process's environment with `variables` added, where `None` removes a
    variable. `ACCEL_…` and `DS_…` variables are not copied unless `installed` has set them. Raises
    `InvalidArgumentError` if a name or value is invalid.
    """
    variables = variables or {}
    check_variables(variables)
    environ: dict[str, str | None] = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(STEERING_PREFIXES) or is_set_by_layer(name)
    }
    environ.update(variables)
    return {name: value for name, value in environ.items() if value is not None}


def check_variables(variables: Mapping[str, str | None]) -> None:
    """Raise `InvalidArgumentError` unless the names and values are valid for environment variables.

    Each name must be a string, and each value must be a string or `None`.
    """
    for name, value in variables.items():
        is_text = isinstance(name, str) and isinstance(value, str | None)
        if not is_text:
            raise InvalidArgumentError(
                f"variables: {name!r} is {value!r} ({type(value).__name__}), expected a string, or None to "
                f"unset the variable. Write {str(name)!r}: {str(value)!r}."
            )
        has_null_character = "\0" in f"{name}{value}"
        if not name or "=" in name or has_null_character:
            raise InvalidArgumentError(
                f"variables: {name!r}: {value!r} cannot be an environment variable, expected a non-empty "
                "name without '=', and no null characters. Correct the name or the value."
            )


def _set_variable(name: str, value: str | None) -> None:
    """Set an environment variable of this process, or remove it if `value` is `None`."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _remove_modules(names: tuple[str, ...]) -> dict[str, ModuleType]:
    """Remove modules from `sys.modules`, and return those that had been imported, by name."""
    return {name: sys.modules.pop(name) for name in names if name in sys.modules}
