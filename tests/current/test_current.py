"""One accelerator a process, whichever way it is asked for, also for a device and amid a choice."""

import contextlib
import copy
import itertools
import os
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from accel_tests import plugins
from accel_tests.plugins import hook

import accel_core
from accel_core import current
from accel_core.errors import (
    BackendConflictError,
    BackendNotFoundError,
    BackendUnavailableError,
    InvalidAcceleratorError,
    RecursiveChoiceError,
    SettingError,
)
from accel_core.sandbox import guard
from accel_core.select import select
from accel_core.settings import read
from accel_core.verdict import How

# ---------------------------------------------------------------------------- one object


def test_the_first_call_chooses_and_every_other_gives_the_same_object(mlu):
    first = accel_core.get_accelerator()
    record = accel_core.selection()
    assert first.name == "mlu"
    assert accel_core.get_accelerator() is first
    assert accel_core.selection() is record
    assert (record.name, record.pid) == ("mlu", os.getpid())


def test_the_record_can_be_asked_for_first(mlu):
    assert accel_core.selection().name == "mlu"
    assert accel_core.get_accelerator().name == "mlu"


def test_an_accelerator_that_was_made_for_a_name_is_the_one_that_is_chosen(mlu):
    made = accel_core.accelerator("mlu@accel-mlu")
    assert accel_core.get_accelerator() is made


def test_a_choice_that_fails_is_made_again(mlu, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "tpu")
    for _ in range(2):
        with pytest.raises(BackendNotFoundError):
            accel_core.get_accelerator()
    monkeypatch.setenv("DS_ACCELERATOR", "mlu")
    assert accel_core.get_accelerator().name == "mlu"


# ---------------------------------------------------------------------------- by name


def test_an_accelerator_by_name_is_one_object_and_no_choice(mlu):
    """A program may use two accelerators: one is current, the others can be had by name."""
    cpu = accel_core.accelerator("cpu")
    assert (
        cpu
        is accel_core.accelerator(" CPU ")
        is accel_core.accelerator("cpu@accel-core")
    )
    assert accel_core.get_accelerator().name == "mlu"
    assert accel_core.accelerator("mlu") is accel_core.get_accelerator()
    assert accel_core.accelerator("cpu") is cpu


def test_a_name_may_have_no_device(torch_world):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.backend("npu", accelerator="none_device:Simulated")
    assert accel_core.accelerator("npu").device_count() == 0


@pytest.mark.parametrize("name", [3, None, 1.5, ["mlu"], "", "npu@", "@x", "  "])
def test_what_names_neither_a_backend_nor_a_device_is_refused(mlu, name):
    with pytest.raises(
        InvalidAcceleratorError,
        match=r"expected a backend's name .*, a device .* or a tensor$",
    ):
        accel_core.accelerator(name)


def test_a_name_that_is_not_installed_or_not_usable_raises_as_a_pin_does(mlu):
    with pytest.raises(
        BackendNotFoundError,
        match=r"accelerator\('tpu'\): no installed distribution declares tpu",
    ):
        accel_core.accelerator("tpu")
    mlu.backend("npu", vendor_import="torch_npu")
    with pytest.raises(
        BackendUnavailableError,
        match=r"npu \(accel-npu 1.0\) is not usable: torch_npu is not installed",
    ):
        accel_core.accelerator("npu")


def test_a_list_is_not_a_name_even_if_it_names_installed_backends(mlu):
    """Unlike in DS_ACCELERATOR, where a list is tried in its order."""
    with pytest.raises(BackendNotFoundError):
        accel_core.accelerator("mlu,cpu")


@pytest.fixture
def rivals(torch_world):
    for distribution in ("accel-npu", "better-npu"):
        torch_world.backend("npu", distribution=distribution)
    return torch_world


def test_two_distributions_of_one_name_are_two_objects(rivals):
    one, two = (
        accel_core.accelerator("npu@accel-npu"),
        accel_core.accelerator("npu@better-npu"),
    )
    assert one is not two
    assert [a.backend.distribution for a in (one, two)] == ["accel-npu", "better-npu"]
    with pytest.raises(BackendConflictError):
        accel_core.accelerator("npu")


