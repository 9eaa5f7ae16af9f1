"""One accelerator a process: threads, tasks, forks, pickles and plugins that ask for it too early."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import threading
import time

import pytest
from accel_testing import plugins
from accel_testing.plugins import hook

import accel_core
from accel_core import current
from accel_core.choice import How
from accel_core.errors import (
    BackendConflictError,
    BackendNotFoundError,
    BackendUnavailableError,
    InvalidAcceleratorError,
    RecursiveChoiceError,
    SettingError,
)

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


@pytest.fixture
def mlu(torch_world):
    torch_world.backend("mlu", 300)
    return torch_world


# ---------------------------------------------------------------------------- one object


def test_the_first_call_chooses_and_every_other_gives_the_same_object(mlu):
    first = accel_core.get_accelerator()
    record = accel_core.selection()
    assert first.name == "mlu"
    assert accel_core.get_accelerator() is first
    assert accel_core.selection() is record
    assert (record.chosen, record.pid) == ("mlu", os.getpid())


def test_the_record_can_be_asked_for_first(mlu):
    assert accel_core.selection().chosen == "mlu"
    assert accel_core.get_accelerator().name == "mlu"


def test_32_threads_racing_get_one_object_and_one_choice(mlu, monkeypatch):
    chosen: list[object] = []
    real = current.choose

    def slow(*args, **options):
        chosen.append(args)
        time.sleep(0.05)
        return real(*args, **options)

    monkeypatch.setattr(current, "choose", slow)
    barrier = threading.Barrier(32)
    got: list[object] = []

    def ask() -> None:
        barrier.wait()
        got.append((accel_core.get_accelerator(), accel_core.selection()))

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(got) == 32
    assert len({(id(a), id(s)) for a, s in got}) == 1
    assert len(chosen) == 1


def test_a_choice_that_fails_is_made_again(mlu, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "tpu")
    for _ in range(2):
        with pytest.raises(BackendNotFoundError):
            accel_core.get_accelerator()
    monkeypatch.setenv("DS_ACCELERATOR", "mlu")
    assert accel_core.get_accelerator().name == "mlu"


# ---------------------------------------------------------------------------- by name


def test_an_accelerator_by_name_is_one_object_and_no_choice(mlu):
    """USERS 42: one is current, the others can be had by name."""
    cpu = accel_core.accelerator("cpu")
    assert cpu is accel_core.accelerator(" CPU ") is accel_core.accelerator("cpu@accel-core")
    assert accel_core.get_accelerator().name == "mlu"
    assert accel_core.accelerator("mlu") is accel_core.get_accelerator()
    assert accel_core.accelerator("cpu") is cpu


def test_what_was_made_for_a_name_serves_the_choice(mlu):
    made = accel_core.accelerator("mlu@accel-mlu")
    assert accel_core.get_accelerator() is made


def test_a_name_may_have_no_device(torch_world):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.backend("npu", accelerator="none_device:Simulated")
    assert accel_core.accelerator("npu").device_count() == 0


@pytest.mark.parametrize("name", ["", "npu@", "@x", "  "])
def test_half_a_name_is_refused(mlu, name):
    with pytest.raises(InvalidAcceleratorError, match="expected a backend name, or name@distribution"):
        accel_core.accelerator(name)


def test_a_name_that_is_not_installed_or_not_usable_raises_as_a_pin_does(mlu):
    with pytest.raises(
        BackendNotFoundError, match=r"accelerator\('tpu'\): no installed distribution declares tpu"
    ):
        accel_core.accelerator("tpu")
    mlu.backend("npu", vendor_import="torch_npu")
    with pytest.raises(
        BackendUnavailableError, match=r"npu \(accel-npu 1.0\) is not usable: torch_npu is not installed"
    ):
        accel_core.accelerator("npu")


def test_a_list_is_no_name(mlu):
    with pytest.raises(BackendNotFoundError):
        accel_core.accelerator("mlu,cpu")


@pytest.fixture
def rivals(torch_world):
    for distribution in ("accel-npu", "better-npu"):
        torch_world.backend("npu", distribution=distribution)
    return torch_world


def test_two_distributions_of_one_name_are_two_objects(rivals):
    one, two = accel_core.accelerator("npu@accel-npu"), accel_core.accelerator("npu@better-npu")
    assert one is not two
    assert [a.backend.distribution for a in (one, two)] == ["accel-npu", "better-npu"]
    with pytest.raises(BackendConflictError):
        accel_core.accelerator("npu")


def test_two_backends_of_one_distribution_and_name_are_two_objects(torch_world, monkeypatch):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu",
        plugins.declaring(
            plugins.arguments("xpu", 800, accelerator="none_device:Simulated"), plugins.arguments("xpu", 790)
        ),
    )
    by_name = accel_core.accelerator("xpu")  # a name may have no device
    assert by_name.backend.priority == 800
    assert accel_core.get_accelerator().backend.priority == 790


def test_a_pinned_distribution_is_what_its_name_means(rivals, monkeypatch):
    """A pickle holds the name alone, and a worker process has the same environment."""
    monkeypatch.setenv("DS_ACCELERATOR", "npu@better-npu")
    assert accel_core.accelerator("npu").backend.distribution == "better-npu"
    assert accel_core.accelerator("npu@accel-npu").backend.distribution == "accel-npu"


# ---------------------------------------------------------------------------- pickles and copies


def test_a_pickle_holds_the_name_and_gives_the_same_object_back(mlu):
    acc, cpu = accel_core.get_accelerator(), accel_core.accelerator("cpu")
    assert pickle.loads(pickle.dumps(acc)) is acc
    assert pickle.loads(pickle.dumps(cpu)) is cpu
    assert copy.copy(acc) is acc
    assert copy.deepcopy({"a": [acc]})["a"][0] is acc


def test_a_pickle_works_in_another_process(mlu):
    """Under a pin of one distribution of two, which the name alone does not tell."""
    mlu.backend("mlu", 200, distribution="better-mlu")
    code = "import accel_core, base64, json, pickle\n"
    pin = {"DS_ACCELERATOR": "mlu@better-mlu"}
    dumped = mlu.child(
        code + "print(json.dumps(base64.b64encode(pickle.dumps(accel_core.get_accelerator())).decode()))",
        variables=pin,
    ).answer
    code += (
        f"acc = pickle.loads(base64.b64decode({dumped!r}))\n"
        "print(json.dumps([acc.name, acc.backend.distribution, acc is accel_core.get_accelerator()]))"
    )
    assert mlu.child(code, variables=pin).answer == ["mlu", "better-mlu", True]


def test_an_accelerator_that_was_set_survives_its_pickle(mlu):
    class Mine(type(accel_core.accelerator("cpu"))):  # type: ignore[misc]
        pass

    mine = Mine(accel_core.accelerator("cpu").backend)
    accel_core.set_accelerator(mine)
    assert pickle.loads(pickle.dumps(mine)) is mine


# ---------------------------------------------------------------------------- set and use


def test_set_by_name_by_object_and_back(mlu):
    cpu = accel_core.accelerator("cpu")
    accel_core.set_accelerator("cpu")
    assert accel_core.get_accelerator() is cpu
    assert (accel_core.selection().chosen, accel_core.selection().how) == ("cpu", How.SET)
    assert "cpu (accel-core" in str(accel_core.selection())
    assert "set by the program" in str(accel_core.selection())
    accel_core.set_accelerator(accel_core.accelerator("mlu"))
    assert accel_core.get_accelerator().name == "mlu"
    accel_core.set_accelerator(None)
    assert accel_core.selection().how is How.RANKED


@pytest.mark.parametrize("wrong", [5, "CPUAccelerator()", object(), type])
def test_what_is_no_accelerator_is_refused(mlu, wrong):
    before = accel_core.get_accelerator()
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)):
        accel_core.set_accelerator(wrong)
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)), accel_core.use_accelerator(wrong):
        pass
    assert accel_core.get_accelerator() is before


def test_what_is_no_accelerator_is_named(mlu):
    with pytest.raises(InvalidAcceleratorError) as caught:
        accel_core.set_accelerator(5)
    assert (
        str(caught.value)
        == "5 (int) is not an accelerator: expected an accel_core.Accelerator or a backend's name"
    )
    assert isinstance(caught.value, TypeError)


def test_use_is_for_the_block_and_nests(mlu):
    outer = accel_core.get_accelerator()
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        with accel_core.use_accelerator(outer):
            assert accel_core.get_accelerator() is outer
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator() is outer
    assert current._fast is outer


def test_use_ends_with_an_exception_too(mlu):
    outer = accel_core.get_accelerator()
    with pytest.raises(ZeroDivisionError), accel_core.use_accelerator("cpu"):
        raise ZeroDivisionError
    assert accel_core.get_accelerator() is outer
    assert current._fast is outer


def test_use_before_any_choice_chooses_nothing(mlu):
    with accel_core.use_accelerator("cpu") as cpu:
        assert accel_core.get_accelerator() is cpu
        assert current._chosen is None
        assert accel_core.selection().chosen == "mlu"  # the record is of the process's choice
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator().name == "mlu"


def test_set_inside_use_counts_after_it(mlu):
    accel_core.get_accelerator()
    with accel_core.use_accelerator("mlu") as inner:
        accel_core.set_accelerator("cpu")
        assert accel_core.get_accelerator() is inner
    assert accel_core.get_accelerator().name == "cpu"


def test_use_is_seen_by_no_other_thread(mlu):
    outer = accel_core.get_accelerator()
    inside, done = threading.Event(), threading.Event()
    seen: list[object] = []

    def other() -> None:
        inside.wait(10)
        seen.append(accel_core.get_accelerator())
        with accel_core.use_accelerator("cpu"):
            seen.append(accel_core.get_accelerator().name)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with accel_core.use_accelerator("cpu") as cpu:
        inside.set()
        assert done.wait(10)
        assert accel_core.get_accelerator() is cpu
    thread.join(10)
    assert seen == [outer, "cpu"]


def test_use_is_for_one_task(mlu):
    outer = accel_core.get_accelerator()

    async def task(name: str) -> list[str]:
        seen = []
        with accel_core.use_accelerator(name):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(accel_core.get_accelerator().name)
        return [*seen, accel_core.get_accelerator().name]

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(task(name) for name in ("cpu", "mlu", "cpu")))

    assert asyncio.run(main()) == [["cpu"] * 3 + ["mlu"], ["mlu"] * 4, ["cpu"] * 3 + ["mlu"]]
    assert current._fast is outer


def test_use_that_is_ended_in_another_context_still_ends(mlu):
    """A generator that is closed elsewhere, as some frameworks do; the error is Python's own."""
    import contextvars

    accel_core.get_accelerator()
    manager = accel_core.use_accelerator("cpu")
    contextvars.copy_context().run(manager.__enter__)
    with pytest.raises(ValueError, match="different Context"):
        manager.__exit__(None, None, None)
    assert accel_core.get_accelerator().name == "mlu"
    assert current._fast is not None


