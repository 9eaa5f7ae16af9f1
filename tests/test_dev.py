"""`./dev`: a session's help, what one reads while it works and where it cannot, and the tests near a diff."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
from accel_tests.tools import TREE, load

_BOOTSTRAP = load("bootstrap")
_RUNNING = load("running")
_AFFECTED = load("affected")


def test_help_of_a_session_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(
        _BOOTSTRAP, "ensure_environment", lambda: pytest.fail("an environment was made")
    )
    assert _BOOTSTRAP.main(["lint", "core", "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("./dev lint\n\nCheck style (ruff)")
    assert "Arguments go to pytest: ./dev core PATH -k WORD" in told
    assert "go to pytest: ./dev lint" not in told


def test_the_list_begins_with_three_sessions():
    first = _BOOTSTRAP.help_text(_BOOTSTRAP.sessions()).split("\n\n")[1]
    assert [line.split()[0] for line in first.splitlines()] == ["demo", "check", "test"]


def test_each_session_is_listed_once_but_those_of_the_lab():
    known = _BOOTSTRAP.sessions()
    listed = re.findall(r"(?m)^  ([\w-]+)  ", _BOOTSTRAP.help_text(known))
    assert sorted(listed) == sorted(
        name for name, session in known.items() if session.group != "lab"
    )


def test_the_list_has_the_sessions_that_nox_has():
    listing = [_RUNNING.DEV_PYTHON, "-m", "nox", "--list"]
    if not _RUNNING.DEV_PYTHON.is_file():
        pytest.skip("`./dev` has an environment with nox")
    done = subprocess.run(listing, cwd=TREE, capture_output=True, text=True, check=True)
    noxes = re.findall(r"(?m)^[*-] ([\w-]+)", done.stdout)
    assert {*noxes} == _BOOTSTRAP.sessions().keys()


def test_the_readme_of_the_lab_has_each_of_its_sessions():
    known = _BOOTSTRAP.sessions()
    lab = {name for name, session in known.items() if session.group == "lab"}
    readme = (TREE / "lab/README.md").read_text(encoding="utf-8")
    assert {*re.findall(r"(?m)^\| `\./dev ([\w-]+)`", readme)} == lab


class Change(NamedTuple):
    """A changed file, and tests that are the nearest to it, among those that are near, and far."""

    file: str
    nearest: str
    near: str
    far: str


CHANGES = [
    Change(
        "src/accel_core/cli/list.py",
        nearest="tests/cli/test_list.py",
        near="tests/test_budgets.py",
        far="tests/detection/test_probe.py",
    ),
    Change(
        "src/accel_core/sandbox/child.py",
        nearest="tests/internal/test_child.py",
        near="tests/test_budgets.py",
        far="tests/cli/test_list.py",
    ),
    Change(
        "tests/cli/test_why.py",
        nearest="tests/cli/test_why.py",
        near="tests/cli/test_why.py",
        far="tests/cli/test_list.py",
    ),
    Change(
        "tools/release.py",
        nearest="tests/test_release.py",
        near="tests/test_release.py",
        far="tests/test_ci.py",
    ),
    Change(
        "README.md",
        nearest="tests/truth/test_contributor_pages.py",
        near="tests/truth/test_outside.py",
        far="tests/cli/test_list.py",
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.file)
def test_the_nearest_tests_come_first(change):
    found = _AFFECTED.near_tests(TREE, [change.file], ["tests/fuzz"])
    assert found[0] == change.nearest
    assert change.near in found
    assert change.far not in found


def test_a_plugin_gets_its_own_tests_but_not_those_of_another_session():
    found = _AFFECTED.near_tests(
        TREE,
        ["plugins/accel_npu/src/accel_npu/device.py"],
        ["plugins/accel_npu/tests/real"],
    )
    own = [name for name in found if name.startswith("plugins/")]
    assert own == found[: len(own)]
    assert {Path(name).parent.as_posix() for name in own} == {"plugins/accel_npu/tests"}


def test_a_change_without_a_test_near_it_has_none():
    assert _AFFECTED.near_tests(TREE, ["changelog.d/25.misc.1.md"], []) == []


def test_what_no_time_is_left_for_is_skipped(monkeypatch):
    monkeypatch.setenv(_AFFECTED.UNTIL, "0")
    with pytest.raises(pytest.skip.Exception, match="no time is left"):
        _AFFECTED.pytest_runtest_setup()
    monkeypatch.delenv(_AFFECTED.UNTIL)
    _AFFECTED.pytest_runtest_setup()


# ---------------------------------------------------------------------------- where it may not write


@pytest.fixture
def clone(tmp_path):
    """What `./dev` needs of a clone until it has installed anything."""
    folder = tmp_path / "clone"
    shutil.copytree(
        TREE / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "lab").mkdir()
    for name in (
        "dev",
        "noxfile.py",
        "sessions.toml",
        "lab/sessions.toml",
        "constraints.txt",
        "pyproject.toml",
    ):
        shutil.copy(TREE / name, folder / name)
    return folder


def in_namespace(made, *words, network=True):
    """What these words say on stderr where the shell's commands have made the situation; they must fail."""
    if os.name == "nt" or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounts and networks of one's own need root, and Linux")
    if subprocess.run(
        ["unshare", "-m", "-n", "true"], check=False, capture_output=True
    ).returncode:
        pytest.skip("this root may not make namespaces")
    command = [
        "unshare",
        "-m",
        *([] if network else ["-n"]),
        "sh",
        "-ec",
        f'{made}\nexec "$@"',
        "sh",
    ]
    environ = {**os.environ, "UV_HTTP_RETRIES": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *map(str, words)], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()


