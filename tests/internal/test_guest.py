"""What a plugin leaves changed in the user's process is put back."""

from __future__ import annotations

import locale
import os
import signal
import sys
import threading
import types
from pathlib import Path

import pytest

from accel_core._support.guest import Guest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a umask, handlers and locales of POSIX")


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
    umask, handler, numeric = (
        os.umask(0o027),
        signal.getsignal(signal.SIGTERM),
        locale.setlocale(locale.LC_ALL),
    )
    yield
    os.umask(umask)
    signal.signal(signal.SIGTERM, handler)
    locale.setlocale(locale.LC_ALL, numeric)
    vars(os.environ).pop("get", None)


def state():
    umask = os.umask(0o077)
    os.umask(umask)
    torch = sys.modules["torch"]
    return {
        "directory": str(Path.cwd()),
        "umask": umask,
        "environment": dict(os.environ),
        "locale": locale.setlocale(locale.LC_ALL),
        "handler": signal.getsignal(signal.SIGTERM),
        "torch": torch,
        "cuda": torch.cuda,
        "get": getattr(os.environ.get, "__func__", None),
        "environ": os.environ,
    }


def disturb():
    os.chdir("/")
    os.umask(0)
    os.environ["SPAM"] = "ham"
    os.environ["MORE"] = "1"
    del os.environ["GONE"]
    locale.setlocale(locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8")
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.modules["torch"].cuda = None
    sys.modules["torch"] = types.ModuleType("torch")
    os.environ.get = lambda *_: "patched"


@pytest.mark.parametrize("raises", [False, True])
def test_everything_is_put_back_and_the_log_says_whose_it_was(torch, raises, caplog):
    caplog.set_level("INFO", "accel_core")
    before = state()
    try:
        with Guest("accel-faulty 1.2") as guest:
            guest.stays = raises  # who failed does not stay, whatever was said before
            disturb()
            if raises:
                raise OSError("too late")
    except OSError:
        pass
    assert state() == before
    assert "accel-faulty 1.2 changed the working directory, the umask" in caplog.text


def test_the_vendor_that_is_chosen_keeps_its_variables_and_its_cuda(torch):
    before = state()
    with Guest() as guest:
        disturb()
        cuda = torch.cuda
        guest.stays = True
    after = state()
    assert (after.pop("cuda"), before.pop("cuda") is None) == (cuda, False)
    assert after.pop("environment") == {
        **{k: v for k, v in before.pop("environment").items() if k != "GONE"},
        "SPAM": "ham",
        "MORE": "1",
    }
    assert after == before


def test_of_one_that_is_watched_everything_stays():
    with Guest(watched=True):
        os.chdir("/")
        os.environ["SPAM"] = "ham"
    assert (str(Path.cwd()), os.environ["SPAM"]) == ("/", "ham")


def test_one_guest_serves_several_and_each_finds_the_users_state(torch):
    before, seen = state(), []
    guest = Guest()
    for _ in range(3):
        with guest:
            seen.append(state())
            disturb()
    assert seen == [before] * 3


def test_while_other_threads_run_their_variables_stay():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with Guest():
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
            with Guest():
                (tmp_path / "gone").rmdir()
                os.chdir("/")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not failures
    with Guest():  # nobody knows where this is
        pass


class Panic(BaseException): ...


@pytest.mark.parametrize("error", [Panic("index out of bounds"), GeneratorExit()], ids=repr)
def test_what_no_caller_expects_becomes_an_exception(error):
    with (
        pytest.raises(RuntimeError, match=r"^accel-faulty 1\.2 raised ") as raised,
        Guest("accel-faulty 1.2"),
    ):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), OSError(5)], ids=repr)
def test_what_callers_expect_passes(error):
    with pytest.raises(type(error)) as raised, Guest():
        raise error
    assert raised.value is error
