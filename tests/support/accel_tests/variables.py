"""Every environment variable that accel_core and its plugins read as a setting, wherever that is."""

import importlib
import re
from pathlib import Path

import accel_core
import accel_train
import accel_train_startup as startup
from accel_core.settings import Variable

#: Those of the core, and those of accel-train, which declares as the core does.
_SOURCES = (Path(accel_core.__file__).parent, Path(accel_train.__file__).parent)
_DECLARED = {
    path: names
    for source in _SOURCES
    for path in sorted(source.rglob("*.py"))
    if (
        names := re.findall(
            r"\bVariable\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")
        )
    )
}
#: Names, of accel-cuda's own too; nothing is imported for them.
NAMES = frozenset(
    (
        startup.INTEGRATIONS_VARIABLE,
        "DS_ALLOW_DEPRECATED_FP16",
        *(name for names in _DECLARED.values() for name in names),
    )
)


def variables():
    """Return the variables with their parsers; imports the modules that read them."""
    # Each from the folder that Python finds the package in.
    below = (
        path.relative_to(next(s.parent for s in _SOURCES if s in path.parents))
        for path in _DECLARED
    )
    modules = [".".join(path.with_suffix("").parts) for path in below]
    found = {
        value.name: value
        for module in modules
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Variable)
    }
    return list(found.values())
