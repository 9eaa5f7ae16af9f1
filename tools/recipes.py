"""The tables of our plugins, copied into accel-tools, so that `accel setup` works before a plugin is there.

`recipes.py` compares them (`--check`), `--write` writes them.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "packages/accel_tools/src/accel_tools/setup/first_party.json"


def tables() -> str:
    """Give every plugin's table as one JSON document."""
    found = {}
    for path in sorted(ROOT.glob("plugins/*/src/*/recipes.py")):
        sys.path.insert(0, str(path.parents[1]))
        module = importlib.import_module(f"{path.parent.name}.recipes")
        found[path.parent.name.removeprefix("accel_")] = module.RECIPE
    return json.dumps(found, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        COPY.write_text(tables(), "utf-8")
    elif COPY.read_text("utf-8") != tables():
        print(
            f"{COPY.relative_to(ROOT)} is not what the plugins declare: ./dev docs --write",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
