"""What a test installs is seen as what is installed for good, and nothing of it is left."""

import os
import sys
import threading
import types
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import plugins
from accel_tests.processes import in_threads

import accel_core
from accel_core import (
    Accelerator,
    Backend,
    BackendConflictError,
    InvalidBackendError,
    hookimpl,
)
from accel_core.errors import AccelError, InvalidArgumentError
from accel_core.hardware import vendors
from accel_core.settings import read
from accel_core.verdict import How
from accel_testing import Fake, FakeAccelerator, Fault, environment, fake, installed
from accel_testing.plugins import _installed_by_key

ACME = Backend(name="acme", priority=940, device_type="acme", vendor_import="json")


class Plain(Accelerator):
    """An accelerator of two devices, as a plugin has one."""

    def device_count(self):
        return 2

    def current_device(self):
        return 0


def state():
    """All of the process that an installation changes."""
    current = accel_core.current
    return {
        "path": list(sys.path),
        "environ": {
            name: value
            for name, value in os.environ.items()
            if name != "PYTEST_CURRENT_TEST"
        },
        "modules": {
            name: module for name, module in sys.modules.items() if "acme" in name
        },
        "chosen": (
            current._current_without_overrides,
            current._chosen,
            current._selection,
            current._warned,
        ),
        "built": (dict(current._built), dict(current._by_pin)),
        "kept": dict(_installed_by_key),
        "folders": sorted(
            Path(__import__("tempfile").gettempdir()).glob("accel-testing-*")
        ),
    }


@contextmanager
def unchanged():
    """Whatever is installed within: the process is as it was after it."""
    accel_core.discover()  # what that imports stays
    before = state()
    yield
    assert state() == before


@pytest.fixture(autouse=True)
def _of_its_own(torch_world, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tempfile.tempdir", str(tmp_path)
    )  # where nobody else makes folders


def names(**settings):
    """What may be chosen, in the order of rank."""
    found = accel_core.discover(**settings)
    return [each.name for each in found if read().permits(each.name, each.distribution)]


@pytest.fixture
def acme(mlu):
    """A fake of two devices, installed as accel-acme 1.2 beside mlu."""
    block = installed(fake("acme", devices=2), distribution="accel-acme", version="1.2")
    with block as installation:
        yield installation


def test_after_the_block_the_earlier_choice_is_back(mlu):
    before = accel_core.get_accelerator()
    assert before.name == "mlu"
    with unchanged(), installed(fake("acme")):
        assert accel_core.get_accelerator().name == "acme"
    assert accel_core.get_accelerator() is before
    assert "acme" not in names()


def test_the_block_gives_what_is_installed(acme):
    assert acme.names == ("acme",)
    assert acme.distribution == "accel-acme"
    assert acme.version == "1.2"


def test_it_is_discovered_as_any_other(acme):
    assert names() == ["acme", "mlu", "generic", "cpu"]
    found = accel_core.discover()[0]
    assert found.backend is not None
    assert str(found.provenance) == "accel-acme 1.2"
    assert "fake" in found.backend.description


def test_it_is_chosen_by_rank(acme):
    assert isinstance(accel_core.get_accelerator(), FakeAccelerator)
    assert accel_core.selection().how is How.RANKED
    [verdict] = [v for v in accel_core.selection().verdicts if v.name == "acme"]
    assert verdict.devices == 2


def test_its_names_give_the_chosen_object(acme):
    chosen = accel_core.get_accelerator()
    assert accel_core.accelerator("acme") is chosen
    assert accel_core.accelerator("acme@accel-acme") is chosen


def test_what_was_there_before_can_still_be_named(acme):
    assert accel_core.accelerator("mlu").name == "mlu"


@pytest.mark.parametrize(
    ("pin", "name", "how"),
    [
        ("acme@accel-acme", "acme", How.PINNED),
        ("mlu", "mlu", How.PINNED),
        ("npu,acme", "acme", How.PREFERRED),
    ],
)
def test_a_pin_within_the_block_decides(acme, monkeypatch, pin, name, how):
    monkeypatch.setenv("DS_ACCELERATOR", pin)
    assert accel_core.selection().how is how
    assert accel_core.selection().name == name


