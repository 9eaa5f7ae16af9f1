"""The environments of the sessions in noxfile.py: one each, filled once, and torch the same for all.

Installing is skipped while the content it depends on is unchanged: a digest in each environment says. torch
lies in an environment of its own, `.nox/torch-*`, or is the user's own; the others see it by a .pth file.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import nox
import nox.project

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
PROJECTS = [ROOT, *PLUGINS]
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WINDOWS = os.name == "nt"

# What tools/bootstrap.py found in the Python that ran it.
OWN_TORCH = json.loads(os.environ.get("DEV_TORCH_FOUND", "null"))

# DeepSpeed's setup.py compiles unless told not to, and imports torch, which must not load a vendor then.
QUIET_BUILDS = {"DS_BUILD_OPS": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class TorchHome(NamedTuple):
    """Where torch lies: its version, and directories that hold it and what it needs."""

    version: str
    paths: tuple[str, ...]


def group(*names: str) -> list[str]:
    """Give the requirements of dependency groups of pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def fresh(environment: Path, *content: object) -> str | None:
    """Give the digest to leave in an environment once it is filled, or None if it is filled already."""
    key = hashlib.sha256(repr((str(ROOT), sys.version, content)).encode()).hexdigest()
    stamp = environment / "content.sha256"
    return None if stamp.is_file() and stamp.read_text() == key else key


def filled(environment: Path, key: str) -> None:
    """Leave the digest that `fresh` gave."""
    (environment / "content.sha256").write_text(key)


def torch_home(session: nox.Session) -> TorchHome:
    """Take the torch that the user has, or install the pinned one once for all sessions."""
    if OWN_TORCH:
        session.log(f"using your own torch {OWN_TORCH['version']} (DEV_TORCH=pinned: the pinned one)")
        return TorchHome(OWN_TORCH["version"], tuple(OWN_TORCH["paths"]))
    home = ROOT / ".nox" / "torch-py{}.{}".format(*sys.version_info)
    python = home / ("Scripts/python.exe" if WINDOWS else "bin/python")
    # Only the lines that matter: editing pyproject.toml must not bring half a minute of torch.
    if key := fresh(home, group("torch"), re.findall(r"(?m)^(?:torch|numpy)\b.*", CONSTRAINTS.read_text())):
        session.log("installing torch for all sessions (once)")
        shutil.rmtree(home, ignore_errors=True)
        session.run_install(sys.executable, "-m", "virtualenv", "-q", str(home), external=True, silent=True)
        pip = [str(python), "-m", "pip", "install", "-c", str(CONSTRAINTS), *group("torch")]
        session.run_install(*pip, external=True, silent=True)
        filled(home, key)
    ask = "import importlib.metadata as m, sysconfig as s; print(m.version('torch'), s.get_path('purelib'))"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    version, path = answer.split(" ", 1)
    return TorchHome(version, (path,))


def prepare(
    session: nox.Session,
    *groups: str,
    torch: bool = False,
    project: bool = True,
    plugins: bool = True,
    extra: tuple[str, ...] = (),
) -> None:
    """Fill the session's environment: dependency groups, torch if wanted, our distributions editable."""
    home = torch_home(session) if torch else None
    environment = Path(session.virtualenv.location)
    wanted = group(*groups) if groups else []
    files = [CONSTRAINTS, *(path / "pyproject.toml" for path in PROJECTS)]
    key = fresh(environment, wanted, home, project, plugins, extra, [file.read_bytes() for file in files])
    if key is None:
        return
    constraints = environment / "constraints.txt"
    text = CONSTRAINTS.read_text(encoding="utf-8")
    if home:
        # A torch of the user's own is left alone: nothing may ask pip for another.
        text = re.sub(r"(?m)^torch==.*$", f"torch=={home.version}", text)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = session.run("python", "-c", ask, silent=True, log=False)
        lines = [f"import site; site.addsitedir({path!r})" for path in home.paths]
        Path(str(site).strip(), "zz_torch_home.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    constraints.write_text(text, encoding="utf-8")
    with_constraints = ["-c", str(constraints)]
    if wanted or project:
        # The build tools come first, so that no project needs an environment just to be built in.
        session.install(*with_constraints, *wanted, *(group("build") if project else []))
    if project:
        ours = PROJECTS if plugins else [ROOT]
        editable = [word for path in ours for word in ("-e", str(path))]
        session.install(*with_constraints, "--no-build-isolation", *editable)
    if extra:
        # Exact versions already, and two sessions may take two of one package.
        session.install("--no-build-isolation", "--no-deps", *extra, env=QUIET_BUILDS)
    filled(environment, key)


def require(session: nox.Session, *modules: str) -> None:
    """Fail unless the session finds these: else the tests that need them skip, and the session passes."""
    find = (
        "import sys; from importlib.util import find_spec\n"
        "missing = [name for name in sys.argv[1:] if not find_spec(name)]\n"
        "sys.exit(f'not found: {missing}; delete {sys.prefix} and run this again' if missing else 0)"
    )
    session.run("python", "-c", find, *modules, silent=True, log=False)


def runs(python: str) -> bool:
    """Say whether this is a Python that starts (a pyenv shim may stand for nothing)."""
    try:
        done = subprocess.run([python, "-c", ""], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def interpreters() -> dict[str, str]:
    """Find the Pythons for the torch-free tests: oldest and newest beside this one; else this one."""
    found = {}
    for version in ("3.10", "3.12", "3.13"):
        pyenv = os.environ.get("PYENV_ROOT", "/nonexistent")
        choices = sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"), reverse=True)
        choices += [path for path in [shutil.which(f"python{version}")] if path]
        if python := next(filter(runs, choices), None):
            found[version] = python
    return found or {"{}.{}".format(*sys.version_info): sys.executable}
