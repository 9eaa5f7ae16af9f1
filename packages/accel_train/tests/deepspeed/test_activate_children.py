"""`activate()` in child processes, scripts and modules."""

import contextlib
import io
import os
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.forks import forked
from looks import activated
from patched import with_path

MODULE = ["-m", "accel_train.deepspeed"]
ACCEL = ["-m", "accel_core", "deepspeed", "--num_gpus", "2", "nowhere.py"]
WORKER = """
import json, sys
from looks import shared

def look(_=None):
    return shared()

if __name__ == "__main__":
    print("ANSWER", json.dumps([look(), sys.argv, __file__]), flush=True)
"""
MAIN = """
import multiprocessing
from accel_train.deepspeed import activate
from worker import look

if __name__ == "__main__":
    activate()
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        print("ANSWER", '"%s"' % pool.map(look, [None])[0])
"""
LOOK = """import worker; print("ANSWER", '"%s"' % worker.look())"""
THROUGH_US = f"import accel_core\naccel_core.get_accelerator()\n{LOOK}"
by_night = pytest.mark.nightly(
    reason="the same hook in the same entry point, by another way to start"
)


@pytest.fixture
def variables(request, device, folder):
    """Those of the device, with a program that looks."""
    found = request.getfixturevalue(f"on_{device}")
    return with_path(found, folder, Path(__file__).parent)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    return tmp_path


WORKERS = [
    ("acme", ["main.py"], MAIN.format(method="spawn"), {}),
    # Torch's autoload is off, and with it the entry point that would have told of the activation.
    ("acme", ["main.py"], THROUGH_US, {"ACCEL_INTEGRATIONS": "deepspeed"}),
    # A pin alone, which DeepSpeed does not list: a library may import it in any program.
    ("acme", ["main.py"], f"import deepspeed\n{LOOK}", {}),
    pytest.param("cpu", ["main.py"], MAIN.format(method="spawn"), {}, marks=by_night),
    pytest.param(
        "acme", ["main.py"], MAIN.format(method="forkserver"), {}, marks=by_night
    ),
]


@pytest.mark.parametrize(("device", "start", "main", "more"), WORKERS)
def test_workers_use_ours(child, variables, folder, device, start, main, more):
    (folder / "main.py").write_text(main)
    answers = child(start, {**variables, **more}, cwd=folder).answers
    assert [answer if isinstance(answer, str) else answer[0] for answer in answers] == [
        device
    ]


@forked("cpu", ACCEL_INTEGRATIONS="other", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
def test_other_integrations_stay_named_and_autoload_is_missed():
    found, _ = activated()
    assert "Next step: unset TORCH_DEVICE_BACKEND_AUTOLOAD" in found.limits[-1]
    del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    found, _ = activated()
    assert os.environ["ACCEL_INTEGRATIONS"] == "other,deepspeed"
    assert not any("AUTOLOAD" in limit for limit in found.limits)


# --- python -m accel_train.deepspeed -------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "autoload", "module"), [("acme", "0", False), ("acme", "1", True)]
)
def test_a_script_or_module_runs_as_python_would_run_it(
    child, variables, folder, device, autoload, module
):
    script = str(folder / "worker.py")
    start = ["-m", "worker"] if module else [script]
    (folder / "elsewhere").mkdir()
    environ = {**variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    ended = child(
        [*MODULE, *start, "--epochs", "2", "-m"], environ, cwd=folder / "elsewhere"
    )
    assert ended.answers == [[device, [script, "--epochs", "2", "-m"], script]]


@forked("cpu")
def test_a_scripts_status_is_its_own_and_bad_usage_is_told(tmp_path):
    from accel_train.deepspeed.__main__ import main

    (tmp_path / "program.py").write_text("raise SystemExit('7')")
    for arguments, said in (
        (["program.py"], "7"),
        ([], "no script was given"),
        (["-m"], "no module was given"),
        (["--local_rank=0"], "no script was given"),
        (["nowhere.py"], "there is no script 'nowhere.py'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert str(ended.value.code).endswith(said) or said in str(ended.value.code)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["--help"])
    assert printed.getvalue().startswith("usage:")


# --- DeepSpeed missing, or too old ----------------------------------------------------------------------

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "deepspeed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


def hide(folder, version):
    """Hide DeepSpeed from processes that have the folder in their path, or give it another version."""
    if version is None:
        (folder / "sitecustomize.py").write_text(HIDE)
    else:
        layouts.dist_info(
            folder, "deepspeed", version, {}, {"deepspeed/__init__": "1 / 0"}
        )


UNFIT = [
    (
        None,
        ACCEL,
        "DeepSpeed is not installed in this environment: pip install deepspeed",
    ),
    (
        "0.15.4",
        [*MODULE, "nowhere.py"],
        "DeepSpeed 0.15.4 is installed, but accel-train needs 0.16 or newer",
    ),
]


@pytest.mark.parametrize(("version", "start", "said"), UNFIT)
def test_a_missing_or_old_deepspeed_is_named_before_any_import(
    child, on_cpu, tmp_path, version, start, said
):
    hide(tmp_path, version)
    ended = child(start, with_path(on_cpu, tmp_path))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@forked("cpu")
def test_a_version_of_somebodys_own_is_taken_as_it_is(tmp_path):
    from accel_train.deepspeed import _release

    hide(tmp_path, "our-own-build")
    assert _release.require_supported_version() == "our-own-build"
