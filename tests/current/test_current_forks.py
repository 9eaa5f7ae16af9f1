"""A fork, or a signal that the program handles, before, after and amid the choice."""

import copy
import inspect
import json
import os
import pickle
import time
import warnings
from importlib.util import find_spec

import pytest
from accel_tests.forks import forked
from accel_tests.processes import in_threads

import accel_core
from accel_core.errors import SettingWarning
from accel_core.sandbox import guard
from accel_testing.conformance import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
    pytest.mark.filterwarnings(
        "ignore:.*fork.*:DeprecationWarning"
    ),  # Python 3.12: beside threads
]


def in_fork(work):
    """What `work()` gives in a forked child."""
    said, status = forks.run_in_fork(lambda: json.dumps(work()), 60)
    assert status == 0, said
    return json.loads(said)


def mine():
    acc, record = accel_core.get_accelerator(), accel_core.selection()
    return [acc.name, record.name, record.pid == os.getpid(), id(acc)]


def test_a_pin_that_is_changed_after_the_choice_is_told_once_here_and_in_a_child(
    mlu, monkeypatch
):
    """https://github.com/pytorch/pytorch/issues/95073 has what people expect of a variable set too late."""
    accel_core.get_accelerator()

    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            accel_core.get_accelerator()
        return [str(each.message) for each in caught]

    said = "DS_ACCELERATOR was changed from None to 'cpu' after mlu was chosen, so the change has no effect. "
    once = [[f"{said}Next step: set DS_ACCELERATOR before Python starts."], []]
    assert (
        in_fork(lambda: (os.environ.update(DS_ACCELERATOR="cpu"), told(), told())[1:])
        == once
    )
    assert in_fork(told) == []
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.warns(SettingWarning, match=said):
        assert str(accel_core.selection().notes[-1]).startswith(said)
    assert accel_core.selection().name == "mlu"
    monkeypatch.delenv("DS_ACCELERATOR")
    # No mask was changed, so nobody asks the vendor whether the device has started.
    monkeypatch.setattr(accel_core.get_accelerator(), "is_initialized", None)
    assert accel_core.selection().notes == ()


#: The same for a process of its own.
FORK = (
    "import accel_core, json, os, sys, threading, time, warnings\nwarnings.simplefilter('ignore')\n"
    "from accel_testing.conformance import forks\n"
    + "\n".join(map(inspect.getsource, (in_fork, mine)))
)


def test_fork_after_the_choice_inherits_it_and_fork_before_it_does_not(mlu):
    before = in_fork(mine)  # the child chooses, the parent has not
    parent = mine()
    assert before[:3] == ["mlu", "mlu", True]
    assert parent[:3] == ["mlu", "mlu", True]
    assert in_fork(mine) == ["mlu", "mlu", False, parent[3]]
    renewed = in_fork(lambda: (accel_core.set_accelerator("cpu"), mine())[1])
    assert renewed[:3] == ["cpu", "cpu", True]
    assert mine() == parent


def test_fork_while_another_thread_chooses_waits_for_it(mlu):
    """The child has the parent's accelerator, whole, or chooses; it never hangs on a dead thread's lock."""
    mlu.module("slow_vendor", "import time; time.sleep(0.5)")
    mlu.backend("slow", 900, vendor_import="slow_vendor")
    with in_threads(accel_core.get_accelerator):
        while not guard._selecting_pid:
            time.sleep(0.001)
        child = in_fork(mine)
    parent = mine()
    assert child[:2] == ["slow", "slow"]
    assert parent[:2] == ["slow", "slow"]
    assert child[3] == parent[3]


def test_fork_while_a_choice_hangs_gives_a_child_that_can_choose(mlu):
    mlu.module(
        "hanging",
        "import os, time\nif os.environ['MAY_HANG'] == '1':\n    time.sleep(60)",
    )
    mlu.backend("hang", 900, vendor_import="hanging")
    code = FORK + (
        "os.environ['MAY_HANG'] = '1'\n"
        "import accel_core.current as current\n"
        "from accel_core.sandbox import guard\n"
        "current._FORK_SECONDS = 0.2\n"
        "threading.Thread(target=accel_core.get_accelerator, daemon=True).start()\n"
        "while not guard._selecting_pid or 'hanging' not in sys.modules: time.sleep(0.001)\n"
        "os.environ['DS_ACCELERATOR'] = 'cpu'\n"
        "child = in_fork(mine)\n"
        # The plugin that hangs still has stdout.
        "print(json.dumps(child), file=sys.__stdout__, flush=True)\n"
        "os._exit(0)\n"
    )
    ended = mlu.child(code, timeout=30)
    assert ended.answer[:3] == ["cpu", "cpu", True]
    assert ended.stderr == ""


def test_fork_by_the_thread_that_chooses_leaves_all_sides_working(mlu):
    """A vendor package that forks while it is imported, whose child forks too; nobody keeps the lock."""
    mlu.module(
        "forking",
        "import os\nif pid := os.fork() or os.fork():\n    os.waitpid(pid, 0)",
    )
    mlu.backend("fork", 900, vendor_import="forking")
    code = "print([mine()[:2], in_fork(mine)[:2]], flush=True)\nthreading.Thread(target=mine).start()\n"
    ended = mlu.child(FORK + code, timeout=30)
    assert ended.stdout == f"{[['fork', 'fork']] * 2}\n" * 3
    assert ended.stderr == ""


def test_many_forks_beside_many_choosers_all_end(mlu):
    def churn():
        for _ in range(200):
            accel_core.set_accelerator(None)
            accel_core.get_accelerator()

    # First of all: a fork amid the import of the module itself is Python's own deadlock.
    accel_core.get_accelerator()
    with in_threads(churn, churn):
        children = [in_fork(mine)[0] for _ in range(15)]
    assert {*children} == {"mlu"}


def test_where_there_is_no_fork_nothing_is_registered(world):
    code = (
        "import os, json, accel_core.select\ndel os.register_at_fork\n"
        "import accel_core.current\nprint(json.dumps(True))"
    )
    assert world.child(code, bare=False).answer is True


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@forked("torch")
def test_with_the_real_torch_a_fork_chooses_the_cpu_before_its_parent():
    os.environ["DS_ACCELERATOR"] = "cpu"
    assert in_fork(lambda: mine()[:2]) == ["cpu", "cpu"]


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@forked("torch")
def test_with_the_real_torch_the_cpu_computes_here_and_in_a_fork():
    os.environ["DS_ACCELERATOR"] = "cpu"
    acc = accel_core.get_accelerator()
    import torch

    def computed():
        return [
            accel_core.get_accelerator().device_name(),
            float(torch.ones(3, device=acc.device()).sum()),
        ]

    assert in_fork(computed) == ["cpu", 3.0]
    assert computed() == ["cpu", 3.0]


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@forked("torch")
def test_with_the_real_torch_a_pickle_and_a_copy_are_the_same_object():
    os.environ["DS_ACCELERATOR"] = "cpu"
    acc = accel_core.get_accelerator()
    assert pickle.loads(pickle.dumps(acc)) is acc
    assert copy.deepcopy(acc) is acc


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@forked("torch")
def test_where_the_real_torch_has_no_device_the_cpu_is_the_fallback():
    import torch

    if torch.accelerator.is_available():
        return  # then that one is chosen
    record = accel_core.selection().to_dict()
    statuses = {verdict["name"]: verdict["status"] for verdict in record["verdicts"]}
    assert record["chosen"] == "cpu"
    assert record["how"] == "fallback"
    assert statuses["generic"] == "no_device"
