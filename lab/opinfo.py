"""Run torch's database of operators on a device; `./dev opinfo`: the simulated one.

Each case (an operator with one dtype) runs in a worker process, which is replaced when it dies or
takes too long; the variant it was in counts as failed, and the others of the case are run without it. What
was seen is put into lab/records/simulated-operators.json in the place of what was there of the same
cases.

`.nox/tpu-real/bin/python lab/opinfo.py --device tpu` runs the operators in float32 on the real TorchTPU
over XLA's library for the CPU, into lab/records/tpu-operators.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
#: Where what was seen of a device is written.
RECORDS = {"acme": "simulated-operators", "tpu": "tpu-operators"}
#: Seconds that one variant of one case may take before its process is ended.
LIMITS = {"acme": 300.0, "tpu": 20.0}
#: Seconds that a process may take to start.
STARTING = 300.0
#: Seconds after which a variant on a real device makes no other call: XLA compiles each.
ENOUGH = 2.0

Case = tuple[str, str, str]


class Worker:
    """A process that runs one case at a time."""

    def __init__(self, environ: dict[str, str], limit: float, *arguments: str) -> None:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "accel_opinfo.worker",
            *arguments,
        ]
        self._errors = (
            subprocess.DEVNULL
            if os.environ.get("ACCEL_OPINFO_QUIET", "1") == "1"
            else None
        )
        self._process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        ).start()
        self.limit = STARTING
        self.first = self.answer()
        self.limit = limit

    def _read(self, stream: IO[str] | None) -> None:
        for line in stream or ():
            self._lines.put(line)
        self._lines.put("")

    def answer(self) -> dict[str, Any]:
        """Give the next line. Raises `EOFError` with how it ended, `TimeoutError` when it takes too long."""
        try:
            line = self._lines.get(timeout=self.limit)
        except queue.Empty:
            self.end()
            raise TimeoutError(f"not done after {self.limit:.0f} s") from None
        if not line:
            raise EOFError(ended(self._process.wait()))
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, case: Case, skip: list[str]) -> None:
        """Have it run a case, but for some variants."""
        _, name, dtype = case
        asked = {"name": name, "dtype": dtype, "skip": skip}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()


def ended(code: int) -> str:
    """Say how a process ended."""
    return f"the process ended with {signal.Signals(-code).name if code < 0 else f'status {code}'}"


def run_case(
    worker: Worker, environ: dict[str, str], case: Case
) -> tuple[Worker, dict[str, Any]]:
    """Run a case; give the worker for the next one, and the counts."""
    lost: dict[str, dict[str, Any]] = {}
    while True:
        about = ""
        try:
            worker.ask(case, sorted(lost))
            while "about" in (answer := worker.answer()):
                about = answer["about"]
            answer["variants"].update(lost)
            return worker, answer
        except (EOFError, TimeoutError, BrokenPipeError) as error:
            worker.end()
            worker = Worker(environ, worker.limit)
            if not about or about in lost:
                return worker, {"unmade": str(error), "variants": lost}
            print(f"{' '.join(case)}, {about}: {error}", flush=True)
            lost[about] = {
                "calls": 1,
                "same": 0,
                "wrong": 0,
                "failures": [["", str(error)]],
            }


def variables(device: str) -> dict[str, str]:
    """Give a worker's environment: nothing of the user's that steers a choice, and one library for all."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    kept |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "lab/opinfo"),
    }
    if device == "tpu":
        from accel_tpu.trial import environment

        chosen = {
            "ACCEL_BACKEND": device,
            "ACCEL_OPINFO_SECONDS": str(ENOUGH),
            "PYTHONWARNINGS": "ignore",
        }
        return {**kept, **environment()[0], **chosen}
    from accel_simulated import DEVICES, build

    return {
        **kept,
        "ACCEL_SIMULATE": f"{device}:2",
        "ACCEL_SIMULATE_LIBRARY": str(build(DEVICES[device].kind)),
        "ACCEL_SIMULATE_MEMORY_MB": "4096",
        "ACCEL_SIMULATE_RANDOM": "host",
    }


def run(
    cases: list[Case], jobs: int, environ: dict[str, str], limit: float, seconds: float
) -> dict[Case, dict[str, Any]]:
    """Run the cases in so many workers at once; after so many seconds no other one is begun.

    One that has begun by then may take three more variants' time.
    """
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    found: dict[Case, dict[str, Any]] = {}
    start = time.monotonic()

    def work() -> None:
        worker = Worker(environ, limit)
        while True:
            try:
                if time.monotonic() - start > seconds:
                    raise queue.Empty
                case = waiting.get_nowait()
            except queue.Empty:
                worker.end()
                return
            worker, found[case] = run_case(worker, environ, case)
            if len(found) % 20 == 0:
                print(
                    f"{len(found)} of {len(cases)} cases, {time.monotonic() - start:.0f} s",
                    flush=True,
                )

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        left = start + seconds + 3 * limit - time.monotonic()
        thread.join(min(max(left, 0), threading.TIMEOUT_MAX))
    return dict(found)


