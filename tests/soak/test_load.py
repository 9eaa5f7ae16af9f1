"""Many processes at once, and many choices in one: the same answer, and nothing is left over."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from accel_tests import children

_TOGETHER = """
import json, os, sys, time
import accel_core
print("ready", flush=True)
sys.stdin.readline()
chosen = accel_core.get_accelerator()
verdicts = [(v.name, v.status.value, v.reason) for v in accel_core.selection().verdicts]
print(json.dumps([chosen.name, chosen.backend.distribution, verdicts]))
"""


def test_64_processes_at_once_choose_the_same_with_the_real_torch(machine, libraries):
    began = time.monotonic()
    path = [str(machine.site), *machine.base, str(libraries[1])]
    environ = children.untraced(children.clean_environment(HOME=str(machine.home)))
    program = children.program(_TOGETHER, path, strict=False)
    processes = [children.start(program, environ, stdin=subprocess.PIPE) for _ in range(64)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        ends = [children.finish(process, 300) for process in processes]
    finally:
        for process in processes:
            children.kill(process)
    assert not any(end.returncode for end in ends), [end.stderr for end in ends if end.returncode]
    answers = [end.answer for end in ends]
    name, distribution, verdicts = answers[0]
    assert (name, distribution) == ("mlu", "accel-mlu")
    assert [verdict[:2] for verdict in verdicts[:2]] == [["npu", "no_device"], ["mlu", "usable"]]
    assert all(answer == answers[0] for answer in answers)
    assert not machine.left()
    print(f"64 processes with torch: {time.monotonic() - began:.1f} s")


_AGAIN = """
import gc, json, os, resource, sys, threading, time
import accel_core

def have():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    kids = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return {
        "memory": pages * resource.getpagesize(), "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")), "children": len(kids),
    }

def choose(times):
    for _ in range(times):
        accel_core.set_accelerator(None)
        assert accel_core.get_accelerator().name == "mlu", accel_core.selection().to_dict()["verdicts"]

choose(WARM)
before = have()
began = time.monotonic()
choose(COUNT)
print(json.dumps([before, have(), time.monotonic() - began]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has open is read in /proc")
@pytest.mark.parametrize(
    ("warm", "count", "probe"), [(1_000, 10_000, ""), (20, 200, "isolated")], ids=["here", "isolated"]
)
def test_ten_thousand_choices_leak_nothing(machine, warm, count, probe):
    """They keep at most 1 MiB, and nothing else is left over."""
    code = _AGAIN.replace("WARM", str(warm)).replace("COUNT", str(count))
    environ = {
        "HOME": str(machine.home),
        "ACCEL_PROBE_TIMEOUT": "60",
        **({"ACCEL_PROBE": probe} if probe else {}),
    }
    end = children.run(code, machine.path, environ, traced=False, strict=False, timeout=900)
    before, after, seconds = end.answer
    grown = after.pop("memory") - before.pop("memory")
    print(f"{count} choices {probe}: {seconds:.1f} s, {grown} bytes, {after}")
    assert after == before
    assert not machine.left()
    assert grown <= 1 << 20
