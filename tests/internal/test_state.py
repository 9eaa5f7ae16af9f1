"""What a plugin or a vendor's package leaves changed in the user's process is put back."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from accel_core._support.guarded import preserved

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="handlers of POSIX")


@pytest.fixture
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.cuda = types.ModuleType("torch.cuda")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture(autouse=True)
def _user(monkeypatch, tmp_path):
    """The state that the tests change; what a failing test leaves must not harm the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPAM", "eggs")
    monkeypatch.setenv("GONE", "soon")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def state():
    torch = sys.modules["torch"]
    return {
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "path": [*sys.path],
        "finders": [*sys.meta_path],
        "limit": sys.getrecursionlimit(),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "handler": signal.getsignal(signal.SIGTERM),
        "torch": torch,
        "cuda": torch.cuda,
        "objects": [id(os.environ), id(sys.path), id(sys.meta_path)],
    }


def disturb():
    os.chdir("/")
    os.environ["SPAM"] = "ham"
    os.environ["MORE"] = "1"
    del os.environ["GONE"]
    sys.path[:] = ["/nowhere"]
    sys.meta_path.insert(0, None)
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.modules["torch"].cuda = None
    sys.modules["torch"] = types.ModuleType("torch")


@pytest.mark.parametrize("raises", [False, True])
def test_everything_is_put_back_and_the_log_says_whose_it_was(torch, raises, caplog):
    caplog.set_level(logging.INFO, "accel_core")
    before = state()
    try:
        with preserved("accel-faulty 1.2") as kept:
            kept.stays = raises  # what failed does not stay, whatever was said before
            disturb()
            if raises:
                raise OSError("too late")
    except OSError:
        pass
    assert state() == before
    parts = "the working directory, the environment, sys.path, sys.meta_path, the recursion limit, "
    more = "the interval timer, signal handlers, "
    assert f"accel-faulty 1.2 changed {parts}{more}sys.modules['torch'], torch.cuda: put back" in caplog.text


def test_objects_that_were_replaced_are_the_old_ones_again(torch):
    before = state()
    with preserved("accel-faulty 1.2"):
        os.environ = {**os.environ}  # noqa: B003
        sys.path, sys.meta_path = ["/nowhere"], []
    assert state() == before


def test_the_vendor_that_is_chosen_keeps_its_variables_its_paths_and_its_cuda(torch):
    before = state()
    with preserved("accel-acme 1.0") as kept:
        os.environ["MORE"] = "1"
        sys.path.append("/opt/vendor")
        torch.cuda = cuda = types.ModuleType("torch.cuda of the vendor")
        os.chdir("/")
        kept.stays = True
    after = state()
    assert after["environment"] == {**before["environment"], "MORE": "1"}
    assert after["path"] == [*before["path"], "/opt/vendor"]
    assert after["cuda"] is cuda
    assert after["directory"] == before["directory"]


def test_not_even_the_chosen_vendor_takes_paths_away(torch):
    before = state()
    with preserved("accel-acme 1.0") as kept:
        sys.path[:] = ["/opt/vendor"]
        sys.meta_path[:] = [None]
        kept.stays = True
    assert sys.path == ["/opt/vendor", *before["path"]]
    assert sys.meta_path == before["finders"]


def test_a_finder_that_was_appended_stays_and_still_finds(tmp_path):
    """As that of `six`, whose modules are imported through it later on."""

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "made_up_by_a_finder":
                return importlib.machinery.ModuleSpec(name, importlib.machinery.BuiltinImporter)
            return None

    finder = Finder()
    with preserved("accel-acme 1.0"):
        sys.meta_path.append(finder)
        sys.meta_path.append(None)
    assert sys.meta_path[-1] is finder


def test_while_other_threads_run_their_variables_stay():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with preserved("accel-acme 1.0"):
            os.environ["SPAM"] = "a thread's own"
        assert os.environ["SPAM"] == "a thread's own"
    finally:
        done.set()
        thread.join()


def test_a_directory_that_is_gone_and_a_thread_that_may_set_no_handler_are_no_fault(tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    failures = []

    def elsewhere():
        try:
            with preserved("accel-acme 1.0"):
                (tmp_path / "gone").rmdir()
                os.chdir("/")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not failures
    with preserved("accel-acme 1.0"):  # nobody knows where this is
        pass


class Panic(BaseException): ...


@pytest.mark.parametrize("error", [Panic("index out of bounds"), GeneratorExit()], ids=repr)
def test_what_no_caller_expects_becomes_an_exception(error):
    with (
        pytest.raises(RuntimeError, match=r"^accel-faulty 1\.2 raised ") as raised,
        preserved("accel-faulty 1.2"),
    ):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), OSError(5), StopIteration()], ids=repr)
def test_what_callers_expect_passes(error):
    with pytest.raises(type(error)) as raised, preserved("accel-faulty 1.2"):
        raise error
    assert raised.value is error


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers")
def test_a_timer_that_rang_while_the_plugin_ran_stays_silent():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with preserved("accel-faulty 1.2"):
            until = time.monotonic() + 10
            while not rung and time.monotonic() < until:
                time.sleep(0.01)
        assert (rung, signal.getitimer(signal.ITIMER_REAL)) == ([1], (0, 0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers")
def test_a_timer_that_the_plugin_stopped_runs_on_with_what_is_left():
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        with preserved("accel-faulty 1.2"):
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0.2)
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert (900 < left <= 999.8, interval) == (True, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers")
def test_a_timer_of_the_programs_comes_back():
    try:
        for change in ((0,), (5000, 1)):
            signal.setitimer(signal.ITIMER_REAL, 1000, 7)
            with preserved("accel-faulty 1.2"):
                signal.setitimer(signal.ITIMER_REAL, *change)
            left, interval = signal.getitimer(signal.ITIMER_REAL)
            assert (900 < left <= 1000, interval) == (True, 7)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
