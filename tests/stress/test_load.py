"""Many choices in one process: the same answer, and nothing is left over."""

import sys

import pytest
from accel_tests import children

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


@pytest.mark.skipif(
    sys.platform != "linux", reason="what a process has open is read in /proc"
)
@pytest.mark.parametrize(
    ("warm", "count", "probe"),
    [(1_000, 10_000, ""), (20, 200, "isolated")],
    ids=["here", "isolated"],
)
def test_ten_thousand_choices_leak_nothing(several, warm, count, probe):
    """They keep at most 1 MiB, and nothing else is left over."""
    code = _AGAIN.replace("WARM", str(warm)).replace("COUNT", str(count))
    environ = {"ACCEL_PROBE_TIMEOUT": "60", "ACCEL_PROBE": probe}
    end = children.run(
        code, several.path, environ, traced=False, strict=False, timeout=900
    )
    before, after, seconds = end.answer
    grown = after.pop("memory") - before.pop("memory")
    print(f"{count} choices {probe}: {seconds:.1f} s, {grown} bytes, {after}")
    assert after == before
    assert not [file for file in (several.root / "home").rglob("*") if file.is_file()]
    assert grown <= 1 << 20
