"""The environments of the sessions in noxfile.py: each is filled once, and all share one torch.

nox has neither: it installs at every run, and shares nothing between sessions. Here a digest in each
environment shows whether its requirements have changed, and torch lies in an environment of its own,
`.nox/torch-*`, or is the user's own; the others see it by a .pth file. With uv one more environment takes
3 seconds, and 15 MB on a disk where it can link to its cache.
uv installs where it has a word for everything that pip is configured with, and pip elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import nox
import nox.project
import nox.virtualenv
from filelock import FileLock
from pip_settings import in_uvs_words
from running import NOX, ROOT, CommandFailedError, quietly

PACKAGES = [
    ROOT / "packages" / f"accel_{name}"
    for name in ("train", "tools", "testing", "simulated")
]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
PROJECTS = [ROOT, *PACKAGES, *PLUGINS]
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WINDOWS = os.name == "nt"
#: Whether the coverage of branches is measured: a third more time, mostly in processes that tests start.
MEASURED = os.environ.get("DEV_COVERAGE") == "1"

# What tools/bootstrap.py found in the Python that ran it.
OWN_TORCH = json.loads(os.environ.get("DEV_TORCH_FOUND", "null"))

# DeepSpeed's setup.py compiles unless told not to, and imports torch, which must not load a vendor then.
QUIET_BUILDS = {"DS_BUILD_OPS": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


class TorchHome(NamedTuple):
    """Where torch lies: its version, and directories that hold it and what it needs."""

    version: str
    paths: tuple[str, ...]


# ---------------------------------------------------------------------------- uv, or pip


def backend() -> str:
    """Choose what makes and fills environments; tell uv, if it does, what pip is configured with."""
    if os.environ.get("DEV_INSTALLER") == "pip" or not UV:
        return "virtualenv"
    ask = [sys.executable, "-m", "pip", "config", "list"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    variables = in_uvs_words(answer.stdout) if answer.returncode == 0 else None
    if variables is None:
        return "virtualenv"
    for name, value in variables.items():
        os.environ.setdefault(name, value)  # what the user says to uv stands
    return "uv"


UV = nox.virtualenv.find_uv()[1]
BACKEND = backend()
# What sessions share is made once, though two run at once.
FILLING = FileLock(NOX / "filling.lock")


# The user's own choice of a backend must not decide what a test sees.
CLEAN: dict[str, str | None] = {
    name: None
    for name in os.environ
    if name.startswith("ACCEL_") or name == "DS_ACCELERATOR"
}
if OWN_TORCH:
    # With the user's torch come the user's pytest plugins, which may warn, and warnings are errors.
    CLEAN["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"


# ---------------------------------------------------------------------------- what is installed


def group(*names: str) -> list[str]:
    """Give the requirements of dependency groups of pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def fresh(environment: Path, *content: object) -> str | None:
    """Give the digest to leave in an environment once it is filled, or None if it is filled already."""
    key = hashlib.sha256(
        repr((str(ROOT), sys.version, BACKEND, content)).encode()
    ).hexdigest()
    stamp = environment / "content.sha256"
    return None if stamp.is_file() and stamp.read_text() == key else key


def filled(environment: Path, key: str) -> None:
    """Leave the digest that `fresh` gave."""
    environment.mkdir(parents=True, exist_ok=True)
    (environment / "content.sha256").write_text(key)


def installing(
    session: nox.Session, what: str, *words: str, python: str = "", **variables: str
) -> None:
    """Install into the session's environment, or that of another Python, with uv or with pip."""
    python = python or str(Path(session.bin) / "python")
    command = [python, "-m", "pip", "install", *words]
    if BACKEND == "uv":
        command = [UV, "pip", "install", "--python", python, *words]
    session.log(f"installing {what}")
    try:
        quietly(f"installing {what}", command, env={**os.environ, **variables})
    except CommandFailedError as error:
        session.error(str(error))


