"""A fork, or a signal that the program handles, before, after and amid the choice."""

import contextlib
import copy
import functools
import inspect
import json
import os
import pickle
import signal
import sys
import time
import warnings
from importlib.util import find_spec
from unittest import mock

import pytest
from accel_tests.asking import counting, vendor
from accel_tests.forks import forked
from accel_tests.plugins import hook
from accel_tests.processes import beside

import accel_core
from accel_core import hardware
from accel_core.detection import discovery
from accel_core.errors import AcceleratorFallbackWarning, SettingWarning
from accel_core.sandbox import guard
from accel_testing.conformance import forks

# ---------------------------------------------------------------------------- current forks
# A fork before, after and amid the choice leaves both sides working.


pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # Python 3.12: beside threads
]


def in_fork(work):
    """What `work()` gives in a forked child."""
    said, status = forks.in_fork(lambda: json.dumps(work()), 60)
    assert status == 0, said
    return json.loads(said)


def mine():
    acc, record = accel_core.get_accelerator(), accel_core.selection()
    return [acc.name, record.chosen, record.pid == os.getpid(), id(acc)]


def test_a_pin_that_is_changed_after_the_choice_is_told_once_here_and_in_a_child(mlu, monkeypatch):
    """https://github.com/pytorch/pytorch/issues/95073 has what people expect of a variable set too late."""
    accel_core.get_accelerator()

    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            accel_core.get_accelerator()
        return [str(each.message) for each in caught]

    said = "DS_ACCELERATOR was None when mlu was chosen and is 'cpu' now, which has no effect any more. "
    once = [[f"{said}Next step: set it before Python starts"], []]
    assert in_fork(lambda: (os.environ.update(DS_ACCELERATOR="cpu"), told(), told())[1:]) == once
    assert in_fork(told) == []
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.warns(SettingWarning, match=said):
        assert accel_core.selection().notes[-1].startswith(said)
    assert accel_core.selection().chosen == "mlu"
    monkeypatch.delenv("DS_ACCELERATOR")
    # No mask was changed, so nobody asks the vendor whether the device has started.
    monkeypatch.setattr(accel_core.get_accelerator(), "is_initialized", None)
    assert accel_core.selection().notes == ()


#: The same for a process of its own.
FORK = (
    "import accel_core, json, os, sys, threading, time, warnings\nwarnings.simplefilter('ignore')\n"
    "from accel_testing.conformance import forks\n" + "\n".join(map(inspect.getsource, (in_fork, mine)))
)


def test_fork_after_the_choice_inherits_it_and_fork_before_it_does_not(mlu):
    before = in_fork(mine)  # the child chooses, the parent has not
    parent = mine()
    assert before[:3] == parent[:3] == ["mlu", "mlu", True]
    assert in_fork(mine) == ["mlu", "mlu", False, parent[3]]
    renewed = in_fork(lambda: (accel_core.set_accelerator("cpu"), mine())[1])
    assert renewed[:3] == ["cpu", "cpu", True]
    assert mine() == parent


def test_fork_while_another_thread_chooses_waits_for_it(mlu):
    """The child has the parent's accelerator, whole, or chooses; it never hangs on a dead thread's lock."""
    mlu.module("slow_vendor", "import time; time.sleep(0.5)")
    mlu.backend("slow", 900, vendor_import="slow_vendor")
    with beside(accel_core.get_accelerator):
        while not guard._choosing:
            time.sleep(0.001)
        child = in_fork(mine)
    parent = mine()
    assert child[:2] == parent[:2] == ["slow", "slow"]
    assert child[3] == parent[3]


def test_fork_while_a_choice_hangs_gives_a_child_that_can_choose(mlu):
    mlu.module("hanging", "import os, time\nif os.environ['MAY_HANG'] == '1':\n    time.sleep(60)")
    mlu.backend("hang", 900, vendor_import="hanging")
    code = FORK + (
        "os.environ['MAY_HANG'] = '1'\n"
        "import accel_core.current as current\n"
        "from accel_core.detection import guard\n"
        "current._FORK_WAIT = 0.2\n"
        "threading.Thread(target=accel_core.get_accelerator, daemon=True).start()\n"
        "while not guard._choosing or 'hanging' not in sys.modules: time.sleep(0.001)\n"
        "os.environ['DS_ACCELERATOR'] = 'cpu'\n"
        "child = in_fork(mine)\n"
        "print(json.dumps(child), flush=True)\n"
        "os._exit(0)\n"
    )
    ended = mlu.child(code, timeout=30)
    assert (ended.answer[:3], ended.stderr) == (["cpu", "cpu", True], "")


def test_fork_by_the_thread_that_chooses_leaves_all_sides_working(mlu):
    """A vendor package that forks while it is imported, whose child forks too; nobody keeps the lock."""
    mlu.module("forking", "import os\nif pid := os.fork() or os.fork():\n    os.waitpid(pid, 0)")
    mlu.backend("fork", 900, vendor_import="forking")
    code = "print([mine()[:2], in_fork(mine)[:2]], flush=True)\nthreading.Thread(target=mine).start()\n"
    ended = mlu.child(FORK + code, timeout=30)
    assert (ended.stdout, ended.stderr) == (f"{[['fork', 'fork']] * 2}\n" * 3, "")


