"""Every environment variable that accel_core and its plugins read as a setting, wherever that is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from accel_core.settings import Variable
from accel_train import startup

__all__ = ["NAMES", "variables"]

_SOURCE = Path(startup.__file__).parents[1]
_DECLARED = {
    path: names
    for path in sorted(_SOURCE.rglob("*.py"))
    if (names := re.findall(r"\bVariable\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")))
}
#: Names, of accel-cuda's own too; nothing is imported for them.
NAMES = frozenset(
    (startup.VARIABLE, "DS_ALLOW_DEPRECATED_FP16", *(name for names in _DECLARED.values() for name in names))
)


def variables() -> list[Variable[object]]:
    """Return the variables with their parsers; imports the modules that read them."""
    modules = [".".join(path.relative_to(_SOURCE.parent).with_suffix("").parts) for path in _DECLARED]
    found = {
        value.name: value
        for module in modules
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Variable)
    }
    return list(found.values())