#: What a disk, or a Python, lacks: the shell's commands that make it so.
LACKING = {
    "a read-only disk": "mount --bind {clone} {clone}; mount -o remount,ro,bind {clone}",
    "no space": "cp -r {clone} {clone}2; mount -t tmpfs -o size=2m tmpfs {clone}; cp -r {clone}2/. {clone}",
    "no venv": "mount -t tmpfs tmpfs {stdlib}/venv",
}
SAID = {
    "a read-only disk": "{clone} may not be written (Read-only file system), and everything is installed "
    "there. Copy it to a folder of yours: cp -r {clone} ~/accel && cd ~/accel",
    "no space": "making .dev failed. No space is left: {clone} has * needs 300, with torch 1,200. Free some, "
    "then run the same again.",
    "no venv": "{python} has no venv, which makes environments. Install it (Debian and Ubuntu: "
    "apt install python{version}-venv), or name another Python: PYTHON=/path/to/python3 ./dev",
}


@pytest.mark.parametrize("what", LACKING)
def test_what_is_lacking_is_said_with_what_helps(clone, what):
    names = {
        "clone": clone,
        "python": sys.executable,
        "stdlib": sysconfig.get_path("stdlib"),
    }
    names["version"] = "{}.{}".format(*sys.version_info)
    *_, sentence = in_namespace(
        LACKING[what].format(**names),
        sys.executable,
        clone / "tools/bootstrap.py",
        "lint",
    )
    assert fnmatch(sentence, f"dev: {SAID[what]}".format(**names))


def test_without_a_network_uvs_words_are_understood(clone, tmp_path):
    uv = pytest.importorskip("uv").find_uv_bin()
    command = [
        uv,
        "pip",
        "install",
        "--no-cache",
        "--target",
        str(tmp_path / "home"),
        "six",
    ]
    code = f"import running; running.quietly('installing six', {command})"
    *_, sentence = in_namespace(
        f"cd {clone}/tools", sys.executable, "-c", code, network=False
    )
    assert sentence == (
        "dev: installing six failed. The packages' index does not answer. Connect to a network, or name a "
        "mirror, and run the same again: export PIP_INDEX_URL=https://MIRROR/simple"
    )


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="no folder that even root may not write"
)
def test_where_home_may_not_be_written_uv_keeps_its_cache_in_the_clone(
    monkeypatch, tmp_path, capsys
):
    pytest.importorskip("uv")
    monkeypatch.setattr(_BOOTSTRAP, "DEV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(_BOOTSTRAP, "NOX", tmp_path / ".nox")
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "list",
        "--python",
        sys.executable,
    ]
    assert (
        "Failed to initialize cache"
        in subprocess.run(command, capture_output=True, text=True).stderr
    )
    variables = _BOOTSTRAP.packages_cache()
    assert variables == {"UV_CACHE_DIR": str(tmp_path / ".nox" / "cache")}
    assert (
        "/proc/none/.cache/uv may not be written (No such file or directory)"
        in capsys.readouterr().out
    )
    assert (
        subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True
        ).returncode
        == 0
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _BOOTSTRAP.packages_cache() == {}


# ---------------------------------------------------------------------------- what one reads meanwhile


def test_a_silent_command_shows_that_it_works_and_its_output_only_if_it_fails(
    monkeypatch, capsys
):
    monkeypatch.setattr(_RUNNING, "BEAT", 0.2)
    code = "import time; print('hidden', flush=True); time.sleep(0.7)"
    assert _RUNNING.quietly("counting", [sys.executable, "-c", code]) == "hidden\n"
    told = capsys.readouterr().out
    assert told.startswith("     … counting: 0 s so far\n")
    assert "hidden" not in told
    with pytest.raises(
        _RUNNING.CommandFailedError, match=r"(?s)hidden.*dev: counting failed"
    ):
        _RUNNING.quietly("counting", [sys.executable, "-c", f"{code}; exit(3)"])


@pytest.mark.skipif(
    not _RUNNING.DEV_PYTHON.is_file(), reason="`./dev` has an environment with nox"
)
def test_pytests_command_line_is_short_and_one_process_names_each_test():
    session = "SimpleNamespace(name='core', run=lambda *words, **_: print(*words))"
    code = "import sys; from types import SimpleNamespace; sys.path.insert(0, 'tools'); import environments"
    code += f"; environments.pytest({session}, *sys.argv[1:], env={{}})"

    def shown(*arguments):
        command = [_RUNNING.DEV_PYTHON, "-c", code, *arguments]
        return subprocess.run(
            command, cwd=TREE, capture_output=True, text=True, check=True
        ).stdout

    assert len(shown("-n", "2", *["tests/test_dev.py"] * 100)) < 150
    assert " -v " in shown("tests/test_dev.py")
    assert "-v" not in shown("-n", "2", "tests/test_dev.py")
