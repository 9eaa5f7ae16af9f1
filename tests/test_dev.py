"""`./dev`: a session's help, what one reads while it works and where it cannot, and the tests near a diff."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from accel_tests.tools import TREE, load

_BOOTSTRAP = load("bootstrap")
_RUNNING = load("running")
_TOUCHED = load("touched")


def test_help_of_a_session_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(_BOOTSTRAP, "ensure_environment", lambda: pytest.fail("an environment was made"))
    assert _BOOTSTRAP.main(["lint", "tests", "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("./dev lint\n\nCheck style (ruff)")
    assert "Arguments go to pytest: ./dev tests PATH -k WORD" in told
    assert "go to pytest: ./dev lint" not in told


@pytest.mark.parametrize(
    ("changed", "first", "among", "without"),
    [
        (
            "src/accel_core/cli/commands/list.py",
            "cli/test_list.py",
            "test_budgets.py",
            "detection/test_probe.py",
        ),
        (
            "src/accel_core/_support/child.py",
            "internal/test_child.py",
            "detection/test_survey.py",
            "cli/test_list.py",
        ),
        ("tests/cli/test_why.py", "cli/test_why.py", "cli/test_why.py", "cli/test_list.py"),
        ("tools/release.py", "test_release.py", "test_release.py", "test_ci.py"),
        ("README.md", "truth/test_messages_true.py", "truth/test_outside.py", "cli/test_list.py"),
    ],
)
def test_the_nearest_tests_come_first(changed, first, among, without):
    found = _TOUCHED.near_tests(TREE, [changed], ["tests/fuzz"])
    assert found[0] == f"tests/{first}"
    assert f"tests/{among}" in found
    assert f"tests/{without}" not in found


def test_a_plugin_gets_its_own_tests_but_not_those_of_another_session():
    found = _TOUCHED.near_tests(
        TREE, ["plugins/accel_npu/src/accel_npu/device.py"], ["plugins/accel_npu/tests/real"]
    )
    own = [name for name in found if name.startswith("plugins/")]
    assert own == found[: len(own)]
    assert {Path(name).parent.as_posix() for name in own} == {"plugins/accel_npu/tests"}


def test_a_change_without_a_test_near_it_has_none():
    assert _TOUCHED.near_tests(TREE, ["changelog.d/25.misc.1.md"], []) == []


def test_what_no_time_is_left_for_is_skipped(monkeypatch):
    monkeypatch.setenv(_TOUCHED.UNTIL, "0")
    with pytest.raises(pytest.skip.Exception, match="no time is left"):
        _TOUCHED.pytest_runtest_setup()
    monkeypatch.delenv(_TOUCHED.UNTIL)
    _TOUCHED.pytest_runtest_setup()


# ---------------------------------------------------------------------------- where it may not write


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `./dev` needs of a clone until it has installed anything."""
    folder = tmp_path / "clone"
    shutil.copytree(TREE / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dev", "noxfile.py", "sessions.toml", "constraints.txt", "pyproject.toml"):
        shutil.copy(TREE / name, folder / name)
    return folder


@pytest.fixture
def in_namespace(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`in_namespace(commands, *words)`: run words where the shell's commands have made the situation."""
    if os.name == "nt" or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts and networks of one's own need root, and Linux")
    if subprocess.run(["unshare", "-m", "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this root may not make namespaces")

    def run(made: str, *words: object, network: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "-m", *([] if network else ["-n"]), "sh", "-ec", f'{made}\nexec "$@"', "sh"]
        environ = {**os.environ, "PIP_RETRIES": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [*command, *map(str, words)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )

    return run


def bootstrap(clone: Path, *words: str) -> list[object]:
    return [sys.executable, clone / "tools/bootstrap.py", *words]


def test_a_clone_on_a_read_only_disk_is_told_to_be_copied(clone, in_namespace, tmp_path):
    read_only = f"mount --bind {clone} {clone}; mount -o remount,ro,bind {clone}"
    done = in_namespace(read_only, *bootstrap(clone, "lint"))
    assert done.returncode == 1
    assert done.stderr == (
        f"dev: {clone} may not be written (Read-only file system), and everything is installed there. "
        f"Copy it to a folder of yours: cp -r {clone} ~/accel && cd ~/accel\n"
    )
    copied = f"{read_only}; cp -r {clone} {tmp_path}/accel"
    make = "import bootstrap, sys; sys.exit(bool(bootstrap.unwritable(bootstrap.ROOT)))"
    followed = in_namespace(f"{copied}; cd {tmp_path}/accel/tools", sys.executable, "-c", make)
    assert followed.returncode == 0, followed.stdout + followed.stderr


@pytest.fixture
def small(clone: Path, tmp_path: Path) -> tuple[Path, str]:
    """A folder, and the shell's commands that make it a disk of 2 MB with the clone on it."""
    place = tmp_path / "small"
    place.mkdir()
    return place, f"mount -t tmpfs -o size=2m tmpfs {place}; cp -r {clone}/. {place}"


@pytest.mark.slow
def test_where_no_space_is_left_it_is_said_how_much_is_needed(small, in_namespace):
    place, made = small
    done = in_namespace(made, *bootstrap(place, "lint"))
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith(f"dev: making .dev failed. No space is left: {place} has ")
    assert sentence.endswith("needs 300, with torch 1,200. Free some, then run the same again.")


@pytest.mark.nightly(reason="makes an environment, to follow the step that the test above reads by day")
@pytest.mark.slow
def test_where_space_is_made_it_goes_on(small, in_namespace):
    place, made = small
    make = "import bootstrap; bootstrap.make_environment()"
    freed = f"{made}; mount -o remount,size=200m {place}; cd {place}/tools"
    followed = in_namespace(freed, sys.executable, "-c", make)
    assert followed.returncode == 0, followed.stdout + followed.stderr


_NO_INDEX = (
    "The packages' index does not answer. Connect to a network, or name a mirror, and run the same again: "
    "export PIP_INDEX_URL=https://MIRROR/simple"
)


@pytest.mark.nightly(reason="makes an environment, for the words of pip: those of uv are read by day")
@pytest.mark.slow
def test_without_a_network_the_first_step_names_a_mirror(clone, in_namespace):
    done = in_namespace("", *bootstrap(clone, "lint"), network=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"dev: installing nox and uv failed. {_NO_INDEX}"


def test_without_a_network_uvs_words_are_understood(clone, in_namespace, tmp_path):
    uv = pytest.importorskip("uv").find_uv_bin()
    command = [uv, "pip", "install", "--no-cache", "--target", str(tmp_path / "home"), "six"]
    code = f"import running; running.quietly('installing six', {command})"
    done = in_namespace(
        f"cd {clone}/tools; export UV_HTTP_RETRIES=0", sys.executable, "-c", code, network=False
    )
    assert done.stderr.splitlines()[-1] == f"dev: installing six failed. {_NO_INDEX}"


def test_a_python_without_venv_is_told_how_to_get_one(clone, in_namespace):
    hidden = f"mount -t tmpfs tmpfs {sysconfig.get_path('stdlib')}/venv"
    done = in_namespace(hidden, *bootstrap(clone, "lint"))
    assert done.returncode == 1
    version = "{}.{}".format(*sys.version_info)
    assert done.stderr == (
        f"dev: {sys.executable} has no venv, which makes environments. Install it (Debian and Ubuntu: "
        f"apt install python{version}-venv), or name another Python: PYTHON=/path/to/python3 ./dev\n"
    )
    assert not (clone / ".dev").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that even root may not write")
def test_where_home_may_not_be_written_uv_keeps_its_cache_in_the_clone(monkeypatch, tmp_path, capsys):
    pytest.importorskip("uv")
    monkeypatch.setattr(_BOOTSTRAP, "DEV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(_BOOTSTRAP, "NOX", tmp_path / ".nox")
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    command = [str(Path(sys.executable).with_name("uv")), "pip", "list", "--python", sys.executable]
    assert "Failed to initialize cache" in subprocess.run(command, capture_output=True, text=True).stderr
    variables = _BOOTSTRAP.packages_cache()
    assert variables == {"UV_CACHE_DIR": str(tmp_path / ".nox" / "cache")}
    assert "/proc/none/.cache/uv may not be written (No such file or directory)" in capsys.readouterr().out
    assert subprocess.run(command, env={**os.environ, **variables}, capture_output=True).returncode == 0
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _BOOTSTRAP.packages_cache() == {}


# ---------------------------------------------------------------------------- what one reads meanwhile


def test_a_silent_command_shows_that_it_works_and_its_output_only_if_it_fails(monkeypatch, capsys):
    monkeypatch.setattr(_RUNNING, "BEAT", 0.2)
    code = "import time; print('hidden', flush=True); time.sleep(0.7)"
    assert _RUNNING.quietly("counting", [sys.executable, "-c", code]) == "hidden\n"
    told = capsys.readouterr().out
    assert told.startswith("     … counting: 0 s so far\n")
    assert "hidden" not in told
    with pytest.raises(_RUNNING.CommandFailedError, match=r"(?s)hidden.*dev: counting failed"):
        _RUNNING.quietly("counting", [sys.executable, "-c", f"{code}; exit(3)"])


def test_sessions_are_counted_and_told_what_is_left(monkeypatch, tmp_path, capfd):
    stand_in = tmp_path / "nox.py"
    stand_in.write_text("import sys; print('ran', sys.argv[1]); sys.exit(sys.argv[1] == 'types')")
    words = [sys.executable, str(stand_in)]
    monkeypatch.setattr(_RUNNING, "_command", lambda step: [*words, step.session])
    monkeypatch.setattr(_RUNNING, "NOX", tmp_path)
    monkeypatch.setattr(_RUNNING, "_SECONDS", tmp_path / "seconds.json")
    (tmp_path / "seconds.json").write_text('{"wheels": 80, "docs": 60.2, "tests": 300}')
    steps = [_RUNNING.Step(name) for name in ("docs", "types", "tests")]
    assert _RUNNING.run_steps(steps, beside=_RUNNING.Step("wheels"), until=2) == 1
    assert [line for line in capfd.readouterr().out.splitlines() if line] == [
        "1 of 4  wheels, beside the next: its output comes at its end (last time 80 s)",
        "2 of 4  docs (last time 60 s; at least 6 min to the end)",
        "ran docs",
        "3 of 4  types (at least 5 min to the end)",
        "ran types",
        "ran wheels",
        "4 of 4  tests (last time 5 min)",
        "ran tests",
        "3 of 4 passed; failed: types",
    ]
    assert set(_RUNNING._times()) == {"wheels", "docs", "tests"}
