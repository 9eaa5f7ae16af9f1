"""Run each check of levels 1 to 3 many times on a device that is right, with every core busy.

What fails is luck. `./dev flakiness`, or `./dev flakiness -- TIMES CHECK…`: 200 times each, all of them, by
default. With `--more` they are added to those on record, of checks that have not changed since.
One process more than cores, each of which simulates `acme`, run different checks at once: they are each
other's load. Checks that need processes of their own come after them. All are recorded in
lab/records/flakiness.json; of a run that is interrupted, what has run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "packages/accel_testing/tests/conformance"
RECORD = ROOT / "lab/records/flakiness.json"
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
from accel_testing.conformance.run import run
from accel_testing.conformance.base import find_verdict
_, times, *names = sys.argv
for _ in range(int(times)):
    for result in run(find_verdict("generic"), 3, only=names).results:
        print(json.dumps([result.check.name, "" if result.outcome.is_good else result.message]), flush=True)
"""


def main(words: list[str]) -> int:
    """Run them, and write how often each ran and failed; 1 if any failed."""
    from accel_testing.conformance.catalogue import checks

    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # ends the processes too, as Ctrl-C does
    more = "--more" in words
    words = [word for word in words if word != "--more"]
    times = int(words.pop(0)) if words and words[0].isdecimal() else 200
    wanted = [
        c
        for c in checks()
        if 1 <= c.level <= 3 and (not words or any(w in c.name for w in words))
    ]
    apart = [check.name for check in wanted if check.group.name in APART]
    one = [check.name for check in wanted if check.group.name not in APART]
    before = (
        json.loads(RECORD.read_text(encoding="utf-8"))
        if more
        else {"runs": {}, "alarms": {}}
    )
    runs: Counter[str] = Counter(before["runs"])
    alarms: dict[str, list[str]] = before["alarms"]
    try:
        for names, program in ((one, IN_ONE), (apart, IN_MANY)):
            if names:
                _run(program, names, times, runs, alarms)
    finally:
        row = {"runs": dict(sorted(runs.items())), "alarms": alarms}
        if more or not words:
            RECORD.write_text(
                json.dumps(row, indent=1) + "\n", encoding="utf-8", newline="\n"
            )
    print(
        f"{sum(runs.values())} runs of {len(runs)} checks, at least {min(runs.values(), default=0)} of each"
    )
    print(f"{sum(map(len, alarms.values()))} false alarms")
    return int(bool(alarms))


def _run(
    program: str,
    names: Sequence[str],
    times: int,
    runs: Counter[str],
    alarms: dict[str, list[str]],
) -> None:
    """Divide the times among processes, each of which begins with another check."""
    path = os.pathsep.join([str(CONFORMANCE), os.environ.get("PYTHONPATH", "")])
    asked = {
        "ACCEL_SIMULATE": "acme:2",
        "ACCEL_SIMULATE_RACE": "1",
        "ACCEL_SIMULATE_MEMORY_MB": "1024,256",
    }
    several = 1 + (os.cpu_count() or 1)
    processes = []
    for number in range(several):
        first = len(names) * number // several
        share = str(times // several + (number < times % several))
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", program, share, *names[first:], *names[:first]],
                env={**os.environ, **asked, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    lock = threading.Lock()

    def take(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            name, words = json.loads(line)
            with lock:
                runs[name] += 1
                if words:
                    alarms.setdefault(name, []).append(words[:300])
                    print(f"{name}, run {runs[name]}: {words}", flush=True)
        if process.wait():
            alarms.setdefault("the process", []).append(
                f"ended with {process.returncode}"
            )

    with ThreadPoolExecutor(several) as readers:
        try:
            list(readers.map(take, processes))
        finally:  # the readers end with them
            for process in processes:
                process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
