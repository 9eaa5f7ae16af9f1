"""Make our own virtual environment with nox in it, then run sessions of noxfile.py.

    python tools/bootstrap.py              list the sessions
    python tools/bootstrap.py test         run one (or several: lint types)
    python tools/bootstrap.py core -k pin  what follows the names goes to the session
    python tools/bootstrap.py core --help  say what that session does, and run nothing

Only the standard library: it must run on a machine that has nothing else. It installs into `.dev/` and
`.nox/` beside it and nowhere else, so a pip that refuses to touch the system (PEP 668) does not matter.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from running import (
    DEV,
    DEV_PYTHON,
    NOX,
    ROOT,
    CommandFailedError,
    quietly,
    reason,
    unwritable,
)

STAMP = DEV / "stamp"
BOOTSTRAP = ("nox", "virtualenv", "uv", "hatchling", "editables", "filelock")
OLDEST_TORCH = (2, 6)
_FOR_PYTEST = "\n\nArguments go to pytest: ./dev {} PATH -k WORD"


#: The groups of the list, in its order. It leaves out the group `lab`, whose sessions lab/README.md has.
GROUPS = {
    "start": "",
    "checks": "Style, types, documents",
    "tests": "Tests",
    "devices": "Devices and vendors' packages",
    "frameworks": "Frameworks",
    "speed": "Speed",
    "night": "By night",
    "release": "Release",
}


class Session(NamedTuple):
    """A session: the group that it is listed in, and its help."""

    group: str
    about: str


def sessions() -> dict[str, Session]:
    """Read the sessions, by name: without nox or a TOML parser."""
    found = functions((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    for table in (ROOT / "sessions.toml", ROOT / "lab" / "sessions.toml"):
        found |= rows(table.read_text(encoding="utf-8"))
    return found


def functions(noxfile: str) -> dict[str, Session]:
    """Read the sessions that are functions of noxfile.py."""
    found = {}
    for node in ast.parse(noxfile).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if (
                not isinstance(mark, ast.Call)
                or ast.unparse(mark.func) != "nox.session"
            ):
                continue
            options = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
            name = options.get("name", node.name)
            about = ast.get_docstring(node) or ""
            if "posargs" in (code := ast.unparse(node)) and "pytest(" in code:
                about += _FOR_PYTEST.format(name)
            found[name] = Session(options["tags"][0], about)
    return found


def rows(table: str) -> dict[str, Session]:
    """Read the sessions that are rows of a table."""
    found = {}
    for group, name, about, more in re.findall(
        r'(?ms)^\[(\w+)\.([\w-]+)\]\nabout = "(.+?)"$(.*?)(?=^\[|\Z)', table
    ):
        takes_pytests = "\ntool" not in more
        found[name] = Session(
            group, about + (_FOR_PYTEST.format(name) if takes_pytests else "")
        )
    return found


def help_text(known: dict[str, Session]) -> str:
    """Say what can be run: three sessions first, then groups."""
    lines = [
        "./dev SESSION... [arguments]      (Windows: python tools\\bootstrap.py SESSION...)",
        "./dev SESSION --help",
    ]
    width = max(map(len, known))
    for group, title in GROUPS.items():
        lines += ["", *filter(None, [title])]
        lines += [
            f"  {name:<{width}}  {session.about.partition(chr(10))[0]}"
            for name, session in known.items()
            if session.group == group
        ]
    return "\n".join([*lines, "", "lab/README.md has the sessions that record trials."])


def requirements() -> list[str]:
    """Give the pinned lines of constraints.txt for what this script installs."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if re.split(r"[\s=<>!~;]", line)[0] in BOOTSTRAP]


def make_environment() -> list[object]:
    """Make the empty environment `.dev/` and give the command that is its pip."""
    python = [sys.executable, "-m"]
    # An environment without pip is always possible, and the system's pip (22.3 or newer) can fill it:
    # nothing is written outside `.dev/`, so PEP 668 has nothing to refuse.
    host_pip: list[object] = [*python, "pip", "--python", DEV_PYTHON]
    ways: list[tuple[list[object], list[object]]] = [
        # Debian parts ensurepip from Python (package python3-venv): then `-m venv` fails half way.
        ([*python, "venv", DEV], [DEV_PYTHON, "-m", "pip"]),
        ([*python, "virtualenv", "--quiet", DEV], [DEV_PYTHON, "-m", "pip"]),
        ([*python, "venv", "--without-pip", DEV], host_pip),
    ]
    for make, pip in ways:
        shutil.rmtree(DEV, ignore_errors=True)
        try:
            quietly("making .dev", make)
            quietly("asking for pip", [*pip, "--version"])
        except CommandFailedError as error:
            if reason(str(error)):
                raise
            continue
        return pip
    shutil.rmtree(DEV, ignore_errors=True)
    version = "{}.{}".format(*sys.version_info)
    raise CommandFailedError(
        f"dev: {sys.executable} has no venv, which makes environments. Install it (Debian and Ubuntu: "
        f"apt install python{version}-venv), or name another Python: PYTHON=/path/to/python3 ./dev"
    )


