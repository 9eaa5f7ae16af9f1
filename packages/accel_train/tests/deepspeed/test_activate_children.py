"""Processes that an activated one starts: spawned workers, forkservers, subprocesses. No code tells them."""

from __future__ import annotations

import os
import sys

import pytest
from accel_tests import layouts

WORKER = """
import json
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)

def look(_=None):
    import deepspeed, accel_core
    ours, theirs = accel_core.get_accelerator(), deepspeed.get_accelerator()
    return [theirs.name if isinstance(theirs, accel_core.Accelerator) else repr(theirs), theirs is ours]
"""
MAIN = """
import multiprocessing
from accel_train.deepspeed import activate
from worker import answer, look

if __name__ == "__main__":
    activate()
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        answer(looked=pool.map(look, [None]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    return tmp_path


@pytest.fixture
def variables(request, device):
    return request.getfixturevalue(f"on_{device}")


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.nightly(reason="the same on the CPU; by day on a device")),
        "acme",
    ],
)
@pytest.mark.parametrize(
    "method",
    [
        "spawn",
        pytest.param(
            "forkserver", marks=pytest.mark.nightly(reason="a second way to start workers; by day spawn")
        ),
    ],
)
def test_workers_use_ours(child, variables, device, method, folder):
    (folder / "main.py").write_text(MAIN.format(method=method))
    assert child([str(folder / "main.py")], variables).answers == [{"looked": [[device, True]]}]


@pytest.mark.nightly(reason="a child of a child; by day a child")
def test_a_subprocess_of_a_subprocess_uses_ours(child, on_acme, folder):
    """The one between imports neither torch nor us."""
    code = """
import subprocess, sys
from accel_train.deepspeed import activate
activate()
inner = "from worker import answer, look; answer(looked=look())"
outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
subprocess.run([sys.executable, "-c", outer], check=True)
"""
    assert child(["-c", code], on_acme, cwd=folder).answers == [{"looked": ["acme", True]}]


def test_a_child_that_imports_torch_through_us_uses_ours(child, on_acme, folder):
    """Then torch's autoload is off, and with it the entry point that would have told of the activation."""
    code = "import accel_core; accel_core.get_accelerator(); from worker import *; answer(looked=look())"
    variables = {**on_acme, "ACCEL_INTEGRATIONS": "deepspeed"}
    assert child(["-c", code], variables, cwd=folder).answers == [{"looked": ["acme", True]}]


def test_other_integrations_stay_named(child, on_cpu, folder):
    code = """
import os
from accel_train.deepspeed import activate
from worker import answer
activate(); activate()
answer(names=os.environ["ACCEL_INTEGRATIONS"])
"""
    variables = {**on_cpu, "ACCEL_INTEGRATIONS": "other"}
    assert child(["-c", code], variables, cwd=folder).answers == [{"names": "other,deepspeed"}]