def watched(
    session: nox.Session,
    *command: str,
    env: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Run a command that may be silent for long: every ten seconds a line says that it runs."""
    session.log(" ".join(command))
    path = os.pathsep.join([session.bin, os.environ["PATH"]])
    given = {**os.environ, **session.env, **env, "PATH": path}
    what = " ".join(word for word in command[:2] if not word.startswith("-"))
    words = [shutil.which(command[0], path=path) or command[0], *command[1:]]
    try:
        output = quietly(
            what,
            words,
            env={name: value for name, value in given.items() if value is not None},
        )
    except CommandFailedError as error:
        session.error(str(error))
    print(output, end="", flush=True)


def compiled(session: nox.Session, *devices: str) -> None:
    """Compile simulated devices, as many at once as there are cores: tests would wait for one of them.

    Where none can be compiled the tests skip, and say why.
    """

    def compile_one(device: str) -> None:
        with contextlib.suppress(CommandFailedError):
            quietly(
                f"compiling {device}",
                [Path(session.bin) / "accel", "simulate", "--build", device],
            )

    session.log(f"compiling, unless it is done: {', '.join(devices)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, devices))


def torch_home(session: nox.Session) -> TorchHome:
    """Take the torch that the user has, or install the pinned one once for all sessions."""
    if OWN_TORCH:
        session.log(
            f"using your own torch {OWN_TORCH['version']} (DEV_TORCH=pinned: the pinned one)"
        )
        return TorchHome(OWN_TORCH["version"], tuple(OWN_TORCH["paths"]))
    home = NOX / "torch-py{}.{}".format(*sys.version_info)
    python = home / ("Scripts/python.exe" if WINDOWS else "bin/python")
    # Only the lines that matter: editing pyproject.toml must not bring half a minute of torch.
    lines = re.findall(r"(?m)^(?:torch|numpy)\b.*", CONSTRAINTS.read_text())
    with FILLING:
        if key := fresh(
            home,
            group("torch"),
            lines,
            *filter(None, [os.environ.get("DEV_TORCH_INDEX")]),
        ):
            shutil.rmtree(home, ignore_errors=True)
            nox.virtualenv.VirtualEnv(str(home), venv_backend=BACKEND).create()
            install_torch(session, python)
            filled(home, key)
    ask = "import importlib.metadata as m, sysconfig as s; print(m.version('torch'), s.get_path('purelib'))"
    answer = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()
    version, path = answer.split(" ", 1)
    return TorchHome(version, (path,))


def install_torch(session: nox.Session, python: Path) -> None:
    """Install the pinned torch into that Python, from where tools/torch_build.py says."""
    import torch_build  # here: it imports accel_core, which a session without torch can do without

    (version,) = re.findall(r"(?m)^torch==(.+)$", CONSTRAINTS.read_text())
    source = torch_build.source(version, torch_build.on_disk(UV, version))
    session.log(f"torch {version}: {source.why}")
    if source.is_second_best:
        session.log(torch_build.weight(UV, group("torch"), CONSTRAINTS))
    words = ["-c", str(CONSTRAINTS)]
    if only := torch_build.options(source, with_uv=BACKEND == "uv"):
        installing(
            session, "torch", *words, *only, f"torch=={version}", python=str(python)
        )
    installing(session, "torch and numpy", *words, *group("torch"), python=str(python))


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
    folder = NOX / "editables"
    if key := fresh(folder, content):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [
            sys.executable,
            "-c",
            BUILD_EDITABLE,
            str(folder),
            *map(str, PROJECTS),
        ]
        subprocess.run(command, check=True, capture_output=True)
        filled(folder, key)
    return [
        next(folder.glob(f"{path.name if path != ROOT else 'accel_core'}-*.whl"))
        for path in PROJECTS
    ]


def prepare(
    session: nox.Session,
    *groups: str,
    torch: bool = False,
    project: bool = True,
    plugins: bool = True,
    extra: tuple[str, ...] = (),
) -> None:
    """Fill the session's environment: dependency groups, torch if wanted, our distributions editable."""
    with FILLING:
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
    content = [
        file.read_bytes()
        for file in (CONSTRAINTS, *(path / "pyproject.toml" for path in PROJECTS))
    ]
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
        Path(str(site).strip(), "zz_torch_home.pth").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )
    constraints.write_text(text, encoding="utf-8")
    wheels = editables(content) if project else []
    ours = [str(wheel) for wheel in wheels[: None if plugins else 1 + len(PACKAGES)]]
    if wanted or ours:
        what = f"what session {session.name} needs"
        installing(
            session,
            what,
            "-c",
            str(constraints),
            *without_torch(environment, home),
            *wanted,
            *ours,
        )
    if ours:
        # Of an environment that had the same versions the first command has left the old ones.
        installing(
            session,
            f"our {len(ours)} packages, editable",
            "--force-reinstall",
            "--no-deps",
            *ours,
        )
    if extra:
        # Exact versions already, and two sessions may take two of one package.
        build = QUIET_BUILDS | built_with(home)
        installing(
            session,
            ", ".join(extra),
            "--no-build-isolation",
            "--no-deps",
            *extra,
            **build,
        )
    filled(environment, key)


