"""Write the stub of accel_core, whose names are resolved at their first use, from its table `_MODULES`.

`./dev lint` checks, `./dev fix` writes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
#: Columns, as in pyproject.toml.
_LINE = 88
STUBS = {"src/accel_core/__init__.pyi": "accel_core"}


def stub(module: str) -> str:
    """Give the text of one module's stub, as ruff would format it."""
    sys.path.insert(0, str(ROOT / "src"))
    lazy = import_module(module)
    lines = [
        f'"""The names of {module}, for type checkers; tools/public_names.py writes them."""',
        "",
    ]
    imports = []
    for name, home in lazy._MODULES.items():
        imports.append((f"accel_core.{home}", _order(name), f"{name} as {name}"))
    for home, _, name in sorted(imports):
        line = f"from {home} import {name}"
        if len(line) > _LINE:
            line = f"from {home} import (\n    {name},\n)"
        lines.append(line)
    given = [name for name in lazy.__all__ if name not in lazy._MODULES]
    if given:
        lines += [
            "",
            *(f"{name}: {type(getattr(lazy, name)).__name__}" for name in given),
        ]
    lines += [
        "",
        "__all__ = [",
        *(
            f'    "{name}",'
            for name in sorted(lazy.__all__, key=lambda name: (_order(name)[0], name))
        ),
        "]",
    ]
    return "\n".join(lines) + "\n"


def _order(name: str) -> tuple[object, ...]:
    """The key by which ruff sorts what is imported from one module: CONSTANTS, Classes, functions."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name.lower()


def main(arguments: list[str] | None = None) -> int:
    check = wants_check(__doc__, arguments)
    said = "the stubs have the names"
    stubs = {ROOT / path: stub(module) for path, module in STUBS.items()}
    return settled(stubs, [], ROOT, said, check=check, command="./dev fix")


if __name__ == "__main__":
    raise SystemExit(main())
