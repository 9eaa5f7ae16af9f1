"""What a plugin or a vendor's package changes or prints in the user's process is put back or led aside."""

import io
import logging
import os
import sys
import threading
import types
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from accel_tests import processes

from accel_core.sandbox import guard
from accel_core.sandbox.guard import quiet, restoring

# ---------------------------------------------------------------------------- state
# What a plugin or a vendor's package leaves changed in the user's process is put back.


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
    with warnings.catch_warnings():
        yield


def state():
    return {
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "path": [*sys.path],
        "cuda": sys.modules["torch"].cuda,
        "filters": [*warnings.filters],
        "objects": [id(os.environ), id(sys.path)],
    }


def disturb():
    os.chdir("/")
    os.environ["SPAM"] = "ham"
    os.environ["MORE"] = "1"
    del os.environ["GONE"]
    sys.path[:] = ["/nowhere"]
    sys.modules["torch"].cuda = None
    warnings.filterwarnings("ignore", "of the vendor's")


@pytest.mark.parametrize("raises", [False, True])
def test_everything_is_put_back_and_the_log_says_whose_it_was(torch, raises, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    before = state()
    try:
        with restoring("accel-faulty 1.2") as kept:
            kept.stays = raises  # what failed does not stay, whatever was said before
            disturb()
            if raises:
                raise OSError("too late")
    except OSError:
        pass
    assert state() == before
    parts = "the working directory, the environment, sys.path, torch.cuda, the filters of warnings"
    assert f"accel-faulty 1.2 changed {parts}: put back" in caplog.text


def test_code_that_changes_nothing_is_not_logged(torch, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    with restoring("accel-acme 1.0"):
        pass
    assert caplog.text == ""


def test_objects_that_were_replaced_are_the_old_ones_again(torch):
    before = state()
    with restoring("accel-faulty 1.2"):
        os.environ = {**os.environ}  # noqa: B003
        sys.path = ["/nowhere"]
    assert state() == before


def test_code_in_a_block_that_replaced_objects_is_not_blamed_for_them(torch, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    with restoring("accel-faulty 1.2"):
        os.environ = {**os.environ}  # noqa: B003
        sys.path = ["/nowhere"]
        with restoring("accel-acme 1.0"):
            pass
    assert "acme" not in caplog.text


def test_cuda_is_put_back_where_torch_came_in_the_block(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # another test may have imported it
    with restoring("accel-faulty 1.2"):
        monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda := types.ModuleType("torch.cuda"))
        sys.modules["torch"].cuda = None
    assert sys.modules["torch"].cuda is cuda


def test_the_vendor_that_is_chosen_keeps_its_variables_its_paths_and_its_cuda(torch):
    before = state()
    with restoring("accel-acme 1.0") as kept:
        disturb()
        sys.path[:] = ["/opt/vendor"]
        torch.cuda = cuda = types.ModuleType("torch.cuda of the vendor")
        kept.stays = True
    after = state()
    variables = {**before["environment"], "MORE": "1", "SPAM": "ham"}
    del variables["GONE"]
    assert after.pop("environment") == variables
    assert after.pop("path") == ["/opt/vendor", *before["path"]], "not even it takes paths away"
    assert after.pop("cuda") is cuda
    assert after == {part: before[part] for part in after}


def test_while_other_threads_run_their_variables_stay():
    thread = threading.Timer(0.2, int)
    thread.start()
    with restoring("accel-acme 1.0"):
        os.environ["SPAM"] = "a thread's own"
    thread.join()
    assert os.environ["SPAM"] == "a thread's own"


def test_a_directory_that_is_gone_is_no_fault(tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    with restoring("accel-acme 1.0"):
        (tmp_path / "gone").rmdir()
        os.chdir("/")
    with TemporaryDirectory() as folder:
        os.chdir(folder)
    with restoring("accel-acme 1.0"):  # nobody knows where this is
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), OSError(5), StopIteration()], ids=repr)
def test_what_callers_expect_passes(error):
    with pytest.raises(type(error)) as raised, restoring("accel-faulty 1.2"):
        raise error
    assert raised.value is error


# ---------------------------------------------------------------------------- quiet
# What plugins print goes to stderr; what anybody else prints stays where it belongs.


def test_this_threads_output_goes_to_stderr_and_stdout_comes_back(capsys):
    before = sys.stdout
    with quiet():
        print("inside")
        sys.stdout.write("written\n")
        sys.stdout.flush()
    print("outside")
    assert sys.stdout is before
    assert capsys.readouterr() == ("outside\n", "inside\nwritten\n")


def test_other_threads_keep_stdout(capsys):
    with quiet(), processes.beside(lambda: print("from another thread")):
        pass
    assert capsys.readouterr() == ("from another thread\n", "")


def test_capturing_amid_quiet_ends_in_quiet(capsys):
    with quiet():
        with quiet(printed := io.StringIO()):
            print("captured")
        print("quiet")
    assert printed.getvalue() == "captured\n"
    assert capsys.readouterr() == ("", "quiet\n")


def test_it_nests_and_ends_with_an_exception(capsys):
    before = sys.stdout

    def nested():
        with quiet():
            with quiet():
                print("inner")
            print("still quiet")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nested()
    print("outside")
    assert sys.stdout is before
    assert capsys.readouterr() == ("outside\n", "inner\nstill quiet\n")


def test_this_threads_output_is_captured_and_another_threads_is_not(capsys):
    before = sys.stdout
    with quiet(printed := io.StringIO()):
        print("mine")
        with processes.beside(lambda: print("from another thread")):
            pass
        with quiet():
            print("quiet")
        print("mine again")
    print("outside")
    assert printed.getvalue() == "mine\nmine again\n"
    assert sys.stdout is before
    assert capsys.readouterr() == ("from another thread\noutside\n", "quiet\n")


def test_two_threads_that_leave_in_the_order_they_came_lose_nothing(capsys):
    before = sys.stdout
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with quiet():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with quiet():
            second_in.set()
            first_out.wait(10)
            print("second")

    with processes.beside(first, second):
        pass
    assert sys.stdout is before
    assert capsys.readouterr() == ("", "second\n")


def test_a_program_that_puts_its_own_stdout_in_meanwhile_keeps_it(capsys):
    mine = io.StringIO()
    before = sys.stdout
    try:
        with quiet():
            sys.stdout = mine
        assert sys.stdout is mine
    finally:
        sys.stdout = before
    print("outside")
    assert capsys.readouterr().out == "outside\n"


def test_a_stdout_that_was_taken_away_is_back(capsys):
    before = sys.stdout
    with quiet():
        sys.stdout = None
    assert sys.stdout is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_amid_it_leaves_a_child_that_works():
    def works():
        with quiet():
            pass
        return guard._active == 0

    assert processes.fork_amid(guard._lock, works)
