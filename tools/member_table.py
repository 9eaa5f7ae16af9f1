"""Write docs/reference/members-by-backend.md: who serves each member on which backend.

The plugins run on recorders of their vendors' surfaces (tests/contracts/accel_contracts/serving.py), so torch
is needed and no vendor's package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from generated import settled, wants_check

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/reference/members-by-backend.md"
SIGNS = {"plugin": "P", "vendor": "V", "torch": "T", "default": "·", "unsupported": "—"}
HEAD = """# Members by backend

Who serves each member, where the device is there and its vendor's package has everything that its surface
(`surfaces/` of accel-simulated) records: found by calling each member on a recorder of the vendor's module.
Written by `tools/member_table.py`; `./dev docs` compares.

| sign | who |
|---|---|
| V | the vendor's module, `torch.<device_type>` |
| T | `torch.accelerator`, which stands in where the vendor's module lacks it |
| P | the plugin's class overrides it, and says in its docstring why |
| · | accel-core's default, built on the other members |
| — | `UnsupportedError`: the device has none |

"""


def reports() -> list[dict[str, Any]]:
    """Run the plugins, and give what serves what, highest priority first."""
    projects = sorted(ROOT.glob("plugins/accel_*/pyproject.toml"))
    # Of a distribution that declares no backend there is nothing to ask.
    folders = [str(p.parent / "src") for p in projects if '"accel.backends"' in p.read_text(encoding="utf-8")]
    paths = [str(ROOT / "tests/contracts"), str(ROOT / "tests/support"), str(ROOT / "src"), *folders]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "accel_contracts.serving", *folders]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(found, key=lambda report: (-report["priority"], report["backend"]))


def page(found: list[dict[str, Any]]) -> str:
    """The page: a table of what differs between backends, and a list of what does not."""
    columns: dict[str, dict[str, str]] = {}
    for report in found:  # a backend that is declared twice has two columns where they differ
        name = report["backend"]
        if report["serves"] not in (columns.get(name), columns.get(f"{name} ({report['priority']})")):
            columns[f"{name} ({report['priority']})" if name in columns else name] = report["serves"]
    members = sorted(set().union(*columns.values()), key=lambda name: (name.lower(), name))
    same = [member for member in members if all(serves[member] == "default" for serves in columns.values())]
    lines = ["| member | " + " | ".join(columns) + " |", "|---|" + ":-:|" * len(columns)]
    lines += [
        f"| `{member}` | " + " | ".join(SIGNS[serves[member]] for serves in columns.values()) + " |"
        for member in members
        if member not in same
    ]
    counts = [sum(serve == "default" for serve in serves.values()) for serves in columns.values()]
    lines += [
        "",
        f"Of {len(members)} members, {min(counts)} to {max(counts)} are accel-core's own, by backend.",
        "",
    ]
    lines += [
        "accel-core's default serves these on every backend: " + ", ".join(f"`{m}`" for m in same) + "."
    ]
    return HEAD + "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(__doc__, arguments)
    said = f"{PAGE} tells who serves each member"
    return settled({root / PAGE: page(reports())}, [], root, said, check=check)


if __name__ == "__main__":
    raise SystemExit(main())