def test_a_block_of_the_policy_holds_for_it_too(acme, monkeypatch):
    monkeypatch.setenv("ACCEL_BLOCK", "@accel-acme")
    assert accel_core.get_accelerator().name == "mlu"
    [verdict] = [v for v in accel_core.selection().verdicts if v.name == "acme"]
    assert verdict.status == "blocked"


@unchanged()
def test_as_a_decorator_it_is_installed_anew_for_each_call():
    @installed(fake("acme"))
    def version(fails=False):
        if fails:
            raise KeyError("of the test's own")
        return accel_core.selection().provenance.version

    first, second = version(), version()
    assert first.startswith("0+fake.")
    assert first != second
    with pytest.raises(KeyError, match="of the test's own"):
        version(fails=True)


class Suite: ...


async def coroutine_function(): ...


def generator_function():
    yield 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (Suite, "a class"),
        (coroutine_function, "an async function"),
        (generator_function, "a generator"),
    ],
)
def test_around_what_goes_on_after_the_call_it_is_no_decorator(function, kind):
    """Their bodies would run when the block is over, and find the machine's own accelerator."""
    message = f"{function.__name__} is {kind}.*Write `with"
    with pytest.raises(InvalidArgumentError, match=message):
        installed(fake("acme"))(function)


@unchanged()
def test_of_nested_ones_both_are_there_and_the_outer_choice_comes_back():
    with installed(fake("acme", priority=500)):
        outer = accel_core.get_accelerator()
        with installed(fake("acme.two"), variables={"DS_ACCELERATOR": "acme.two"}):
            assert names()[:2] == ["acme.two", "acme"]
            assert accel_core.get_accelerator().name == "acme.two"
        assert accel_core.get_accelerator() is outer


@unchanged()
def test_a_variable_of_none_is_unset_within_the_block():
    with installed(fake("acme"), variables={"HOME": None}):
        assert "HOME" not in os.environ


@unchanged()
def test_an_isolated_one_may_have_the_name_of_the_outer_one():
    with installed(fake("acme", priority=500)):
        outer = accel_core.get_accelerator()
        loaded = state()["modules"]
        with installed(fake("acme", devices=3), isolated=True):
            inner = accel_core.get_accelerator()
            assert inner is not outer
            assert inner.device_count() == 3
        assert accel_core.get_accelerator() is outer
        assert state()["modules"] == loaded


@unchanged()
def test_within_an_isolated_one_another_is_seen_beside_it():
    with (
        installed(fake("outermost")),
        installed(fake("acme"), isolated=True),
        installed(fake("more")),
    ):
        assert names() == ["acme", "more", "cpu"]


@unchanged()
def test_threads_may_end_in_any_order():
    """What one has put over the process stays while the other, which began first, takes its own away."""
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    failed = []

    def first():
        with installed(
            fake("acme"), isolated=True, variables={"OF_BOTH": "first", "OF_FIRST": "1"}
        ):
            accel_core.get_accelerator()
            first_is_in.set()
            second_is_in.wait(20)
        first_is_out.set()

    def second():
        first_is_in.wait(20)
        with installed(fake("acme2"), variables={"OF_BOTH": "second"}):
            try:
                assert accel_core.get_accelerator().name in ("acme", "acme2")
                second_is_in.set()
                first_is_out.wait(20)
                assert os.environ["OF_BOTH"] == "second"
                assert "OF_FIRST" not in os.environ
                assert "acme" not in names()
                assert accel_core.get_accelerator().name == "acme2"
            except BaseException as error:
                failed.append(error)

    with in_threads(first, second):
        pass
    assert failed == []
    assert "OF_BOTH" not in os.environ