# ---------------------------------------------------------------------------- a plugin that asks too early

ASKS = "import accel_core; accel_core.get_accelerator()"


def test_a_plugin_that_asks_while_it_is_loaded_is_broken(mlu):
    mlu.plugin("bad", ASKS)
    assert accel_core.get_accelerator().name == "mlu"
    (bad,) = [v for v in accel_core.selection().verdicts if v.name == "bad"]
    assert bad.cause.startswith(
        "RecursiveChoiceError: get_accelerator() was called while the accelerator was being chosen"
    )


def test_a_vendor_that_asks_while_it_is_imported_is_broken(mlu):
    mlu.module("torch_bad", ASKS)
    mlu.backend("bad", 900, vendor_import="torch_bad")
    assert accel_core.get_accelerator().name == "mlu"
    assert "RecursiveChoiceError" in accel_core.selection().verdicts[0].reason


@pytest.mark.parametrize("usable", ["True", "None"])
def test_a_plugin_that_asks_while_it_builds_is_broken_and_the_next_is_chosen(mlu, usable):
    answer = "return ProbeResult(True)" if usable == "True" else "return None"
    extra = hook("accel_probe", "backend, others", answer) + hook(
        "accel_create", "backend, others", "return accel_core.get_accelerator()"
    )
    mlu.backend("bad", 900, extra=extra)
    assert accel_core.get_accelerator().name == "mlu"


