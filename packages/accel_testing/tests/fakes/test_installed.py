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
        "chosen": (current._fast, current._chosen, current._selection, current._warned),
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


def test_it_is_found_judged_and_chosen_as_any_other(mlu, monkeypatch):
    before = accel_core.get_accelerator()
    assert before.name == "mlu"
    there_is = installed(
        fake("acme", devices=2), distribution="accel-acme", version="1.2"
    )
    with unchanged(), there_is as there:
        assert (there.names, there.distribution, there.version) == (
            ("acme",),
            "accel-acme",
            "1.2",
        )
        assert names() == ["acme", "mlu", "generic", "cpu"]
        found = accel_core.discover()[0]
        assert found.backend is not None
        assert str(found.provenance) == "accel-acme 1.2"
        assert "fake" in found.backend.description
        chosen = accel_core.get_accelerator()
        assert isinstance(chosen, FakeAccelerator)
        assert (
            accel_core.accelerator("acme")
            is accel_core.accelerator("acme@accel-acme")
            is chosen
        )
        assert accel_core.selection().how is How.RANKED
        assert [
            v.devices for v in accel_core.selection().verdicts if v.name == "acme"
        ] == [2]
        assert accel_core.accelerator("mlu").name == "mlu"
        for pin, how in (
            ("acme@accel-acme", How.PINNED),
            ("mlu", How.PINNED),
            ("npu,acme", How.PREFERRED),
        ):
            accel_core.set_accelerator(None)
            monkeypatch.setenv("DS_ACCELERATOR", pin)
            assert accel_core.selection().how is how
            assert accel_core.selection().name in pin
        monkeypatch.delenv("DS_ACCELERATOR")
        accel_core.set_accelerator(None)
        monkeypatch.setenv("ACCEL_BLOCK", "@accel-acme")
        assert accel_core.get_accelerator().name == "mlu"
        assert (
            next(v.status for v in accel_core.selection().verdicts if v.name == "acme")
            == "blocked"
        )
        monkeypatch.delenv("ACCEL_BLOCK")
    assert accel_core.get_accelerator() is before
    assert "acme" not in names()


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


def test_around_what_goes_on_it_is_no_decorator():
    """Their bodies would run when the block is over, and find the machine's own accelerator."""

    class Suite: ...

    async def later(): ...

    def generator():
        yield 1

    for function, kind in (
        (Suite, "a class"),
        (later, "an async function"),
        (generator, "a generator"),
    ):
        with pytest.raises(
            InvalidArgumentError,
            match=f"{function.__name__}: it is {kind}.*Write `with",
        ):
            installed(fake("acme"))(function)


@unchanged()
def test_nested_ones_are_all_there_and_each_choice_comes_back():
    with installed(fake("acme", priority=500)):
        outer = accel_core.get_accelerator()
        with installed(
            fake("acme.two"), variables={"DS_ACCELERATOR": "acme.two", "HOME": None}
        ):
            assert names()[:2] == ["acme.two", "acme"]
            assert "HOME" not in os.environ
            assert accel_core.get_accelerator().name == "acme.two"
        assert accel_core.get_accelerator() is outer
        loaded = state()["modules"]
        with installed(
            fake("acme", devices=3), isolated=True
        ):  # of the same name, which is not seen here
            inner = accel_core.get_accelerator()
            assert inner is not outer
            assert inner.device_count() == 3
            with installed(fake("more")):  # within what is isolated
                assert names() == ["acme", "more", "cpu"]
        assert accel_core.get_accelerator() is outer
        assert state()["modules"] == loaded


@unchanged()
def test_threads_may_end_in_any_order():
    """What one has put over the process stays while the other, which began first, takes its own away."""
    turns = [threading.Event() for _ in range(3)]
    failed = []

    def first():
        with installed(
            fake("acme"), isolated=True, variables={"OF_BOTH": "first", "OF_FIRST": "1"}
        ):
            accel_core.get_accelerator()
            turns[0].set()
            turns[1].wait(20)
        turns[2].set()

    def second():
        turns[0].wait(20)
        with installed(fake("acme2"), variables={"OF_BOTH": "second"}):
            try:
                assert accel_core.get_accelerator().name in ("acme", "acme2")
                turns[1].set()
                turns[2].wait(20)
                assert (os.environ["OF_BOTH"], "OF_FIRST" in os.environ) == (
                    "second",
                    False,
                )
                assert "acme" not in names()
                assert accel_core.get_accelerator().name == "acme2"
            except BaseException as error:
                failed.append(error)

    with in_threads(first, second):
        pass
    assert (failed, "OF_BOTH" in os.environ) == ([], False)


