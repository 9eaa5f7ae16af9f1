"""A fork before, after and amid the choice leaves both sides working."""

from __future__ import annotations

import os

import pytest

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")

FORK = """
import json, os, sys, threading, time, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
import accel_core

def forked(work):
    "What `work()` gives in a forked child."
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        text = lines.read()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)

def mine():
    acc, record = accel_core.get_accelerator(), accel_core.selection()
    return [acc.name, record.chosen, record.pid == os.getpid(), id(acc)]
"""


@fork
def test_fork_after_the_choice_inherits_it_and_fork_before_it_does_not(mlu):
    code = FORK + (
        "before = forked(mine)\n"  # the child chooses, the parent has not
        "parent = mine()\n"
        "after = forked(mine)\n"
        "renewed = forked(lambda: (accel_core.set_accelerator('cpu'), mine())[1])\n"
        "print(json.dumps([before, parent, after, renewed, mine() == parent]))"
    )
    before, parent, after, renewed, unchanged = mlu.child(code).answer
    assert before[:3] == ["mlu", "mlu", True]
    assert parent[:3] == ["mlu", "mlu", True]
    assert after == ["mlu", "mlu", False, parent[3]]
    assert renewed[:3] == ["cpu", "cpu", True]
    assert unchanged


@fork
def test_fork_while_another_thread_chooses_waits_for_it(mlu):
    """The child has the parent's accelerator, whole, or chooses; it never hangs on a dead thread's lock."""
    mlu.module("slow_vendor", "import time; time.sleep(0.5)")
    mlu.backend("slow", 900, vendor_import="slow_vendor")
    code = FORK + (
        "thread = threading.Thread(target=accel_core.get_accelerator)\n"
        "from accel_core.detection import guard\n"
        "thread.start()\n"
        "while not guard._choosing: time.sleep(0.001)\n"
        "child = forked(mine)\n"
        "thread.join()\n"
        "print(json.dumps([child, mine()]))"
    )
    child, parent = mlu.child(code, timeout=30).answer
    assert child[:2] == parent[:2] == ["slow", "slow"]
    assert child[3] == parent[3]


@fork
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
        "child = forked(mine)\n"
        "print(json.dumps(child), flush=True)\n"
        "os._exit(0)\n"
    )
    assert mlu.child(code, timeout=30).answer[:3] == ["cpu", "cpu", True]


@fork
def test_fork_by_the_thread_that_chooses_leaves_both_sides_working(mlu):
    """A vendor package that forks while it is imported."""
    mlu.module("forking", "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)")
    mlu.backend("fork", 900, vendor_import="forking")
    code = FORK + "print(json.dumps([mine(), forked(mine)]))"
    parent, child = mlu.child(code, timeout=30).answer
    assert parent[:2] == child[:2] == ["fork", "fork"]


@fork
def test_many_forks_beside_many_choosers_all_end(mlu):
    code = FORK + (
        # First of all: a fork amid the import of the module itself is Python's own deadlock.
        "accel_core.get_accelerator()\n"
        "def churn():\n"
        "    for _ in range(200):\n"
        "        accel_core.set_accelerator(None)\n"
        "        accel_core.get_accelerator()\n"
        "threads = [threading.Thread(target=churn) for _ in range(2)]\n"
        "[t.start() for t in threads]\n"
        "children = [forked(mine)[0] for _ in range(15)]\n"
        "[t.join() for t in threads]\n"
        "print(json.dumps(sorted(set(children))))"
    )
    assert mlu.child(code, timeout=50).answer == ["mlu"]


@fork
def test_choosing_initialises_no_device(torch_world):
    """USERS 23, 25, 26: a fork uses the device afterwards, which forbids that once it is initialised."""
    torch_world.module(
        "torch_sim",
        "import os, torch, types\n"
        "module = torch.sim = types.ModuleType('torch.sim')\n"
        "owner = []\n"
        "def use():\n"
        "    owner.append(os.getpid())\n"
        "    if owner[0] != os.getpid():\n"
        "        raise RuntimeError('Cannot re-initialize in forked subprocess')\n"
        "module.device_count = lambda: 2\n"  # counting is allowed before
        "module.is_available = lambda: True\n"
        "module.is_initialized = lambda: bool(owner)\n"
        "module.current_device = lambda: use() or 0\n"
        "module.set_device = lambda index: use()\n"
        "module.synchronize = lambda device=None: use()\n",
    )
    torch_world.backend(
        "sim", vendor_import="torch_sim", accelerator="accel_core.accelerators.torch_device:TorchAccelerator"
    )
    code = FORK + (
        "acc = accel_core.get_accelerator()\n"
        "assert not acc.is_initialized()\n"
        "def use():\n"
        "    acc = accel_core.get_accelerator()\n"
        "    return [acc.name, acc.current_device()]\n"
        "first = forked(use)\n"
        "here = use()\n"
        "print(json.dumps([first, here, acc.is_initialized()]))"
    )
    assert torch_world.child(code).answer == [["sim", 0], ["sim", 0], True]


def test_where_there_is_no_fork_nothing_is_registered(world):
    code = (
        "import os, json, accel_core.detection.select\ndel os.register_at_fork\n"
        "import accel_core.current\nprint(json.dumps(True))"
    )
    assert world.child(code, bare=False).answer is True


# ---------------------------------------------------------------------------- with the real torch


@fork
@pytest.mark.slow
def test_with_the_real_torch_the_cpu_is_chosen_forks_and_pickles(torch_world):
    torch_world.base = tuple(p for p in torch_world.base if "simulated" not in p)
    torch_world.set_path([torch_world.site])
    code = FORK + (
        "import pickle, copy\n"
        "before = forked(lambda: mine()[:2])\n"
        "acc = accel_core.get_accelerator()\n"
        "import torch\n"
        "same = pickle.loads(pickle.dumps(acc)) is acc is copy.deepcopy(acc)\n"
        "total = lambda: float(torch.ones(3, device=acc.device()).sum())\n"
        "child = forked(lambda: [accel_core.get_accelerator().device_name(), total()])\n"
        "none = torch.accelerator.current_accelerator() is None\n"
        "print(json.dumps([before, acc.name, same, child, str(acc.device()), none]))"
    )
    before, name, same, child, device, no_accelerator = torch_world.child(
        code, torch="real", variables={"DS_ACCELERATOR": "cpu"}, timeout=180
    ).answer
    assert (before, name, same, child, device) == (["cpu", "cpu"], "cpu", True, ["cpu", 3.0], "cpu")
    if no_accelerator:
        ranked = "import json, accel_core\nprint(json.dumps(accel_core.selection().to_dict()))"
        record = torch_world.child(ranked, torch="real", timeout=180).answer
        assert (record["chosen"], record["how"]) == ("cpu", "fallback")
        assert {v["name"]: v["status"] for v in record["verdicts"]}["generic"] == "no_device"
