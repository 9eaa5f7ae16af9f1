"""Everybody's verdict at once, each from a process of its own, and nothing of it stays behind."""

import importlib
import signal
import sys
import time

import pytest
from accel_tests import children, processes
from accel_tests.plugins import hook

from accel_core import hardware, isolation
from accel_core.backend import Hardware
from accel_core.sandbox import child
from accel_core.settings import read
from accel_core.survey import survey
from accel_core.verdict import Status


def ask(settings, *, probing=True):
    return survey(settings, probing=probing).verdicts


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


def test_a_survey_judges_every_backend_and_imports_nothing_here(several):
    """Listing works without torch, whose import takes half a minute on some file systems."""
    several.plugin("bad", "raise ImportError")
    several.backend("xpu", distribution="accel-xpu")
    several.backend("xpu", distribution="better-xpu")
    found = ask(read({"ACCEL_BLOCK": "sdaa"}))
    assert [v.priority for v in found] == sorted(
        (v.priority for v in found), reverse=True
    )
    assert {v.name: v.status.value for v in found} == {
        "npu": "no_device",
        "xpu": "conflict",
        "mlu": "usable",
        "sdaa": "blocked",
        "generic": "no_device",
        "bad": "broken",
        "cpu": "usable",
    }
    assert "torch" not in sys.modules


def test_a_vendor_package_that_is_broken_is_told_of_beside_the_missing_device(
    torch_world,
):
    """Missing hardware is the verdict; the broken package is mentioned."""
    torch_world.module(
        "torch_npu", "raise ImportError('libhccl.so: cannot open shared object file')"
    )
    explain = hook("accel_explain", "backend, error", "return 'source set_env.sh'")
    torch_world.backend(
        "npu",
        vendor_import="torch_npu",
        hardware=Hardware(nodes=("/dev/no-such-card[0-9]*",)),
        extra=explain,
    )
    (npu,) = [v for v in ask(read({})) if v.name == "npu"]
    assert npu.status is Status.NO_DEVICE
    assert npu.reason.startswith(
        "/dev/no-such-card[0-9]* not found; besides, torch_npu failed"
    )
    assert "libhccl.so" in npu.reason
    assert npu.hint == "source set_env.sh"


def test_a_broken_package_without_its_device_is_to_be_uninstalled(torch_world):
    """Issue 25: its own remedy is for machines that have the device. The plugin says what has failed."""
    torch_world.module(
        "torch_npu.__init__", "raise ImportError('libhccl.so: cannot open')"
    )
    torch_world.distribution("torch-npu", "2.13", {})
    answer = "return accel_core.ProbeResult(False, 'torch_npu needs CANN', 'source set_env.sh')"
    explain = "\nimport accel_core\n" + hook("accel_explain", "backend, error", answer)
    nodes = ("/dev/no-such-card[0-9]*",)
    torch_world.backend(
        "npu", vendor_import="torch_npu", hardware=Hardware(nodes=nodes), extra=explain
    )
    (npu,) = [v for v in ask(read({})) if v.name == "npu"]
    assert npu.reason.endswith(
        "; besides, torch_npu needs CANN: ImportError: libhccl.so: cannot open"
    )
    assert (
        npu.hint
        == "pip uninstall torch-npu. (On a machine with the device, do this instead: source set_env.sh.)"
    )


def test_without_probing_it_starts_one_process_which_reads_the_declarations(
    torch_world, monkeypatch
):
    real, ran = child.run, []
    monkeypatch.setattr(
        child, "run", lambda *args, **more: ran.append(args[0]) or real(*args, **more)
    )
    torch_world.backend("mlu", 300)
    torch_world.backend("npu", vendor_import="torch_npu")
    found = {v.name: (v.status.value, v.reason) for v in ask(read({}), probing=False)}
    assert found["mlu"] == ("not_probed", "installed, not probed")
    assert found["npu"] == ("not_installed", "torch_npu is not installed")
    assert ran == [isolation._load_plugins_in_child]
    load = isolation.IsolatedLoader(60)
    for pins, pinned in (("mlu", ["mlu"]), ("mlu,npu", []), ("", [])):
        again = survey(read({"DS_ACCELERATOR": pins}), probing=False, load=load)
        assert [candidate.name for candidate in again.pinned] == pinned
    assert len(ran) == 2  # whoever has read the declarations lends them
    assert not {"accel_mlu", "accel_npu"} & set(sys.modules)


def test_several_that_hang_take_one_deadline_together(torch_world, monkeypatch):
    """Drivers that hang must not add up; as many are probed at once as there are cores."""
    monkeypatch.setattr(hardware, "usable_cores", lambda: 3)
    torch_world.module("hanging", "import time; time.sleep(60)")
    for name in ("aa", "bb", "cc"):
        torch_world.backend(name, vendor_import="hanging")
    start = time.monotonic()
    found = ask(read({"ACCEL_PROBE_TIMEOUT": "2"}))
    assert time.monotonic() - start < 5
    assert [v.status for v in found if v.priority == 500] == [Status.TIMED_OUT] * 3


def test_no_more_are_probed_at_once_than_there_are_cores(
    torch_world, monkeypatch, tmp_path
):
    """Nine plugins on two loaded cores all read "timed out at: start" before."""
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    log = tmp_path / "log"
    torch_world.module(
        "slow",
        f"""import time
with open({str(log)!r}, "a") as log: print("+", file=log)
time.sleep(0.3)
with open({str(log)!r}, "a") as log: print("-", file=log)
raise ImportError("slow")
""",
    )
    for name in ("aa", "bb", "cc", "dd", "ee"):
        torch_world.backend(name, vendor_import="slow")
    found = ask(read({}))
    assert [v.status for v in found if v.priority == 500] == [Status.BROKEN] * 5
    running = most = 0
    for mark in log.read_text().split():
        running += 1 if mark == "+" else -1
        most = max(most, running)
    assert most == 2


@pytest.mark.skipif(
    sys.platform != "linux", reason="what is left is looked for in /proc"
)
def test_an_interrupt_ends_the_children(torch_world, tmp_path):
    """Ctrl-C reaches this process alone: the children are sessions of their own."""
    note, mark = tmp_path / "note", f"MARK={tmp_path}"
    torch_world.module(
        "hanging", f"import time; open({str(note)!r}, 'w').close(); time.sleep(60)"
    )
    torch_world.backend("aa", 900, vendor_import="hanging")
    code = (  # a job of a shell's background ignores the signal
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from accel_core.survey import survey\nfrom accel_core.settings import read\nsurvey(read())"
    )
    environ = children.clean_environment(**dict([mark.split("=")]))
    process = children.start(children.program(code, torch_world.path), environ)
    processes.until(note.exists, 60)
    process.send_signal(signal.SIGINT)
    ended = children.finish(process, 15, check=False)
    assert ended.late is False
    assert ended.returncode != 0
    assert processes.left_of(mark) == []


def test_where_there_are_no_process_groups_the_child_itself_is_ended(
    world, monkeypatch
):
    monkeypatch.delattr(child.os, "killpg")
    world.module("the_job", "import time\ndef work(job, stage):\n    time.sleep(60)\n")
    start = time.monotonic()
    assert child.run(importlib.import_module("the_job").work, {}, 1.5).timed_out
    assert time.monotonic() - start < 5
