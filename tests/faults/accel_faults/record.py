"""What was seen, as `docs/evidence/fault-matrix.json` keeps it."""

import json
from pathlib import Path

from accel_faults.catalogue import FAULTS, Kind
from accel_faults.rules import RESTORED, dies_here, wrong

#: The variable that names a folder, in which each cell leaves a file.
FOLDER = "ACCEL_FAULTS_RECORD"


def outcome(fault, place, mode, seen):
    """One cell: how it ended, what was not put back, what was not as promised; empty fields are left out."""
    ends = seen.name or "an error"
    if dies_here(fault, place, mode):
        ends = {Kind.HANGS: "hangs", Kind.INTERRUPTS: "interrupted"}.get(
            fault.kind, "dies"
        )
    elif status := seen.verdicts.get("faulty", {}).get("status"):
        ends = f"{ends}, {status}"
    left = sorted((seen.changed | (seen.changed_by_use or set())) - RESTORED)
    fields = {"ends": ends, "left": left, "wrong": wrong(fault, place, mode, seen)}
    return {name: value for name, value in fields.items() if value}


def keep(folder, fault, place, seen):
    """Write the cells of one fault in one place to a file of their own."""
    cells = {mode.value: outcome(fault, place, mode, one) for mode, one in seen.items()}
    name = f"{fault.name} {place.value} {' '.join(mode.name for mode in seen)}".replace(
        "/", " "
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    document = {
        "number": FAULTS.index(fault), "fault": fault.name, "place": place.value, "cells": cells,
    }  # fmt: skip
    (Path(folder) / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
