"""The environments of the sessions in noxfile.py: filled once, and shared where sessions need the same.

Installing is skipped while the content it depends on is unchanged: a digest in each environment says. torch
lies in an environment of its own, `.nox/torch-*`, or is the user's own; the others see it by a .pth file.
uv installs where it has a word for everything that pip is configured with, and pip elsewhere.
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
from typing import Any, NamedTuple

import nox
import nox.project
import nox.virtualenv
from filelock import FileLock
from pip_settings import in_uvs_words

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "packages" / f"accel_{name}" for name in ("train", "tools", "testing", "simulated")]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
PROJECTS = [ROOT, *PACKAGES, *PLUGINS]
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WINDOWS = os.name == "nt"

# What tools/bootstrap.py found in the Python that ran it.
OWN_TORCH = json.loads(os.environ.get("DEV_TORCH_FOUND", "null"))

# The index that has the build of torch that is wanted, such as https://download.pytorch.org/whl/cpu.
TORCH_INDEX = os.environ.get("DEV_TORCH_INDEX", "")

# DeepSpeed's setup.py compiles unless told not to, and imports torch, which must not load a vendor then.
QUIET_BUILDS = {"DS_BUILD_OPS": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class TorchHome(NamedTuple):
    """Where torch lies: its version, and directories that hold it and what it needs."""

    version: str
    paths: tuple[str, ...]


# ---------------------------------------------------------------------------- uv, or pip


def backend() -> str:
    """Choose what makes and fills environments; tell uv, if it does, what pip is configured with."""
    if os.environ.get("DEV_INSTALLER") == "pip" or not nox.virtualenv.find_uv()[0]:
        return "virtualenv"
    ask = [sys.executable, "-m", "pip", "config", "list"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    variables = in_uvs_words(answer.stdout) if answer.returncode == 0 else None
    if variables is None:
        return "virtualenv"
    for name, value in variables.items():
        os.environ.setdefault(name, value)  # what the user says to uv stands
    return "uv"


BACKEND = backend()


def shared(homes: dict[str, str]) -> None:
    """Let the sessions of `homes` with `venv_backend="shared"` use the environments that it names."""

    def environment(location: str, **options: Any) -> nox.virtualenv.ProcessEnv:
        own = Path(location)
        home = own.with_name(homes[own.name])
        return nox.virtualenv.VirtualEnv(str(home), venv_backend=BACKEND, **options)

    nox.virtualenv.ALL_VENVS["shared"] = environment


# The user's own choice of a backend must not decide what a test sees.
CLEAN: dict[str, str | None] = {
    name: None for name in os.environ if name.startswith("ACCEL_") or name == "DS_ACCELERATOR"
}
if OWN_TORCH:
    # With the user's torch come the user's pytest plugins, which may warn, and warnings are errors.
    CLEAN["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
PYTEST = ["-m", "pytest", "-p", "xdist"]


# ---------------------------------------------------------------------------- what is installed


def group(*names: str) -> list[str]:
    """Give the requirements of dependency groups of pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def fresh(environment: Path, *content: object) -> str | None:
    """Give the digest to leave in an environment once it is filled, or None if it is filled already."""
    key = hashlib.sha256(repr((str(ROOT), sys.version, BACKEND, content)).encode()).hexdigest()
    stamp = environment / "content.sha256"
    return None if stamp.is_file() and stamp.read_text() == key else key


def filled(environment: Path, key: str) -> None:
    """Leave the digest that `fresh` gave."""
    environment.mkdir(parents=True, exist_ok=True)
    (environment / "content.sha256").write_text(key)