def test_two_backends_of_one_distribution_and_name_are_two_objects(
    torch_world, monkeypatch
):
    torch_world.module("none_device", plugins.ACCELERATOR.format(count="return 0"))
    torch_world.plugin(
        "xpu",
        plugins.declaring(
            plugins.arguments("xpu", 800, accelerator="none_device:Simulated"),
            plugins.arguments("xpu", 790),
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


def test_a_setting_that_is_malformed_stops_a_name_too(mlu, monkeypatch):
    monkeypatch.setenv("ACCEL_STRICT", "perhaps")
    with pytest.raises(SettingError):
        accel_core.accelerator("mlu")


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
        code
        + "print(json.dumps(base64.b64encode(pickle.dumps(accel_core.get_accelerator())).decode()))",
        variables=pin,
    ).answer
    code += (
        f"acc = pickle.loads(base64.b64decode({dumped!r}))\n"
        "print(json.dumps([acc.name, acc.backend.distribution, acc is accel_core.get_accelerator()]))"
    )
    assert mlu.child(code, variables=pin).answer == ["mlu", "better-mlu", True]


def test_an_accelerator_that_was_set_survives_its_pickle(mlu):
    class Mine(type(accel_core.accelerator("cpu"))):
        pass

    mine = Mine(accel_core.accelerator("cpu").backend)
    accel_core.set_accelerator(mine)
    assert pickle.loads(pickle.dumps(mine)) is mine


def test_set_by_name_by_object_and_back(mlu):
    cpu = accel_core.accelerator("cpu")
    accel_core.set_accelerator("cpu")
    assert accel_core.get_accelerator() is cpu
    assert (accel_core.selection().name, accel_core.selection().how) == ("cpu", How.SET)
    assert "cpu (accel-core" in str(accel_core.selection())
    assert "set by the program" in str(accel_core.selection())
    accel_core.set_accelerator(accel_core.accelerator("mlu"))
    assert accel_core.get_accelerator().name == "mlu"
    accel_core.set_accelerator(None)
    assert accel_core.selection().how is How.RANKED


@pytest.mark.parametrize("wrong", [5, "CPUAccelerator()", object(), type])
def test_what_is_no_accelerator_is_refused(mlu, wrong):
    before = accel_core.get_accelerator()
    with pytest.raises((InvalidAcceleratorError, BackendNotFoundError)) as caught:
        accel_core.set_accelerator(wrong)
    expected = "expected an accel_core.Accelerator or a backend's name"
    assert (
        wrong != 5 or str(caught.value) == f"5 (int) is not an accelerator: {expected}"
    )
    assert isinstance(
        caught.value, LookupError if isinstance(wrong, str) else TypeError
    )
    with (
        pytest.raises((InvalidAcceleratorError, BackendNotFoundError)),
        accel_core.use_accelerator(wrong),
    ):
        pass
    assert accel_core.get_accelerator() is before


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
        assert (
            accel_core.selection().name == "mlu"
        )  # the record is of the process's choice
        assert accel_core.get_accelerator() is cpu
    assert accel_core.get_accelerator().name == "mlu"


def test_set_inside_use_counts_after_it(mlu):
    accel_core.get_accelerator()
    with accel_core.use_accelerator("mlu") as inner:
        accel_core.set_accelerator("cpu")
        assert accel_core.get_accelerator() is inner
    assert accel_core.get_accelerator().name == "cpu"


def test_a_block_that_is_interrupted_anywhere_is_not_in_force(mlu):
    chosen, other = accel_core.get_accelerator(), accel_core.accelerator("cpu")
    at, ended = 0, False

    def interrupt(frame, event, _):  # where Python looks for signals, at each once
        own = frame.f_code.co_filename in (current.__file__, contextlib.__file__)
        # A generator that goes on is no such place in Python 3.10, where an error there ends it unseen.
        own = own and (
            event != "call" or frame.f_lasti < 0 or sys.version_info >= (3, 11)
        )
        if own and event in ("call", "c_return") and next(left) == 0:
            raise KeyboardInterrupt

    while not ended:
        left = itertools.count(-at)
        at += 1
        try:
            sys.setprofile(interrupt)
            with accel_core.use_accelerator(other):
                pass
            ended = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert (accel_core.get_accelerator(), current._overrides) == (chosen, set()), at
    assert at > 10


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_block_whose_end_is_interrupted_while_others_choose_has_ended(mlu):
    with ThreadPoolExecutor(1) as pool:

        def let_the_end_wait_and_interrupt_it():
            pool.submit(current._lock.acquire).result()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)

        with pytest.raises(KeyboardInterrupt), accel_core.use_accelerator("cpu"):
            let_the_end_wait_and_interrupt_it()
        pool.submit(current._lock.release).result()
    assert (accel_core.get_accelerator().name, current._overrides) == ("mlu", set())