def test_isolated_nothing_of_the_users_decides(mlu, monkeypatch, recwarn):
    """Neither plugins, nor variables, nor the machine's hardware."""
    seen = vendors.Vendor(
        "NVIDIA GPU", "cuda", evidence=vendors.Evidence(("/dev/nvidia0",), ())
    )
    monkeypatch.setattr(vendors, "known_hardware", lambda *root: (seen,))
    monkeypatch.setenv("DS_ACCELERATOR", "mlu")
    monkeypatch.setenv("ACCEL_BLOCK", "acme")
    with unchanged(), installed(fake("acme", devices=0), isolated=True):
        assert names() == ["acme", "cpu"]
        assert accel_core.get_accelerator().name == "cpu"
        record = accel_core.selection()
        assert record.missing_plugins == ()
        assert {name for name in os.environ if name.startswith(("ACCEL_", "DS_"))} == {
            "ACCEL_ALLOW"
        }
        with pytest.raises(AccelError, match="mlu"):
            accel_core.accelerator("mlu")
    assert names() == ["mlu", "generic", "cpu"]
    with installed(
        fake("mlu", devices=7), isolated=True
    ):  # the name of what is not seen
        assert accel_core.get_accelerator().device_count() == 7
    assert [str(w.message) for w in recwarn if "nvidia" in str(w.message).lower()] == []


@unchanged()
def test_a_backend_with_an_accelerator_of_the_tests_own():
    with installed(ACME, accelerator=Plain) as there:
        chosen = accel_core.get_accelerator()
        assert (type(chosen), chosen.backend.distribution) == (
            Plain,
            "accel-testing-acme",
        )
        assert there.folder.is_dir()
    with installed(ACME, accelerator=chosen):
        assert accel_core.get_accelerator() is chosen
    declared = replace(ACME, accelerator=f"{Plain.__module__}:Plain")
    assert sys.modules[Plain.__module__].Plain is Plain
    with installed(declared):
        assert type(accel_core.get_accelerator()) is Plain


@unchanged()
def test_a_plugin_of_ones_own_is_a_module_or_an_object(torch_world):
    class Object:
        @hookimpl
        def accel_backends(self):
            return [ACME, replace(ACME, name="acme.slow", priority=3)]

        @hookimpl
        def accel_create(self, backend):
            return Plain(backend)

    with installed(Object()) as there:
        assert there.names == ("acme", "acme.slow")
        assert (
            type(accel_core.accelerator("acme.slow"))
            is type(accel_core.get_accelerator())
            is Plain
        )
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
#: What is made and entered, the error, and what it says, in parts.
BAD = [
    (lambda: installed(fake("mlu")), CONFLICT, "'mlu'|accel-mlu|isolated=True"),
    (lambda: installed(fake("cpu"), isolated=True), CONFLICT, "'cpu'|accel-core|Choose another name"),
    (lambda: installed(fake("Acme!")), BACKEND, "'Acme!'|expected e.g. 'npu'"),
    (lambda: installed(types), ARGUMENT, "module|hookimpl"),
    (lambda: installed(Plain), ARGUMENT, "accelerator=..."),
    (lambda: installed(ACME, accelerator=Plain(replace(ACME, name="b"))), BACKEND, "'acme'|'b'|Plain"),
    (lambda: installed(fake("acme"), distribution="../x"), BACKEND, "'../x'|'accel-acme'"),
    (lambda: installed(fake("acme"), version="1/0"), BACKEND, "'1/0'|'1.0'"),
    (lambda: installed(fake("acme"), variables={"KEPT": "1", "A=B": "1"}), ARGUMENT, "'A=B'|without '='"),
    (lambda: fake("acme", devices="2"), BACKEND, "'2'|devices=2"),
    (lambda: fake("acme", "hangs"), ARGUMENT, "'hangs'|Fault("),
    (lambda: Fault("synchronise", exits=1), BACKEND,
     "'synchronise'|no such place|Did you mean 'synchronize'?"),
    (lambda: Fault("warp drive", hangs=True), BACKEND, "Write one of import"),
    (lambda: Fault("import", exits=1, hangs=True), BACKEND, "exits and hangs"),
    (lambda: Fault("import", hangs=True, call=0), BACKEND, "call=0|from 1 on"),
    (lambda: Fault("import", raises=3), BACKEND, "raises=3|RuntimeError"),
    (lambda: Fault("import", sleeps=-1), BACKEND, "sleeps=-1|seconds"),
    (lambda: Fault("import", floods=1.5), BACKEND, "floods=1.5"),
    (lambda: Fault("import", runs="chdir"), BACKEND, "runs='chdir'|a function"),
    (lambda: Fault("import", hangs=3), BACKEND, "hangs=3|True"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "said"), BAD)
@unchanged()
def test_what_is_wrong_is_told_and_leaves_nothing(mlu, make, kind, said):
    with pytest.raises(kind) as raised:  # noqa: PT012 - some raise when they are made, some when entered
        made = make()
        assert not isinstance(made, Fake | Fault)
        made.__enter__()
    assert isinstance(raised.value, AccelError)
    assert [words for words in said.split("|") if words not in str(raised.value)] == []


def test_a_variable_of_the_users_does_not_get_to_a_child(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    monkeypatch.setenv("ACCEL_STRICT", "1")
    monkeypatch.setenv("KEPT", "yes")
    with (
        unchanged(),
        installed(fake("acme"), variables={"ACCEL_PROBE": "isolated"}) as there,
    ):
        told = environment({"KEPT": None, "MORE": "1"})
        assert told["PYTHONPATH"].split(os.pathsep)[0] == str(there.folder)
        assert (told["ACCEL_PROBE"], told["MORE"], "KEPT" in told) == (
            "isolated",
            "1",
            False,
        )
        assert not {"DS_ACCELERATOR", "ACCEL_STRICT"} & set(told)
    assert "ACCEL_PROBE" not in environment()