def merged(
    record: dict[str, Any], found: dict[Case, dict[str, Any]], torch: str
) -> dict[str, Any]:
    """Give the record with what was found in the place of what it had of the same cases.

    A cell is `[calls that pass on the CPU, of them the same here, of the others wrong values]`.
    """
    cells = {
        base: {name: dict(of) for name, of in names.items()}
        for base, names in record["cells"].items()
    }
    failures = [each for each in record["failures"] if tuple(each[:3]) not in found]
    for (database, name, dtype), answer in sorted(found.items()):
        of_case = {
            variant: [seen["calls"], seen["same"], seen["wrong"]]
            for variant, seen in answer["variants"].items()
        }
        cells.setdefault(database, {}).setdefault(name, {})[dtype] = of_case
        for variant, seen in answer["variants"].items():
            for what, why in seen["failures"]:
                failures.append([database, name, dtype, variant, what, why])
        if "unmade" in answer:
            failures.append([database, name, dtype, "", "", answer["unmade"]])
    return {"torch": torch, "cells": cells, "failures": sorted(failures)}


def written(record: dict[str, Any]) -> str:
    """Give the file's text: a line for each entry of a database, and for each failure."""
    parts = []
    for database, names in sorted(record["cells"].items()):
        lines = ",\n".join(
            f"   {json.dumps(name)}: {json.dumps(of)}"
            for name, of in sorted(names.items())
        )
        parts.append(f"  {json.dumps(database)}: {{\n{lines}}}")
    failures = ",\n".join(f"  {json.dumps(each)}" for each in record["failures"])
    return (
        f'{{\n "torch": {json.dumps(record["torch"])},\n "cases": {record["cases"]},\n "cells": {{\n'
        + ",\n".join(parts)
        + f'}},\n "failures": [\n{failures}]\n}}\n'
    )


def main() -> int:
    """Run what is asked for, write the record, and say what failed; 1 where something did."""
    parser = argparse.ArgumentParser(
        prog="./dev opinfo", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--only", default="", help="operators whose names have this in them"
    )
    parser.add_argument(
        "--dtype", action="append", default=[], help="these dtypes alone"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once"
    )
    parser.add_argument(
        "--device",
        choices=RECORDS,
        default="acme",
        help="tpu: operators in float32 alone",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="begin no other case after these",
    )
    parser.add_argument("--record", type=Path, help="where to write what was seen")
    parser.add_argument(
        "--again", action="store_true", help="only what the record has failures of"
    )
    given = parser.parse_args()
    given.record = given.record or ROOT / f"lab/records/{RECORDS[given.device]}.json"
    environ, limit = variables(given.device), LIMITS[given.device]
    first = Worker(environ, limit, "--cases")
    cases = [tuple(case) for case in first.first["cases"]]
    first.end()
    if given.device == "tpu":
        cases = [case for case in cases if case[2] == "float32"]
    every = len(cases)
    random.Random(0).shuffle(
        cases
    )  # so that what a run of a few minutes does is a sample
    cases = [case for case in cases if given.only in case[1]]
    record = {"torch": "", "cells": {}, "failures": []}
    if given.record.is_file():
        record = json.loads(given.record.read_text(encoding="utf-8"))
    if given.again:
        failed = {tuple(each[:3]) for each in record["failures"]}
        cases = [case for case in cases if case in failed]
    cases = [case for case in cases if not given.dtype or case[2] in given.dtype]
    if not cases:
        parser.error(
            f"no operator is meant by --only {given.only!r} --dtype {given.dtype}"
        )
    found = run(cases, given.jobs, environ, limit, 60 * given.minutes)
    from importlib import metadata

    record = {**merged(record, found, metadata.version("torch")), "cases": every}
    given.record.write_text(written(record), encoding="utf-8", newline="\n")
    failed_now = [
        each for each in record["failures"] if tuple(each[:3]) in found and each[3]
    ]
    for each in failed_now:
        print("; ".join(each))
    print(f"{given.record}: {len(found)} cases recorded, {len(failed_now)} failures")
    return int(bool(failed_now))


if __name__ == "__main__":
    sys.exit(main())
