"""Run something in a process that has a simulated device: `ACCEL_SIMULATE` in its environment.

One process has one device type: PrivateUse1 is named once, and PyTorch keeps what it finds of the others.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from accel_simulated import DEVICES, CannotBuildError, build
from accel_tests.children import Ended, as_rank, finish, start, without
from accel_tests.ports import free_port

__all__ = ["Ended", "Run", "environment", "run_on"]

SUPPORT = Path(__file__).parents[1]
#: Where `simulated_checks` is: what tests run in such a process.
CHECKS = SUPPORT.parents[1] / "packages/accel_simulated/tests/device"
#: Calls a function and prints what it gives as JSON.
_CALL = """
import importlib, json, sys
module, function, arguments = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), function)(*json.loads(arguments))))
"""
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):(\w+)")


@dataclass(frozen=True)
class Run:
    """How all processes of a run ended, by rank."""

    ended: tuple[Ended, ...]

    @property
    def answer(self):
        """The answer of rank 0."""
        return self.ended[0].answer

    @property
    def answers(self):
        """The answers of all ranks."""
        return [ended.answer for ended in self.ended]


def run_on(
    vendor,
    script,
    *arguments,
    processes=1,
    environ=None,
    path=(),
    timeout=120,
    check=True,
):
    """Run a script file, source text, or a function `"module:name"` in processes that simulate a vendor's
    device.

    `vendor` is what `ACCEL_SIMULATE` takes: `"mlu"`, or `"mlu:5"` for five devices.

    A function's arguments and answer travel as JSON; scripts take `arguments` on the command line. With
    several `processes` each has `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and a rendezvous. `path` holds folders for
    `sys.path`, such as plugins' sources. Raises `AssertionError` with the output when a process fails, unless
    `check` is False.
    """
    variables = environment(vendor, environ, path=path)
    command = _command(script, arguments)
    port = free_port()
    places = [
        as_rank(rank, processes, port) if processes > 1 else {}
        for rank in range(processes)
    ]
    started = [start(command, {**variables, **place}) for place in places]
    run = Run(tuple(finish(process, timeout, check=False) for process in started))
    failed = [ended for ended in run.ended if ended.returncode]
    if check and failed:
        raise AssertionError(
            f"exit {failed[0].returncode}\n{failed[0].stdout}\n{failed[0].stderr}"
        )
    return run


def environment(vendor, environ=None, *, path=()):
    """The variables of a process that simulates the vendor: this one's, without any that steer a choice.

    For anything that starts Python by itself: `subprocess.run(["accel", "list"], env=environment("mlu"))`.
    Skips the test, with the reason, where the device cannot be built.
    """
    found = DEVICES[vendor.partition(":")[0]]
    try:
        library = build(found.kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    kept = without("ACCEL_", "DS_", *found.visible)
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, (CHECKS, SUPPORT, *path))),
        "ACCEL_SIMULATE": vendor,
        "ACCEL_SIMULATE_LIBRARY": str(library),
        **(environ or {}),
    }


def _command(script, arguments):
    if isinstance(script, Path):
        return [str(script), *map(str, arguments)]
    if function := _FUNCTION.fullmatch(script):
        return ["-c", _CALL, *function.groups(), json.dumps(arguments)]
    return ["-c", script, *map(str, arguments)]
