"""What a plugin or a vendor's package leaves changed in the user's process is put back."""

import logging
import os
import sys
import threading
import types
import warnings
from pathlib import Path

import pytest

from accel_core.detection.guard import restoring


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


def test_objects_that_were_replaced_are_the_old_ones_again(torch, caplog):
    caplog.set_level(logging.DEBUG, "accel_core")
    before = state()
    with restoring("accel-faulty 1.2"):
        os.environ = {**os.environ}  # noqa: B003
        sys.path = ["/nowhere"]
        with restoring("accel-acme 1.0"):
            pass  # which is not logged
    assert (state(), "acme" in caplog.text) == (before, False)


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
    os.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with restoring("accel-acme 1.0"):  # nobody knows where this is
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), OSError(5), StopIteration()], ids=repr)
def test_what_callers_expect_passes(error):
    with pytest.raises(type(error)) as raised, restoring("accel-faulty 1.2"):
        raise error
    assert raised.value is error