@pytest.fixture
def users_machine(mlu, monkeypatch):
    """The user has mlu, pins it, blocks acme, and the machine has a GPU without its plugin."""
    seen = vendors.Vendor(
        "NVIDIA GPU", "cuda", evidence=vendors.Evidence(("/dev/nvidia0",), ())
    )
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (seen,))
    monkeypatch.setenv("DS_ACCELERATOR", "mlu")
    monkeypatch.setenv("ACCEL_BLOCK", "acme")


@pytest.fixture
def isolated_acme(users_machine):
    """A fake without devices, isolated from the user's machine."""
    with unchanged(), installed(fake("acme", devices=0), isolated=True):
        yield


def test_isolated_the_users_plugins_are_not_seen(isolated_acme):
    assert names() == ["acme", "cpu"]
    with pytest.raises(AccelError, match="mlu"):
        accel_core.accelerator("mlu")


def test_isolated_the_users_pin_does_not_decide(isolated_acme):
    with pytest.warns(accel_core.AcceleratorFallbackWarning, match="acme"):
        assert accel_core.get_accelerator().name == "cpu"


def test_isolated_the_users_variables_are_unset(isolated_acme):
    ours = [name for name in os.environ if name.startswith(("ACCEL_", "DS_"))]
    assert ours == ["ACCEL_ALLOW"]


def test_isolated_the_machines_hardware_is_not_warned_of(isolated_acme, recwarn):
    assert accel_core.get_accelerator().name == "cpu"
    assert accel_core.selection().missing_plugins == ()
    assert [str(w.message) for w in recwarn if "nvidia" in str(w.message).lower()] == []


def test_after_an_isolated_block_the_users_plugins_are_back(users_machine):
    with installed(fake("acme"), isolated=True):
        pass
    assert names() == ["mlu", "generic", "cpu"]


def test_an_isolated_one_may_have_the_name_of_a_plugin_of_the_users(users_machine):
    with installed(fake("mlu", devices=7), isolated=True):
        assert accel_core.get_accelerator().device_count() == 7


@unchanged()
def test_a_backend_takes_an_accelerators_class():
    with installed(ACME, accelerator=Plain) as there:
        chosen = accel_core.get_accelerator()
        assert type(chosen) is Plain
        assert chosen.backend.distribution == "accel-testing-acme"
        assert there.folder.is_dir()


@unchanged()
def test_a_backend_takes_an_accelerator_that_was_made_before():
    made = Plain(ACME)
    with installed(ACME, accelerator=made):
        assert accel_core.get_accelerator() is made


@unchanged()
def test_a_backend_may_name_its_accelerators_class_itself():
    declared = replace(ACME, accelerator=f"{Plain.__module__}:Plain")
    assert sys.modules[Plain.__module__].Plain is Plain
    with installed(declared):
        assert type(accel_core.get_accelerator()) is Plain


@unchanged()
def test_a_plugin_may_be_an_object():
    class Object:
        @hookimpl
        def accel_backends(self):
            return [ACME, replace(ACME, name="acme.slow", priority=3)]

        @hookimpl
        def accel_create(self, backend):
            return Plain(backend)

    with installed(Object()) as there:
        assert there.names == ("acme", "acme.slow")
        assert type(accel_core.accelerator("acme.slow")) is Plain
        assert type(accel_core.get_accelerator()) is Plain


@unchanged()
def test_a_plugin_may_be_a_module(torch_world):
    torch_world.module("acme_plugin", plugins.declaring(plugins.arguments("acme")))
    module = __import__("acme_plugin")
    try:
        with installed(module):
            found = accel_core.discover()[0]
            assert found.backend is not None
            assert found.provenance.load() is module
            assert found.provenance.value == "acme_plugin"
    finally:
        del sys.modules["acme_plugin"]


@unchanged()
def test_one_may_stand_in_for_what_is_installed(mlu):
    with installed(fake("mlu", devices=5), distribution="Accel_MLU"):
        assert names() == ["mlu", "generic", "cpu"]
        assert accel_core.get_accelerator().device_count() == 5