# ---------------------------------------------------------------------------- current device
# The accelerator of a device: a `torch.device`, its name with an index, or a tensor that is on it.


def device(kind):
    """What is read of a `torch.device`."""
    return SimpleNamespace(type=kind, index=0)


def each(kind):
    """A device of that type, as it can be given."""
    return [device(kind), f"{kind}:0", SimpleNamespace(device=device(kind))]


def test_the_chosen_one_serves_its_devices(mlu):
    chosen = accel_core.get_accelerator()
    assert [accel_core.accelerator(one) for one in each("mlu")] == [chosen] * 3
    cpu = accel_core.accelerator("cpu")
    assert [accel_core.accelerator(one) for one in each("cpu")] == [cpu] * 3
    assert accel_core.get_accelerator() is chosen


def test_a_name_with_an_index_is_no_backends_name(mlu):
    """`xpu:0` is a device, and `xpu` a backend, of which there may be several for that device."""
    mlu.backend("cloud", 400, device_type="mlu")
    assert accel_core.accelerator("mlu").name == "mlu"
    assert accel_core.accelerator(" MLU:1 ").name == "cloud"


@pytest.fixture
def several_of_a_type(torch_world):
    """The first has no device, the others do."""
    torch_world.backend("aaa", 700, device_type="npu", extra=plugins.NO_DEVICE)
    torch_world.backend("bbb", 600, device_type="npu")
    torch_world.backend("npu", 500)
    return torch_world


def test_without_a_choice_the_highest_ranking_usable_one_serves(several_of_a_type):
    found = [accel_core.accelerator(one) for one in each("npu")]
    assert {acc.name for acc in found} == {"bbb"}
    assert accel_core.get_accelerator() is found[0] is found[1]