def without_torch(environment: Path, home: TorchHome | None) -> list[str]:
    """Tell uv what is there already: unlike pip it does not see what a .pth file brings."""
    if home is None or BACKEND != "uv":
        return []
    excludes = environment / "excludes.txt"
    excludes.write_text(
        "\n".join(["torch"] if OWN_TORCH else group("torch")) + "\n", encoding="utf-8"
    )
    return ["--excludes", str(excludes)]


def built_with(home: TorchHome | None) -> dict[str, str]:
    """Keep what uv builds apart by torch: DeepSpeed's build notes which one it saw."""
    kept = NOX / f"built-with-torch-{home.version if home else 'none'}"
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
        done = subprocess.run(
            [python, "-c", ""], capture_output=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def interpreters() -> dict[str, str]:
    """Find the Pythons for the torch-free tests: oldest and newest beside this one; else this one."""
    found = {}
    for version in ("3.10", "3.13"):
        pyenv = os.environ.get("PYENV_ROOT", "/nonexistent")
        choices = sorted(
            glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"), reverse=True
        )
        choices += [path for path in [shutil.which(f"python{version}")] if path]
        if python := next(filter(runs, choices), None):
            found[version] = python
    return found or {"{}.{}".format(*sys.version_info): sys.executable}


# ---------------------------------------------------------------------------- what sessions do


def differing(root: Path) -> list[str] | None:
    """Return the files that differ from main, new ones among them; None if git does not know main."""
    git = ("git", "-C", str(root))
    base = subprocess.run(
        [*git, "merge-base", "main", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if base.returncode:
        return None
    asked = (
        [*git, "diff", "--name-only", "-z", base.stdout.strip()],
        [*git, "ls-files", "-o", "--exclude-standard", "-z"],
    )
    return [
        name
        for ask in asked
        for name in subprocess.run(
            ask, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        if name
    ]


def changed(root: Path, folders: list[str]) -> bool:
    """Say whether anything in these folders differs from main; True if git does not know main."""
    found = differing(root)
    return found is None or any(
        name.startswith(f"{folder}/") for name in found for folder in folders
    )


def without(found: Sequence[str], others: Sequence[str]) -> list[str]:
    """Give pytest's options that leave out these folders, where they lie in those that it looks through."""
    inside = tuple(f"{name}/" for name in found)
    return [
        f"--ignore={folder}"
        for folder in others
        if folder.startswith(inside) and folder not in found
    ]


def pytest(
    session: nox.Session, *arguments: str, env: Mapping[str, str | None]
) -> None:
    """Run pytest; in one process, the name of each test stands there while it runs."""
    if not any(word.startswith("-n") for word in arguments):
        arguments = ("-v", *arguments)
    session.run(
        "python", "-m", "pytest", "-p", "xdist", *in_short(session, arguments), env=env
    )


def in_short(session: nox.Session, arguments: Sequence[str]) -> Sequence[str]:
    """Write a long list of arguments into a file for pytest, so that people can read its command line."""
    if len(" ".join(arguments)) < 150:
        return arguments
    file = NOX / "pytest" / f"{re.sub('[^a-z_]', '', session.name)}.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(arguments) + "\n", encoding="utf-8")
    return [f"@{os.path.relpath(file)}"]


def measured(
    session: nox.Session,
    found: Sequence[str],
    env: Mapping[str, str | None],
    *parts: str,
) -> None:
    """Run pytest; under `DEV_COVERAGE=1`, as by night, with branch coverage, which fails below its bound."""
    if not MEASURED:
        pytest(session, *found, env=env)
        return
    session.run("coverage", "erase")
    session.run(
        "coverage",
        "run",
        "-m",
        "pytest",
        "-p",
        "xdist",
        *in_short(session, found),
        env=env,
    )
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", *parts)


def in_own_folder(session: nox.Session, name: str, *packages: str) -> Path:
    """Install packages, without what they depend on, where only who is told finds them."""
    home = Path(session.virtualenv.location) / name
    if key := fresh(home, packages):
        installing(
            session,
            f"{name}, beside the others",
            "--no-deps",
            "--target",
            str(home),
            *packages,
            **QUIET_BUILDS,
        )
        filled(home, key)
    return home


def for_deepspeed(session: nox.Session) -> dict[str, str | None]:
    """The environment of DeepSpeed's tests: torch's autoload is on, by which its ranks hear of us."""
    # What DeepSpeed compiles is kept beside it, so that two releases of it do not build over each other.
    kept = (
        Path(session.virtualenv.location)
        / "torch_extensions"
        / torch_home(session).version
    )
    return {
        **CLEAN,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": None,
        "TORCH_EXTENSIONS_DIR": str(kept),
    }