def test_a_pinned_plugin_that_asks_raises_what_happened(mlu, monkeypatch):
    mlu.backend("bad", extra=hook("accel_create", "backend, others", "return accel_core.get_accelerator()"))
    monkeypatch.setenv("DS_ACCELERATOR", "bad")
    with pytest.raises(BackendUnavailableError, match="RecursiveChoiceError") as caught:
        accel_core.get_accelerator()
    assert isinstance(caught.value.__cause__, RecursiveChoiceError)
    assert not current._choosing


def _flaky(world, second: str) -> None:
    """An accelerator that is built once, while it is probed, and does `second` the next time."""
    world.module(
        "flaky_device",
        "import accel_core\ntimes = []\nclass Simulated(accel_core.Accelerator):\n"
        "    def __init__(self, backend):\n        super().__init__(backend)\n        times.append(1)\n"
        f"        if len(times) > 1:\n            {second}\n"
        "    def device_count(self):\n        return 1\n",
    )
    world.backend("flaky", 900, accelerator="flaky_device:Simulated")


def test_a_build_that_fails_after_its_probe_is_an_error_of_ours(mlu):
    _flaky(mlu, "raise OSError('device lost')")
    with pytest.raises(
        BackendUnavailableError, match=r"flaky \(accel-flaky 1.0\) cannot be built: OSError: device lost"
    ):
        accel_core.get_accelerator()