def torch_home(session: nox.Session) -> TorchHome:
    """Take the torch that the user has, or install the pinned one once for all sessions."""
    if OWN_TORCH:
        session.log(f"using your own torch {OWN_TORCH['version']} (DEV_TORCH=pinned: the pinned one)")
        return TorchHome(OWN_TORCH["version"], tuple(OWN_TORCH["paths"]))
    home = ROOT / ".nox" / "torch-py{}.{}".format(*sys.version_info)
    python = home / ("Scripts/python.exe" if WINDOWS else "bin/python")
    # Only the lines that matter: editing pyproject.toml must not bring half a minute of torch.
    lines = re.findall(r"(?m)^(?:torch|numpy)\b.*", CONSTRAINTS.read_text())
    if key := fresh(home, group("torch"), lines, *filter(None, [TORCH_INDEX])):
        session.log("installing torch for all sessions (once)")
        shutil.rmtree(home, ignore_errors=True)
        nox.virtualenv.VirtualEnv(str(home), venv_backend=BACKEND).create()
        pip = [str(python), "-m", "pip", "install"]
        if BACKEND == "uv":
            pip = [nox.virtualenv.find_uv()[1], "pip", "install", "--python", str(python)]
        pip += ["-c", str(CONSTRAINTS)]
        # From that index torch alone: beside PyPI's it could bring any other name in a higher version.
        if TORCH_INDEX:
            only = "--default-index" if BACKEND == "uv" else "--index-url"
            session.run_install(*pip, "--no-deps", only, TORCH_INDEX, "torch", external=True, silent=True)
        session.run_install(*pip, *group("torch"), external=True, silent=True)
        filled(home, key)
    ask = "import importlib.metadata as m, sysconfig as s; print(m.version('torch'), s.get_path('purelib'))"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    version, path = answer.split(" ", 1)
    return TorchHome(version, (path,))


# Builds the editable wheels of all projects in one process.
BUILD_EDITABLE = """
import os, sys
from hatchling.build import build_editable
for project in sys.argv[2:]:
    os.chdir(project)
    build_editable(sys.argv[1])
"""


def editables(content: list[bytes]) -> list[Path]:
    """Give wheels that install our distributions editable, core's first: built once for all environments."""
    folder = ROOT / ".nox" / "editables"
    if key := fresh(folder, content):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", BUILD_EDITABLE, str(folder), *map(str, PROJECTS)]
        subprocess.run(command, check=True, capture_output=True)
        filled(folder, key)
    return [next(folder.glob(f"{path.name if path != ROOT else 'accel_core'}-*.whl")) for path in PROJECTS]


def prepare(
    session: nox.Session,
    *groups: str,
    torch: bool = False,
    project: bool = True,
    plugins: bool = True,
    extra: tuple[str, ...] = (),
) -> None:
    """Fill the session's environment: dependency groups, torch if wanted, our distributions editable."""
    with FileLock(ROOT / ".nox" / "filling.lock"):  # what sessions share is made once, though two run at once
        fill(session, groups, torch, project, plugins, extra)


