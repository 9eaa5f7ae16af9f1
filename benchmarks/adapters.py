"""`python -m benchmarks.adapters`: what our entry points add to a framework's start, in milliseconds.

A fresh interpreter imports the framework, and a clock runs while it loads and calls entry points of
accel-train. Run it in the environment of session integrations, which has torch. The variables
`ACCEL_APART_VERL`, `_LMCACHE` and `_BITSANDBYTES` name the folders of the other frameworks
(`.nox/integrations/apart-verl`). Frameworks that are not installed are left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec

from benchmarks.harness import COMPILED

_ROUNDS = 9
_CHILD = """
import importlib.metadata, json, sys, time, warnings
warnings.simplefilter("ignore")
spent = running = 0.0

def timed(function):
    def clocked(*given, **named):
        global spent, running
        if running:
            return function(*given, **named)
        running = 1
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            spent, running = spent + time.perf_counter() - start, 0
    return clocked

load = importlib.metadata.EntryPoint.load

def of_ours(self):
    if not self.value.startswith("accel_train"):
        return load(self)
    found = timed(load)(self)
    return found if isinstance(found, type) or not callable(found) else timed(found)

importlib.metadata.EntryPoint.load = of_ours
start = time.perf_counter()
for name in sys.argv[1:]:
    __import__(name)
print(json.dumps([spent, time.perf_counter() - start]))
"""
#: A framework, and the modules whose import is its start.
_FRAMEWORKS = (
    ("torch", ("torch",)),
    ("torch with its process groups", ("torch", "torch.distributed")),
    ("verl", ("verl",)),
    ("LMCache", ("lmcache",)),
    ("bitsandbytes", ("bitsandbytes",)),
)


def main() -> None:
    """Print a line for each framework that is installed. For information: nobody waits for milliseconds."""
    for name, modules in _FRAMEWORKS:
        home = os.environ.get(f"ACCEL_APART_{modules[0].upper()}", "")
        if not home and find_spec(modules[0]) is None:
            continue
        found = [_seconds(modules, home) for _ in range(_ROUNDS + 1)][
            1:
        ]  # the first writes byte code
        added, whole = zip(*found, strict=True)
        median = statistics.median(added) * 1e3
        spread = f"{min(added) * 1e3:.2f} to {max(added) * 1e3:.2f}"
        of_all = f"its whole import {statistics.median(whole):.2f} s"
        print(f"{name:30} {median:6.2f} ms ({spread}); {of_all}", flush=True)


def _seconds(modules: tuple[str, ...], home: str) -> tuple[float, float]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCEL_", "DS_"))
    }
    environ |= {**COMPILED, "PYTHONPATH": home} if home else COMPILED
    words = [sys.executable, "-c", _CHILD, *modules]
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env=environ
    )
    ours, whole = json.loads(done.stdout.splitlines()[-1])
    return ours, whole


if __name__ == "__main__":
    main()
