"""Many processes at once, and many choices in one: the same answer, and nothing is left over."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from accel_tests import children

linux = pytest.mark.skipif(sys.platform != "linux", reason="what a process has open is read in /proc")

_TOGETHER = """
import json, os, sys, time
import accel_core
print("ready", flush=True)
sys.stdin.readline()
chosen = accel_core.get_accelerator()
verdicts = [(v.name, v.status.value, v.reason) for v in accel_core.selection().verdicts]
print(json.dumps([chosen.name, chosen.backend.distribution, verdicts]))
"""


def together(machine, count, torch):
    """What `count` processes say that choose in the same moment."""
    path = [str(machine.site), *machine.base, str(torch)]
    environ = children.untraced(children.clean_environment(HOME=str(machine.home)))
    program = children.program(_TOGETHER, path, strict=False)
    processes = [children.start(program, environ, stdin=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [children.finish(process, 300) for process in processes]
    finally:
        for process in processes:
            children.kill(process)


def agree(machine, ends):
    assert [end.returncode for end in ends] == [0] * len(ends), [end.stderr for end in ends if end.returncode]
    answers = [end.answer for end in ends]
    name, distribution, verdicts = answers[0]
    assert (name, distribution) == ("mlu", "accel-mlu")
    assert [verdict[:2] for verdict in verdicts[:2]] == [["npu", "no_device"], ["mlu", "usable"]]
    assert all(answer == answers[0] for answer in answers)
    assert not machine.left()


@pytest.mark.slow
def test_many_processes_at_once_choose_the_same(machine):
    agree(machine, together(machine, 24, children.SIMULATED))


def test_64_processes_at_once_choose_the_same_with_the_real_torch(machine, libraries):
    began = time.monotonic()
    agree(machine, together(machine, 64, libraries[1]))
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


def leak(machine, warm, count, **variables):
    """Bytes that were kept over `count` choices, after `warm`; nothing else may be left over."""
    code = _AGAIN.replace("WARM", str(warm)).replace("COUNT", str(count))
    environ = {"HOME": str(machine.home), "ACCEL_PROBE_TIMEOUT": "60", **variables}
    end = children.run(code, machine.path, environ, traced=False, strict=False, timeout=900)
    before, after, seconds = end.answer
    grown = after.pop("memory") - before.pop("memory")
    print(f"{count} choices {variables}: {seconds:.1f} s, {grown} bytes, {after}")
    assert after == before
    assert not machine.left()
    return grown


@linux
@pytest.mark.slow
def test_choosing_again_and_again_leaks_nothing(machine):
    assert leak(machine, 200, 600) <= 1 << 20


@linux
@pytest.mark.parametrize(
    ("warm", "count", "probe"), [(1_000, 10_000, ""), (20, 200, "isolated")], ids=["here", "isolated"]
)
def test_ten_thousand_choices_leak_nothing(machine, warm, count, probe):
    assert leak(machine, warm, count, **({"ACCEL_PROBE": probe} if probe else {})) <= 1 << 20
