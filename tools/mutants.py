"""Run every check of the kit on every broken accelerator, and write mutants.json beside the kit's tests.

A quarter of an hour, in one process that simulates `acme`. `./dev mutants`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "packages/accel_testing/tests/conformance"
RECORD = CONFORMANCE / "mutants.json"
PROGRAM = """
import json, sys
from conformance_mutants import trying
from conformance_mutants.members import MUTANTS
for name, mutant in MUTANTS.items():
    found = trying.all_of_them([name])[name]
    print(json.dumps([name, mutant.meant, sorted(found), found.get(mutant.meant, "")]), flush=True)
"""


def main() -> int:
    """Run them, each told as it ends, and write the record."""
    path = os.pathsep.join([str(RECORD.parent), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": path, "ACCEL_SIMULATE": "acme:2"}
    rows = {}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            name, meant, failing, says = json.loads(line)
            rows[name] = {"meant": meant, "failing": failing, "says": says[:200]}
            print(f"{name}: {', '.join(failing) or 'caught by nothing'}", flush=True)
    if run.returncode:
        return run.returncode
    RECORD.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
