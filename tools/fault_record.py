"""Put what the session `faults` has seen into docs/evidence/fault-matrix.json: `fault_record.py FOLDER`.

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
RECORD = ROOT / "docs/evidence/fault-matrix.json"


def written(record: dict[str, Any]) -> str:
    """Give the file's text: a line for each fault in each place."""
    cells = ",\n".join(
        f"  {json.dumps(fault)}: {{\n"
        + ",\n".join(
            f"   {json.dumps(place)}: {json.dumps(modes)}"
            for place, modes in places.items()
        )
        + "}"
        for fault, places in record["cells"].items()
    )
    head = "".join(
        f" {json.dumps(name)}: {json.dumps(record[name])},\n"
        for name in ("python", "system")
    )
    return f'{{\n{head} "cells": {{\n{cells}}}\n}}\n'


def main(folder: Path) -> None:
    """Put what the folder has in the place of what was recorded before, in the order of the catalogue."""
    before = (
        json.loads(RECORD.read_text(encoding="utf-8"))
        if RECORD.is_file()
        else {"cells": {}}
    )
    found = [
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("*.json"))
    ]
    for each in sorted(found, key=lambda each: (each["number"], -len(each["cells"]))):
        before["cells"].setdefault(each["fault"], {}).setdefault(
            each["place"], {}
        ).update(each["cells"])
    before |= {"python": platform.python_version(), "system": platform.system()}
    RECORD.write_text(written(before), encoding="utf-8", newline="\n")
    print(
        f"{RECORD.relative_to(ROOT).as_posix()}: {len(found)} faults in their places recorded"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
