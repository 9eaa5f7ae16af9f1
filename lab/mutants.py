"""Run every check of the kit on every broken accelerator, and write into lab/records what fails.

mutants.json has those that somebody chose, generated.json those that are made by rule. Ten minutes, in two
processes that simulate `acme`. `./dev mutants`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "packages/accel_testing/tests/conformance"
RECORDS = ROOT / "lab/records"
CHOSEN = """
import json
from conformance_mutants import trying
from conformance_mutants.members import MUTANTS
for name, mutant in MUTANTS.items():
    found = trying.all_of_them([name])[name]
    row = {"meant": mutant.meant, "failing": sorted(found), "says": found.get(mutant.meant, "")[:200]}
    print(json.dumps([name, row]), flush=True)
"""
GENERATED = """
import json
from conformance_mutants import trying
for name, found in trying.of_generated():
    first = next(iter(found), "")
    print(json.dumps([name, {"failing": sorted(found), "says": found.get(first, "")[:200]}]), flush=True)
"""
#: Devices that differ, so that it is seen which one was asked.
MEMORIES = "1024,256"


def main() -> int:
    """Run both, each accelerator told as it ends, and write the records."""
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(_ran, (CHOSEN, GENERATED), ("mutants.json", "generated.json"))
        return max(runs)


def _ran(program: str, record: str) -> int:
    path = os.pathsep.join([str(CONFORMANCE), os.environ.get("PYTHONPATH", "")])
    asked = {
        "ACCEL_SIMULATE": "acme:2",
        "ACCEL_SIMULATE_RACE": "1",
        "ACCEL_SIMULATE_MEMORY_MB": MEMORIES,
    }
    rows = {}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **asked, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            name, row = json.loads(line)
            rows[name] = row
            print(
                f"{name}: {', '.join(row['failing']) or 'caught by nothing'}",
                flush=True,
            )
    if not run.returncode:
        text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
        (RECORDS / record).write_text(text, encoding="utf-8", newline="\n")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
