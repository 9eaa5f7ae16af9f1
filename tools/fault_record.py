"""Put what the session `faults` has seen into docs/explanation/fault-matrix.json: `fault_record.py FOLDER`.

FOLDER has a file for each fault in each place and the commands that ran there; what it does not have stays as
it was recorded before.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs/explanation/fault-matrix.json"


def seen(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """Give fault, place and cells of each file, in the order of the catalogue of faults."""
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    documents.sort(key=lambda document: document["number"])
    return [(d["fault"], d["place"], d["cells"]) for d in documents]


def merged(record: dict[str, Any], found: list[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    """Give the record with the cells that were found in the place of those of before."""
    cells = {name: dict(places) for name, places in record.get("cells", {}).items()}
    for fault, place, modes in found:
        of_fault = cells.setdefault(fault, {})
        of_fault[place] = {**of_fault.get(place, {}), **modes}
    return {"python": platform.python_version(), "system": platform.system(), "cells": cells}


def written(record: dict[str, Any]) -> str:
    """Give the file's text: a line for each fault in each place."""
    cells = ",\n".join(
        f"  {json.dumps(fault)}: {{\n"
        + ",\n".join(f"   {json.dumps(place)}: {json.dumps(modes)}" for place, modes in places.items())
        + "}"
        for fault, places in record["cells"].items()
    )
    head = "".join(f" {json.dumps(name)}: {json.dumps(record[name])},\n" for name in ("python", "system"))
    return f'{{\n{head} "cells": {{\n{cells}}}\n}}\n'


def main(arguments: list[str]) -> int:
    """Read the folder, and write the file."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(
            f"fault_record.py: expected one folder, not {' '.join(arguments) or 'nothing'}", file=sys.stderr
        )
        return 2
    before = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    found = seen(Path(arguments[0]))
    RECORD.write_text(written(merged(before, found)), encoding="utf-8", newline="\n")
    print(f"{RECORD.relative_to(ROOT).as_posix()}: {len(found)} faults in their places recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