def test_a_build_that_asks_after_its_probe_is_told_so(mlu):
    _flaky(mlu, "accel_core.get_accelerator()")
    with pytest.raises(RecursiveChoiceError):
        accel_core.get_accelerator()
    assert not current._choosing


def test_a_setting_that_is_malformed_stops_a_name_too(mlu, monkeypatch):
    monkeypatch.setenv("ACCEL_STRICT", "perhaps")
    with pytest.raises(SettingError):
        accel_core.accelerator("mlu")


# ---------------------------------------------------------------------------- forks

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
        "import accel_core.current as current\n"
        "thread.start()\n"
        "while not current._choosing: time.sleep(0.001)\n"
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
        "current._FORK_WAIT = 0.2\n"
        "threading.Thread(target=accel_core.get_accelerator, daemon=True).start()\n"
        "while not current._choosing or 'hanging' not in sys.modules: time.sleep(0.001)\n"
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
        "import os, json, accel_core.choice\ndel os.register_at_fork\n"
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
        code, torch="real", variables={"DS_ACCELERATOR": "cpu"}
    ).answer
    assert (before, name, same, child, device) == (["cpu", "cpu"], "cpu", True, ["cpu", 3.0], "cpu")
    if no_accelerator:
        ranked = "import json, accel_core\nprint(json.dumps(accel_core.selection().to_dict()))"
        record = torch_world.child(ranked, torch="real").answer
        assert (record["chosen"], record["how"]) == ("cpu", "fallback")
        assert {v["name"]: v["status"] for v in record["verdicts"]}["generic"] == "no_device"
