"""`./dev` where it may not write."""

import os
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from pathlib import Path

import pytest
from accel_tests.tools import TREE, load

_BOOTSTRAP = load("bootstrap")


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
def test_dev_says_what_a_machine_lacks_and_what_helps(clone, what):
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