CONFLICT, ARGUMENT, BACKEND = (
    BackendConflictError,
    InvalidArgumentError,
    InvalidBackendError,
)
#: What is made and entered, the error, and parts of its message.
BAD = [
    (lambda: installed(fake("mlu")), CONFLICT, ["'mlu'", "accel-mlu", "isolated=True"]),
    (lambda: installed(fake("cpu"), isolated=True), CONFLICT, ["'cpu'", "accel-core", "Choose another name"]),
    (lambda: installed(fake("Acme!")), BACKEND, ["'Acme!'", "expected e.g. 'npu'"]),
    (lambda: installed(types), ARGUMENT, ["module", "hookimpl"]),
    (lambda: installed(Plain), ARGUMENT, ["accelerator=..."]),
    (lambda: installed(ACME, accelerator=Plain(replace(ACME, name="b"))), BACKEND,
     ["'acme'", "'b'", "Plain"]),
    (lambda: installed(fake("acme"), distribution="../x"), BACKEND, ["'../x'", "'accel-acme'"]),
    (lambda: installed(fake("acme"), version="1/0"), BACKEND, ["'1/0'", "'1.0'"]),
    (lambda: installed(fake("acme"), variables={"KEPT": "1", "A=B": "1"}), ARGUMENT,
     ["'A=B'", "without '='"]),
    (lambda: fake("acme", devices="2"), BACKEND, ["'2'", "devices=2"]),
    (lambda: fake("acme", "hangs"), ARGUMENT, ["'hangs'", "Fault("]),
    (lambda: Fault("synchronise", exits=1), BACKEND,
     ["'synchronise'", "unknown place", "Did you mean 'synchronize'?"]),
    (lambda: Fault("warp drive", hangs=True), BACKEND, ["Write one of import"]),
    (lambda: Fault("import", exits=1, hangs=True), BACKEND, ["exits and hangs"]),
    (lambda: Fault("import", hangs=True, call=0), BACKEND, ["call=0", "at least 1"]),
    (lambda: Fault("import", raises=3), BACKEND, ["raises=3", "RuntimeError"]),
    (lambda: Fault("import", sleeps=-1), BACKEND, ["sleeps=-1", "seconds"]),
    (lambda: Fault("import", floods=1.5), BACKEND, ["floods=1.5"]),
    (lambda: Fault("import", runs="chdir"), BACKEND, ["runs='chdir'", "a function"]),
    (lambda: Fault("import", hangs=3), BACKEND, ["hangs=3", "True"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "parts"), BAD)
@unchanged()
def test_what_is_wrong_is_refused_and_leaves_nothing(mlu, make, kind, parts):
    with pytest.raises(kind) as raised:  # noqa: PT012 - some raise when they are made, some when entered
        made = make()
        assert not isinstance(made, Fake | Fault)
        made.__enter__()
    assert isinstance(raised.value, AccelError)
    for words in parts:
        assert words in str(raised.value)


@pytest.fixture
def users_variables(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    monkeypatch.setenv("ACCEL_STRICT", "1")
    monkeypatch.setenv("KEPT", "yes")


def test_a_child_finds_what_is_installed_first_on_its_path():
    with installed(fake("acme")) as there:
        folders = environment()["PYTHONPATH"].split(os.pathsep)
    assert folders[0] == str(there.folder)


def test_a_child_gets_the_variables_of_the_block_and_the_callers():
    with unchanged(), installed(fake("acme"), variables={"ACCEL_PROBE": "isolated"}):
        variables = environment({"MORE": "1"})
    assert variables["ACCEL_PROBE"] == "isolated"
    assert variables["MORE"] == "1"
    assert "ACCEL_PROBE" not in environment()


def test_a_child_does_not_get_a_variable_that_the_caller_unsets(users_variables):
    assert environment()["KEPT"] == "yes"
    assert "KEPT" not in environment({"KEPT": None})


def test_a_child_does_not_get_the_users_settings_of_ours(users_variables):
    with installed(fake("acme")):
        variables = environment()
    assert "DS_ACCELERATOR" not in variables
    assert "ACCEL_STRICT" not in variables
