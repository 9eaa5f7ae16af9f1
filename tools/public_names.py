"""Write src/accel_core/__init__.pyi from the list of public names, `_HOMES` in src/accel_core/__init__.py.

`./dev lint` checks, `./dev fix` writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
STUB = "src/accel_core/__init__.pyi"


def stub() -> str:
    """Give the text of the stub, as ruff would format it."""
    sys.path.insert(0, str(ROOT / "src"))
    import accel_core

    lines = ['"""The public names, for type checkers; tools/public_names.py writes them."""', ""]
    for module, names in sorted(accel_core._HOMES.items()):
        in_order = sorted(names, key=lambda name: (name[0].islower(), name.lower()))  # as ruff sorts
        lines += [f"from accel_core.{module} import {name} as {name}" for name in in_order]
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in accel_core.__all__), "]"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    check = wants_check(__doc__, arguments)
    said = f"{STUB} has the public names"
    return settled({ROOT / STUB: stub()}, [], ROOT, said, check=check, command="./dev fix")


if __name__ == "__main__":
    raise SystemExit(main())
