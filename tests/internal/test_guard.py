"""What a plugin or a vendor's package changes in the user's process is restored."""

import logging
import os
import sys
import threading
import types
import warnings

import pytest

from accel_core.sandbox import guard


@pytest.fixture
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.cuda = types.ModuleType("torch.cuda")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture(autouse=True)
def _user(monkeypatch):
    """Set the state that the tests change."""
    monkeypatch.setenv("SPAM", "eggs")
    monkeypatch.setenv("GONE", "soon")
    with warnings.catch_warnings():
        yield


def state():
    return {
        "environment": dict(os.environ),
        "cuda": sys.modules["torch"].cuda,
        "warnings": [*warnings.filters],
    }


def disturb():
    os.environ["SPAM"] = "ham"
    os.environ["MORE"] = "1"
    del os.environ["GONE"]
    sys.modules["torch"].cuda = None
    warnings.filterwarnings("ignore", "of the vendor's")


def test_the_state_is_restored_and_the_log_names_the_package(torch, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    before = state()
    with guard.preserved_state("accel-faulty 1.2"):
        disturb()
    assert state() == before
    assert "accel-faulty 1.2 changed environment variables: restored" in caplog.text
    assert "accel-faulty 1.2 changed torch.cuda: restored" in caplog.text


def test_the_state_is_restored_after_an_error(torch):
    before = state()

    def fail():
        with guard.preserved_state("accel-faulty 1.2"):
            disturb()
            raise OSError("too late")

    with pytest.raises(OSError, match="too late"):
        fail()
    assert state() == before


def test_code_that_changes_nothing_is_not_logged(torch, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    with guard.preserved_state("accel-acme 1.0"):
        pass
    assert caplog.text == ""


def test_cuda_is_restored_if_torch_is_imported_in_the_block(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    cuda = types.ModuleType("torch.cuda")
    with guard.preserved_state("accel-faulty 1.2"):
        monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        sys.modules["torch"].cuda = None
    assert sys.modules["torch"].cuda is cuda


def test_the_chosen_package_keeps_its_variables_and_its_cuda(torch):
    before = state()
    with guard.preserved_state("accel-acme 1.0") as preserved:
        disturb()
        preserved.keep()
    assert os.environ["SPAM"] == "ham"
    assert os.environ["MORE"] == "1"
    assert "GONE" not in os.environ
    assert torch.cuda is None
    assert warnings.filters == before["warnings"]


def test_the_environment_stays_while_other_threads_run():
    thread = threading.Timer(0.2, int)
    thread.start()
    with guard.preserved_state("accel-acme 1.0"):
        os.environ["SPAM"] = "of the thread"
    thread.join()
    assert os.environ["SPAM"] == "of the thread"


class Deadline(BaseException):
    """As pytest-timeout and others raise it."""


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(3), Deadline(), OSError(5), StopIteration()],
    ids=repr,
)
def test_exceptions_pass(error):
    with (
        pytest.raises(type(error)) as raised,
        guard.preserved_state("accel-faulty 1.2"),
    ):
        raise error
    assert raised.value is error


def test_a_panic_of_a_rust_extension_is_an_error_like_others():
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    message = "^accel-faulty 1.2 raised PanicException$"
    with (
        pytest.raises(RuntimeError, match=message) as raised,
        guard.preserved_state("accel-faulty 1.2"),
    ):
        raise panic("index out of bounds")
    assert isinstance(raised.value.__cause__, panic)
