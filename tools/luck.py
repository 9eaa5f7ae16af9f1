"""Run each check of levels 1 to 3 many times on a device that is right, with every core busy.

What fails is luck. `./dev luck`, or `./dev luck -- TIMES CHECK…`: 200 times each, all of them, by default.
Most run in one process that simulates `acme`, those that need processes of their own in theirs. All are
recorded in luck.json beside the kit's tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "packages/accel_testing/tests/conformance"
RECORD = CONFORMANCE / "luck.json"
IN_ONE = """
import json, sys
import accel_core
from conformance_mutants import trying
trying._prepare()
for _ in range(int(sys.argv[1])):
    for name in sys.argv[2:]:
        group, _, check = name.partition(".")
        found = trying.failing(accel_core.get_accelerator(), [check])
        print(json.dumps([name, found.get(check, "")]), flush=True)
"""
#: Groups whose checks start processes.
APART = ("interface.traces", "ranks.distributed")
IN_MANY = """
import json, sys
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.run import run
from accel_testing.conformance.subject import candidate_of
*names, times = sys.argv[1:]
for _ in range(int(times)):
    for result in run(candidate_of("generic"), 3, only=names).results:
        print(json.dumps([result.check.name, "" if result.outcome.is_good else result.message]), flush=True)
"""
BUSY = "while True: sum(range(10_000))"


def main(words: list[str]) -> int:
    """Run them, and write how often each ran and failed; 1 if any failed."""
    from accel_testing.conformance.catalogue import checks

    times = words.pop(0) if words and words[0].isdecimal() else "200"
    wanted = [c for c in checks() if 1 <= c.level <= 3 and (not words or any(w in c.name for w in words))]
    apart = [check.name for check in wanted if check.group.name in APART]
    one = [check.name for check in wanted if check.group.name not in APART]
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    runs: Counter[str] = Counter()
    alarms: dict[str, list[str]] = {}
    try:
        for program, given in ((IN_ONE, [times, *one]), (IN_MANY, [*apart, times])):
            if len(given) > 1:
                _run(program, given, runs, alarms)
    finally:
        for each in load:
            each.kill()
            each.wait()
    row = {"runs": dict(sorted(runs.items())), "alarms": alarms}
    if not words:
        RECORD.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8", newline="\n")
    print(
        f"{sum(runs.values())} runs of {len(runs)} checks, at least {min(runs.values(), default=0)} of each"
    )
    print(f"{sum(map(len, alarms.values()))} false alarms")
    return int(bool(alarms))


def _run(program: str, given: list[str], runs: Counter[str], alarms: dict[str, list[str]]) -> None:
    path = os.pathsep.join([str(CONFORMANCE), os.environ.get("PYTHONPATH", "")])
    asked = {"ACCEL_SIMULATE": "acme:2", "ACCEL_SIMULATE_RACE": "1", "ACCEL_SIMULATE_MEMORY_MB": "1024,256"}
    command = [sys.executable, "-c", program, *given]
    environ = {**os.environ, **asked, "PYTHONPATH": path}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, words = json.loads(line)
            runs[name] += 1
            if words:
                alarms.setdefault(name, []).append(words[:300])
                print(f"{name}, run {runs[name]}: {words}", flush=True)
    if process.returncode:
        alarms.setdefault("the process", []).append(f"ended with {process.returncode}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
