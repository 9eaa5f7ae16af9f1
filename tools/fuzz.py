"""Rounds of the tests in tests/fuzz, each with other examples; the first that fails ends it.

`fuzz.py WORKERS [--seconds N] [PYTEST ARGUMENTS]`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

#: Examples of each property between two looks at the clock: a minute or two in all.
A_ROUND = "100"

parser = argparse.ArgumentParser(prog="./dev fuzz")
parser.add_argument("workers", help=argparse.SUPPRESS)
parser.add_argument(
    "--seconds", type=float, default=600.0, help="when to begin no new round [600]"
)
arguments, found = parser.parse_known_args()
command = [
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "xdist",
    "-n",
    arguments.workers,
    "--dist",
    "worksteal",
]
end = time.monotonic() + arguments.seconds
failed = 0
while not failed:
    environ = {**os.environ, "FUZZ_EXAMPLES": A_ROUND}
    failed = subprocess.run(
        [*command, *(found or ["tests/fuzz"])], env=environ, check=False
    ).returncode
    if time.monotonic() >= end:
        break
sys.exit(failed)