def test_many_forks_beside_many_choosers_all_end(mlu):
    def churn():
        for _ in range(200):
            accel_core.set_accelerator(None)
            accel_core.get_accelerator()

    # First of all: a fork amid the import of the module itself is Python's own deadlock.
    accel_core.get_accelerator()
    with beside(churn, churn):
        children = [in_fork(mine)[0] for _ in range(15)]
    assert {*children} == {"mlu"}


def test_where_there_is_no_fork_nothing_is_registered(world):
    code = (
        "import os, json, accel_core.detection.select\ndel os.register_at_fork\n"
        "import accel_core.current\nprint(json.dumps(True))"
    )
    assert world.child(code, bare=False).answer is True


# ---------------------------------------------------------------------------- with the real torch


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@forked("torch")
def test_with_the_real_torch_the_cpu_is_chosen_forks_and_pickles():
    os.environ["DS_ACCELERATOR"] = "cpu"
    assert in_fork(lambda: mine()[:2]) == ["cpu", "cpu"]
    acc = accel_core.get_accelerator()
    import torch

    def computed():
        return [accel_core.get_accelerator().device_name(), float(torch.ones(3, device=acc.device()).sum())]

    assert pickle.loads(pickle.dumps(acc)) is acc is copy.deepcopy(acc)
    assert in_fork(computed) == computed() == ["cpu", 3.0]
    if not torch.accelerator.is_available():
        del os.environ["DS_ACCELERATOR"]
        accel_core.set_accelerator(None)
        record = accel_core.selection().to_dict()
        assert (record["chosen"], record["how"]) == ("cpu", "fallback")
        assert {v["name"]: v["status"] for v in record["verdicts"]}["generic"] == "no_device"


# ---------------------------------------------------------------------------- users signals
# A signal handler of the program's own that raises while a plugin runs: what it raises is the program's.


#: The signal comes while the plugin runs.
HIT = "__import__('os').kill(__import__('os').getpid(), __import__('signal').SIGUSR1)"
WRAPPED = f"""
try:
    {HIT}
except BaseException as error:
    raise ImportError("libacme.so: undefined symbol") from error
"""


class Failed(BaseException): ...


class AsPytest:
    def __call__(self, *_):
        self.fail()

    def fail(self):
        raise Failed("Timeout >1.0s")


def late(*_):
    raise TimeoutError("too late")


#: How a program means its handler, and what it then sees.
HANDLERS = {
    "exits": (lambda *_: sys.exit(3), SystemExit, "3"),
    "deadline": (functools.partial(late, 1), TimeoutError, "too late"),
    "as pytest": (AsPytest(), Failed, r"Timeout >1\.0s"),
}


@pytest.mark.parametrize("means", HANDLERS)
@pytest.mark.parametrize("where", ["import", "wrapped", "hook", "vendor", "count", "listing"])
def test_the_program_gets_what_its_handler_raised(torch_world, handler, monkeypatch, means, where):
    listed = os.listdir
    if where == "listing":  # importlib.metadata drops it, and takes the folder for empty from then on
        monkeypatch.setattr(os, "listdir", lambda folder: eval(HIT) or listed(folder))
    if where == "vendor":
        vendor(torch_world, HIT)
    elif where == "count":
        counting(torch_world, HIT)
    else:
        sources = {"import": HIT, "wrapped": WRAPPED, "hook": hook("accel_probe", "backend, others", HIT)}
        torch_world.backend("npu", extra=f"\n{sources.get(where, '')}")
    does, kind, said = HANDLERS[means]
    handler(does)
    with pytest.raises(kind, match=f"^{said}$"):
        accel_core.get_accelerator()
    if where == "listing":
        handler(signal.SIG_IGN)
        assert accel_core.get_accelerator().name == "npu"


#: Where an OSError is passed over: what the signal interrupts, and how a program comes to it.
PASSED_OVER = {
    "a file": ("os.stat", lambda: hardware.read_text("/etc/hosts")),
    "a folder": ("os.listdir", lambda: hardware.names_in("/")),
    "clear_refs": (
        "pathlib.Path.write_text",
        lambda: accel_core.accelerator("cpu").reset_peak_memory_stats(),
    ),
    "a probe": ("accel_core.sandbox.child.run", accel_core.get_accelerator),
    "autoload": ("accel_core.sandbox.child.run", lambda: discovery.spoilers(None, 9)),
}


@pytest.mark.parametrize(("called", "act"), PASSED_OVER.values(), ids=PASSED_OVER)
def test_what_the_handler_raised_is_not_passed_over(torch_world, handler, monkeypatch, called, act):
    torch_world.distribution("torch-mlu", "1", {"torch.backends": {"mlu": "torch_mlu:autoload"}})
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    handler(late)
    monkeypatch.setattr(called, lambda *_, **__: eval(HIT))
    with pytest.raises(TimeoutError, match="too late"):
        act()


@pytest.mark.parametrize("means", [signal.SIG_DFL, mock.Mock(), late], ids=["default", "mock", "handled"])
def test_what_no_handler_raised_is_the_plugins_fault(torch_world, handler, means):
    """Two are called "handlers" by what Python shows of them: an enum's lookup is not `SIG_DFL`'s doing.

    The third has raised before, and the program asks for its accelerator while it handles that.
    """
    torch_world.backend("npu", extra="\nimport enum\nclass Card(enum.Enum):\n    A = 1\nCard(5)\n")
    handler(means)
    with contextlib.suppress(TimeoutError):
        try:
            if means is late:
                late()
        finally:
            with pytest.warns(AcceleratorFallbackWarning, match="5 is not a valid Card"):
                assert accel_core.get_accelerator().name == "cpu"
