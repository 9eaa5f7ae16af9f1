"""Probing in a child process: whatever a vendor does to it is a verdict here."""

import sys
import time

import pytest
from accel_tests.asking import counting, judge, vendor
from accel_tests.plugins import ACCELERATOR, arguments, declaring, hook

from accel_core import discover, isolation
from accel_core.probe import Prober
from accel_core.sandbox import child
from accel_core.settings import Settings
from accel_core.verdict import Status

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


DIE = "import os; os._exit(3)"


ISOLATED = Settings(isolated=True, probe_timeout=20)


def probed_without_others(candidate):
    """The verdict on a candidate beside no other, in a child process only."""
    return Prober(Settings(), isolated=True).probe(candidate, (candidate,))


@posix
def test_one_judge_asks_once(torch_world, monkeypatch):
    ran = []
    real = child.run
    monkeypatch.setattr(
        child, "run", lambda *args, **more: ran.append(args[0]) or real(*args, **more)
    )
    torch_world.backend("npu")
    candidates = discover()
    prober = Prober(Settings(), isolated=True)
    first, again = [
        [prober.probe(c, candidates) for c in candidates if c.name == "npu"]
        for _ in ("one", "two")
    ]
    assert first == again
    assert ran == [isolation._probe_in_child]


DOCTOR = "find the cause with accel doctor"
REPORT = "report this to the maintainers of accel-npu"
IMPORTING = "importing torch_npu (accel-npu 1.0)"
EXPLAINS = hook("accel_explain", "backend, error", DIE)
#: The vendor's source, more of the plugin's, and its accelerator; how the child ends, where, and what helps.
#: Each end, and what is quoted of it, is told in tests/internal/test_child.py.
ENDS = {
    "last words": (
        f"import sys; sys.stderr.write('fatal: no CANN\\n'); sys.stderr.flush(); {DIE}", "", "",
        f"exited with status 3 at: {IMPORTING}; last words: fatal: no CANN", DOCTOR,
    ),
    "accel_probe": (
        "", hook("accel_probe", "backend, others", DIE), "",
        "exited with status 3 at: accel_probe() of accel-npu 1.0", REPORT,
    ),
    "accel_create": (
        "", hook("accel_create", "backend, others", DIE), "",
        "exited with status 3 at: accel_create() of accel-npu 1.0", REPORT,
    ),
    "accelerator": (
        "", "", "torch_dying:Any",
        "exited with status 3 at: accelerator='torch_dying:Any' of accel-npu 1.0", REPORT,
    ),
    "while it looks for a hint": (
        "", hook("accel_create", "backend, others", "raise OSError") + EXPLAINS, "",
        "exited with status 3 at: accel_create() of accel-npu 1.0 (explaining its error)", REPORT,
    ),
}  # fmt: skip


@posix
@pytest.mark.parametrize("how", ENDS)
def test_who_takes_the_process_down_is_named_with_the_step(torch_world, how):
    source, extra, accelerator, ending, step = ENDS[how]
    torch_world.module("torch_dying", DIE)
    fields = {"accelerator": accelerator} if accelerator else {}
    vendor(torch_world, source, extra=extra, **fields)
    found = judge(settings=ISOLATED)
    assert found.status is Status.CRASHED
    assert found.reason == f"the process that probed it {ending}"
    assert found.hint == f"{step}, or set ACCEL_BLOCK=npu"
    assert "torch_npu" not in sys.modules


@posix
def test_a_vendor_that_hangs_is_timed_out_within_the_deadline(torch_world):
    """A driver may hang in its first call until the job's time is over."""
    vendor(torch_world, "import time; time.sleep(60)")
    start = time.monotonic()
    found = judge(settings=Settings(isolated=True, probe_timeout=2))
    assert time.monotonic() - start < 6
    assert found.status is Status.TIMED_OUT
    assert (
        found.reason
        == "no response within 2 s; last step: importing torch_npu (accel-npu 1.0)"
    )
    assert found.hint == "raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK=npu"


@posix
def test_a_vendor_that_fails_politely_in_a_child_says_the_same_as_here(torch_world):
    vendor(
        torch_world,
        "print('{}'); raise ImportError('libhccl.so')",
        extra=hook("accel_explain", "backend, error", "return 'source set_env.sh'"),
    )
    here, there = judge(), judge(isolated=True)
    assert there.status == here.status
    assert there.reason == here.reason
    assert there.hint == here.hint


@posix
def test_no_device_in_a_child_is_the_end_of_it_except_for_a_pin(torch_world):
    counting(torch_world, "return 0")
    assert judge(settings=ISOLATED).status is Status.NO_DEVICE
    assert "torch" not in sys.modules
    assert judge(settings=ISOLATED, pinned=True).usable
    assert "torch" in sys.modules


@posix
def test_the_child_finds_the_very_candidate(torch_world):
    """Two backends of one name and one distribution differ in their priority."""
    torch_world.module("none_device", ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu",
        declaring(
            arguments("xpu", 800, accelerator="none_device:Simulated"),
            arguments("xpu", 790),
        ),
    )
    first, second = [probed_without_others(c) for c in discover() if c.name == "xpu"]
    assert first.priority == 800
    assert first.status is Status.NO_DEVICE
    assert second.priority == 790
    assert second.status is Status.USABLE


@posix
def test_a_plugin_that_only_this_process_has_is_broken_in_the_child(torch_world):
    torch_world.backend("npu")
    found = next(c for c in discover() if c.name == "npu")
    (torch_world.site / "accel_npu.py").unlink()
    assert probed_without_others(found).reason.startswith(
        "the plugin failed to load (entry point npu = 'accel_npu'): ModuleNotFoundError: "
    )


def test_no_child_to_be_had_is_a_verdict(torch_world, monkeypatch):
    torch_world.backend("npu")
    monkeypatch.setattr(sys, "executable", None)
    found = judge(isolated=True)
    assert found.status is Status.CRASHED
    assert found.reason.startswith("could not start a child process for the probe: ")
    assert found.hint == ""
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert judge(isolated=True).hint == "unset ACCEL_PROBE to probe in this process"


def test_what_is_built_in_needs_no_child_for_its_answer(torch_world):
    cpu = next(c for c in discover() if c.name == "cpu")
    assert probed_without_others(cpu).usable
    assert "torch" not in sys.modules