def ensure_environment() -> None:
    """Make `.dev/` unless it is there and made from the same requirements by the same Python."""
    wanted = requirements()
    key = hashlib.sha256(
        repr((wanted, sys.version, sys.base_prefix, str(ROOT))).encode()
    ).hexdigest()
    if STAMP.is_file() and STAMP.read_text() == key and DEV_PYTHON.exists():
        return
    print(f"dev: making {DEV} with {', '.join(wanted)} (once)", flush=True)
    pip = make_environment()
    quietly(
        "installing nox and uv",
        [*pip, "install", "--disable-pip-version-check", *wanted],
    )
    STAMP.write_text(key)  # last, so that an interrupted run starts again


def packages_cache() -> dict[str, str]:
    """Return the variable that has uv's cache in the clone where its own folder may not be written."""
    folder = quietly("asking uv", [DEV_PYTHON.with_name("uv"), "cache", "dir"]).strip()
    trouble = unwritable(Path(folder))
    if not trouble:
        return {}
    print(
        f"dev: {folder} may not be written ({trouble}): packages are kept in {NOX / 'cache'}",
        flush=True,
    )
    return {"UV_CACHE_DIR": str(NOX / "cache")}


def own_torch() -> dict[str, object] | None:
    """Find a torch of the user's own in this Python, by its metadata: version and directories.

    DEV_TORCH=pinned ignores it. Return None in an environment that `./dev` made: such an
    environment would be filled from itself.
    """
    if os.environ.get("DEV_TORCH") == "pinned":
        return None
    if Path(sys.prefix).resolve().is_relative_to(NOX.resolve()):
        return None
    try:
        found = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    numbers = re.match(r"(\d+)\.(\d+)", found.version or "")
    if not numbers or tuple(map(int, numbers.groups())) < OLDEST_TORCH:
        return None
    home = str(found.locate_file(""))
    # Its dependencies may lie in another directory than torch itself (user site, distribution's own).
    others = [
        p
        for p in sys.path
        if Path(p).name in ("site-packages", "dist-packages") and Path(p).is_dir()
    ]
    return {
        "version": found.version,
        "paths": list(dict.fromkeys([os.path.abspath(home), *others])),  # noqa: PTH100
    }


def main(arguments: list[str]) -> int:
    """Run the named sessions, or list them."""
    known = sessions()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text(known))
        return 0
    count = next(
        (i for i, word in enumerate(arguments) if word not in known), len(arguments)
    )
    names, rest = arguments[:count], arguments[count:]
    if names and rest[:1] in (["-h"], ["--help"]):  # after `--` it is the session's
        print("\n\n".join(f"./dev {name}\n\n{known[name].about}" for name in names))
        return 0
    if rest[:1] == ["--"]:
        del rest[0]
    if not names:
        print(
            f"dev: no session {arguments[0]!r}.\n\n{help_text(known)}", file=sys.stderr
        )
        return 2
    if trouble := unwritable(ROOT):
        print(
            f"dev: {ROOT} may not be written ({trouble}), and everything is installed there. "
            f"Copy it to a folder of yours: cp -r {ROOT} ~/accel && cd ~/accel",
            file=sys.stderr,
        )
        return 1
    try:
        ensure_environment()
        os.environ.update(packages_cache())
    except CommandFailedError as error:
        print(error, file=sys.stderr)
        return 1
    os.environ.update(
        VIRTUALENV_OVERRIDE_APP_DATA=str(DEV / "virtualenv"),
        VIRTUALENV_NO_PERIODIC_UPDATE="1",
    )
    os.environ.update(
        PIP_DISABLE_PIP_VERSION_CHECK="1", DEV_TORCH_FOUND=json.dumps(own_torch())
    )
    try:
        return subprocess.call(
            [
                DEV_PYTHON,
                "-m",
                "nox",
                "-f",
                ROOT / "noxfile.py",
                "-s",
                *names,
                "--",
                *rest,
            ],
            cwd=ROOT,
        )
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 (Windows users call this file with whatever `python` is)
        raise SystemExit(
            "dev: Python 3.10 or newer is needed; this is " + sys.version.split()[0]
        )
    raise SystemExit(main(sys.argv[1:]))