def test_with_torchs_autoload_off_it_is_said_that_children_do_not_hear(child, on_cpu, folder):
    code = """
from accel_train.deepspeed import activate
from worker import answer
answer(limits=activate().limits)
"""
    variables = {**on_cpu, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    [said] = child(["-c", code], variables, cwd=folder).answers
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD is off" in said["limits"][-1]
    [said] = child(["-c", code], on_cpu, cwd=folder).answers
    assert not any("AUTOLOAD" in sentence for sentence in said["limits"])


# --- python -m accel_train.deepspeed -------------------------------------------------------

MODULE = ["-m", "accel_train.deepspeed"]
SCRIPT = """
import sys
from worker import answer, look
if __name__ == "__main__":
    answer(looked=look(), arguments=sys.argv, file=__file__)
"""


@pytest.mark.parametrize(
    "autoload",
    [
        pytest.param(
            "1", marks=pytest.mark.nightly(reason="torch's autoload on; by day off, which is harder")
        ),
        "0",
    ],
)
def test_a_script_runs_as_python_would_run_it(child, on_acme, folder, autoload):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    (folder / "elsewhere").mkdir()
    ended = child(
        [*MODULE, str(script), "--epochs", "2", "-m"],
        {**on_acme, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
        cwd=folder / "elsewhere",
    )
    arguments = [str(script), "--epochs", "2", "-m"]
    assert ended.answers == [{"looked": ["acme", True], "arguments": arguments, "file": str(script)}]


def test_a_module_runs_as_python_would_run_it(child, on_acme, folder):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    [said] = child([*MODULE, "-m", "script", "--epochs", "2"], on_acme, cwd=folder).answers
    assert said["looked"] == ["acme", True]
    assert said["arguments"] == [str(script), "--epochs", "2"]


@pytest.mark.nightly(reason="the same workers from a script that was started so")
def test_workers_of_a_script_that_was_started_so_use_ours(child, on_acme, folder):
    (folder / "main.py").write_text(MAIN.format(method="spawn").replace("    activate()\n", ""))
    assert child([*MODULE, str(folder / "main.py")], on_acme).answers == [{"looked": [["acme", True]]}]


def test_a_scripts_status_and_traceback_are_its_own(child, on_cpu, folder):
    (folder / "exits.py").write_text("raise SystemExit(7)")
    assert child([*MODULE, str(folder / "exits.py")], on_cpu).returncode == 7
    (folder / "raises.py").write_text("1 / 0")
    ended = child([*MODULE, str(folder / "raises.py")], on_cpu)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "usage:"),
        ([], 1, "no script was given"),
        (["-m"], 1, "no module was given"),
        (["--local_rank=0"], 1, "no script was given"),
        (["nowhere.py"], 1, "there is no script 'nowhere.py'"),
    ],
)
def test_bad_usage_is_told(child, on_cpu, folder, arguments, status, said):
    ended = child([*MODULE, *arguments], on_cpu, cwd=folder)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


# --- DeepSpeed missing, or too old ----------------------------------------------------------------------


HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "deepspeed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


@pytest.fixture
def hidden(tmp_path):
    """`hidden(version)`: a folder that hides DeepSpeed, or puts an older one in its place."""

    def hide(version: str | None) -> str:
        old = tmp_path / "old"
        old.mkdir()
        if version is None:
            (old / "sitecustomize.py").write_text(HIDE)
        else:
            groups: dict[str, dict[str, str]] = {}
            layouts.dist_info(old, "deepspeed", version, groups, {"deepspeed/__init__": "1 / 0"})
        return str(old)

    return hide


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "DeepSpeed is not installed in this environment: pip install deepspeed"),
        ("0.15.4", "DeepSpeed 0.15.4 is installed, accel-core needs 0.16 or newer"),
    ],
)
@pytest.mark.parametrize(
    "start", [[*MODULE, "nowhere.py"], ["-m", "accel_core", "deepspeed", "--num_gpus", "2", "nowhere.py"]]
)
def test_a_missing_or_old_deepspeed_is_named_before_anything_is_imported(
    child, on_cpu, hidden, version, said, start
):
    path = os.pathsep.join(filter(None, (hidden(version), on_cpu.get("PYTHONPATH"))))
    ended = child(start, {**on_cpu, "PYTHONPATH": path})
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_version_of_somebodys_own_is_taken_as_it_is(child, on_cpu, hidden, folder):
    code = """
from accel_train.deepspeed import _installed
from worker import answer
answer(version=_installed.version())
"""
    path = os.pathsep.join(filter(None, (hidden("our-own-build"), str(folder), on_cpu.get("PYTHONPATH"))))
    ended = child(["-c", code], {**on_cpu, "PYTHONPATH": path})
    assert ended.answers == [{"version": "our-own-build"}]


def test_a_folder_that_only_has_the_name_is_no_deepspeed(monkeypatch, tmp_path):
    from accel_train.deepspeed import _installed

    (tmp_path / "deepspeed").mkdir()
    for name in [n for n in sys.modules if n.partition(".")[0] == "deepspeed"]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])  # nor the DeepSpeed that is installed here
        assert _installed.folder() is None
        with pytest.raises(ImportError, match="DeepSpeed is not installed"):
            _installed.version()


def test_a_missing_deepspeed_is_an_import_error(child, on_cpu, hidden, folder):
    code = """
import accel_core
from accel_train.deepspeed import activate
from worker import answer
try:
    activate()
except ImportError as error:
    answer(ours=isinstance(error, accel_core.AccelError))
"""
    variables = {**on_cpu, "PYTHONPATH": hidden(None)}
    assert child(["-c", code], variables, cwd=folder).answers == [{"ours": True}]