def test_what_ds_accelerator_names_serves_before_it(several_of_a_type, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert accel_core.accelerator("npu:0").name == "npu"
    assert accel_core.get_accelerator().name == "npu"


def test_one_that_is_used_for_a_while_serves_its_devices(several_of_a_type):
    assert accel_core.get_accelerator().name == "bbb"
    with accel_core.use_accelerator("npu"):
        assert accel_core.accelerator("npu:0").name == "npu"
        assert accel_core.accelerator("cpu:0").name == "cpu"
    assert accel_core.accelerator("npu:0").name == "bbb"


def test_none_that_is_usable(torch_world):
    torch_world.backend("aaa", 700, device_type="npu", extra=plugins.NO_DEVICE)
    torch_world.backend("npu", 500, extra=plugins.NO_DEVICE)
    with pytest.raises(
        BackendUnavailableError, match=r"(?s)accelerator\('npu:1'\): none .*aaa .*npu "
    ):
        accel_core.accelerator("npu:1")


def test_two_distributions_of_one_name(rivals):
    with pytest.raises(BackendConflictError, match="npu"):
        accel_core.accelerator(device("npu"))


@pytest.mark.parametrize("kind", ["meta", "tpu", ""])
def test_a_type_that_nobody_declares(mlu, kind):
    expected = f"no installed plugin declares a device of type '{kind}', and torch's own accelerator is None"
    with pytest.raises(BackendNotFoundError, match=expected):
        accel_core.accelerator(device(kind))


def test_generic_serves_what_torch_alone_knows(torch_world, simulated_torch):
    simulated_torch.foo = SimpleNamespace(device_count=lambda: 3)
    simulated_torch.accelerator.current = "foo"
    with pytest.raises(BackendNotFoundError, match="torch's own accelerator is foo"):
        accel_core.accelerator("bar:0")
    found = accel_core.accelerator(device("foo"))
    assert (found.name, found.device_type) == ("generic", "foo")
    assert accel_core.get_accelerator() is found is accel_core.accelerator("foo:1")


def test_a_type_whose_only_plugin_is_blocked_says_so(mlu, monkeypatch):
    monkeypatch.setenv("ACCEL_BLOCK", "mlu")
    with pytest.raises(BackendUnavailableError, match="take mlu out of ACCEL_BLOCK"):
        accel_core.accelerator("mlu:0")


# ---------------------------------------------------------------------------- current recursion
# A plugin or a vendor's package that asks for the accelerator while it is being chosen.


@pytest.mark.parametrize("asks", ["get_accelerator()", "accelerator('mlu')"])
@pytest.mark.parametrize("where", ["import", "vendor", "accel_probe", "accel_create"])
def test_a_command_says_what_the_program_gets(mlu, where, asks):
    asked, vendor = f"accel_core.{asks}", where == "vendor"
    mlu.module("torch_bad", f"import accel_core; {asked if vendor else ''}")
    said = (
        ""
        if vendor
        else asked
        if where == "import"
        else hook(where, "backend, others", asked)
    )
    mlu.backend(
        "bad", 900, vendor_import="torch_bad", extra=f"import accel_core\n{said}"
    )
    assert accel_core.get_accelerator().name == "mlu"
    for told in (accel_core.selection(), select(read(), isolated=True)):
        (bad,) = [v for v in told.verdicts if v.name == "bad"]
        assert bad.cause.startswith(
            "RecursiveChoiceError: get_accelerator() was called while"
        )
        assert told.name == "mlu"


def test_a_pinned_plugin_that_asks_raises_what_happened(mlu, monkeypatch):
    mlu.backend(
        "bad",
        extra=hook(
            "accel_create", "backend, others", "return accel_core.get_accelerator()"
        ),
    )
    monkeypatch.setenv("DS_ACCELERATOR", "bad")
    with pytest.raises(BackendUnavailableError, match="RecursiveChoiceError") as caught:
        accel_core.get_accelerator()
    assert isinstance(caught.value.__cause__, RecursiveChoiceError)
    assert not guard._selecting_pid


COUNTS_BUILDS = """
import accel_core
class Simulated(accel_core.Accelerator):
    built = 0
    def __init__(self, backend):
        super().__init__(backend)
        Simulated.built += 1
    def device_count(self):
        return {count}
"""


def built():
    return sys.modules["card_device"].Simulated.built


@pytest.mark.parametrize("pin", ["", "card"])
def test_the_accelerator_that_the_probe_built_is_the_one_that_is_kept(
    mlu, monkeypatch, pin
):
    mlu.module("card_device", COUNTS_BUILDS.format(count=1))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    found = accel_core.get_accelerator()
    assert accel_core.accelerator("card") is found
    assert accel_core.accelerator("card@accel-card") is found
    assert built() == 1


def test_a_pin_that_is_honoured_without_a_device_builds_once(mlu, monkeypatch):
    mlu.module("card_device", COUNTS_BUILDS.format(count=0))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("DS_ACCELERATOR", "card")
    assert accel_core.get_accelerator().name == "card"
    assert built() == 1


def test_an_isolated_choice_builds_once_in_this_process(mlu, monkeypatch):
    """Its probe builds another in a child process."""
    mlu.module("card_device", COUNTS_BUILDS.format(count=1))
    mlu.backend("card", 900, accelerator="card_device:Simulated")
    monkeypatch.setenv("ACCEL_PROBE", "isolated")
    assert accel_core.get_accelerator().name == "card"
    assert built() == 1


def test_accel_create_is_called_once(mlu):
    body = "accel_core.times = getattr(accel_core, 'times', 0) + 1"
    mlu.backend("card", 900, extra=hook("accel_create", "backend, others", body))
    try:
        assert accel_core.get_accelerator().name == "card"
        assert accel_core.times == 1
    finally:
        del accel_core.times


# ---------------------------------------------------------------------------- notebooks
# What a notebook shows of the records: the hooks that IPython calls, which is not needed for it.


class Printer:
    """IPython's, as far as it is used."""

    def __init__(self):
        self.said = ""

    def text(self, said):
        self.said += said


def pretty(shown):
    printer = Printer()
    shown._repr_pretty_(printer, False)
    return printer.said


def test_a_memory_summary_is_shown_as_it_is_printed():
    pytest.importorskip("torch")
    summary = accel_core.accelerator("cpu").memory_summary()
    assert isinstance(summary, str)
    assert pretty(summary) == summary