def fill(
    session: nox.Session,
    groups: tuple[str, ...],
    torch: bool,
    project: bool,
    plugins: bool,
    extra: tuple[str, ...],
) -> None:
    """Do what `prepare` says, unless the environment's digest says that it is done."""
    home = torch_home(session) if torch else None
    environment = Path(session.virtualenv.location)
    wanted = group(*groups) if groups else []
    content = [file.read_bytes() for file in (CONSTRAINTS, *(path / "pyproject.toml" for path in PROJECTS))]
    key = fresh(environment, wanted, home, project, plugins, extra, content)
    if key is None:
        return
    constraints = environment / "constraints.txt"
    text = CONSTRAINTS.read_text(encoding="utf-8")
    if home:
        # A torch of the user's own is left alone: nothing may ask for another.
        text = re.sub(r"(?m)^torch==.*$", f"torch=={home.version}", text)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = session.run("python", "-c", ask, silent=True, log=False)
        lines = [f"import site; site.addsitedir({path!r})" for path in home.paths]
        Path(str(site).strip(), "zz_torch_home.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    constraints.write_text(text, encoding="utf-8")
    wheels = editables(content) if project else []
    ours = [str(wheel) for wheel in wheels[: None if plugins else 1 + len(PACKAGES)]]
    if wanted or ours:
        session.install("-c", str(constraints), *without_torch(environment, home), *wanted, *ours)
    if ours:
        # Of an environment that had the same versions the first command has left the old ones.
        session.install("--force-reinstall", "--no-deps", *ours)
    if extra:
        # Exact versions already, and two sessions may take two of one package.
        session.install("--no-build-isolation", "--no-deps", *extra, env=QUIET_BUILDS | built_with(home))
    filled(environment, key)


def without_torch(environment: Path, home: TorchHome | None) -> list[str]:
    """Tell uv what is there already: unlike pip it does not see what a .pth file brings."""
    if home is None or BACKEND != "uv":
        return []
    excludes = environment / "excludes.txt"
    excludes.write_text("\n".join(["torch"] if OWN_TORCH else group("torch")) + "\n", encoding="utf-8")
    return ["--excludes", str(excludes)]


def built_with(home: TorchHome | None) -> dict[str, str]:
    """Keep what uv builds apart by torch: DeepSpeed's build notes which one it saw."""
    kept = ROOT / ".nox" / f"built-with-torch-{home.version if home else 'none'}"
    return {"UV_CACHE_DIR": str(kept)} if BACKEND == "uv" else {}


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
    for version in ("3.10", "3.13"):
        pyenv = os.environ.get("PYENV_ROOT", "/nonexistent")
        choices = sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"), reverse=True)
        choices += [path for path in [shutil.which(f"python{version}")] if path]
        if python := next(filter(runs, choices), None):
            found[version] = python
    return found or {"{}.{}".format(*sys.version_info): sys.executable}


# ---------------------------------------------------------------------------- what sessions do


def differing(root: Path) -> list[str] | None:
    """Return the files that differ from main, new ones among them; None if git does not know main."""
    git = ("git", "-C", str(root))
    base = subprocess.run([*git, "merge-base", "main", "HEAD"], capture_output=True, text=True, check=False)
    if base.returncode:
        return None
    asked = (
        [*git, "diff", "--name-only", "-z", base.stdout.strip()],
        [*git, "ls-files", "-o", "--exclude-standard", "-z"],
    )
    return [
        name
        for ask in asked
        for name in subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split("\0")
        if name
    ]


def changed(root: Path, folders: list[str]) -> bool:
    """Say whether anything in these folders differs from main; True if git does not know main."""
    found = differing(root)
    return found is None or any(name.startswith(f"{folder}/") for name in found for folder in folders)


def measured(session: nox.Session, found: list[str], env: dict[str, str | None], *parts: str) -> None:
    """Run pytest; under `DEV_COVERAGE=1`, as by night, with branch coverage, which fails below its bound."""
    if (
        os.environ.get("DEV_COVERAGE") != "1"
    ):  # it costs a third more, mostly in the processes that tests start
        session.run("python", *PYTEST, *found, env=env)
        return
    session.run("coverage", "erase")
    session.run("coverage", "run", *PYTEST, *found, env=env)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", *parts)


def in_own_folder(session: nox.Session, name: str, *packages: str) -> Path:
    """Install packages, without what they depend on, where only who is told finds them."""
    home = Path(session.virtualenv.location) / name
    if key := fresh(home, packages):
        session.install("--no-deps", "--target", str(home), *packages, env=QUIET_BUILDS)
        filled(home, key)
    return home


def for_deepspeed(session: nox.Session) -> dict[str, str | None]:
    """The environment of DeepSpeed's tests: torch's autoload is on, by which its ranks hear of us."""
    # What DeepSpeed compiles is kept beside it, so that two releases of it do not build over each other.
    kept = Path(session.virtualenv.location) / "torch_extensions" / torch_home(session).version
    return {**CLEAN, "TORCH_DEVICE_BACKEND_AUTOLOAD": None, "TORCH_EXTENSIONS_DIR": str(kept)}
