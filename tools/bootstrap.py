"""Make our own virtual environment with nox in it, then run sessions of noxfile.py.

    python tools/bootstrap.py              list the sessions
    python tools/bootstrap.py test         run one (or several: lint types)
    python tools/bootstrap.py tests -k pin  what follows the names goes to the session
    python tools/bootstrap.py tests --help  say what that session does, and run nothing

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
import sys
from pathlib import Path

from running import (
    DEV,
    DEV_PYTHON,
    NOX,
    ROOT,
    CommandFailedError,
    Step,
    quietly,
    reason,
    run_steps,
    unwritable,
)

STAMP = DEV / "stamp"
BOOTSTRAP = ("nox", "virtualenv", "uv", "hatchling", "editables", "filelock")
OLDEST_TORCH = (2, 6)
_FOR_PYTEST = "\n\nArguments go to pytest: ./dev {} PATH -k WORD"


def sessions() -> dict[str, str]:
    """Read what the sessions do, by name, from sessions.toml and noxfile.py: without nox or a TOML parser."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        if any(
            ast.unparse(mark).startswith("nox.session") for mark in node.decorator_list
        ):
            takes = "posargs" in (code := ast.unparse(node)) and "pytest(" in code
            found[node.name] = (ast.get_docstring(node) or "") + (
                _FOR_PYTEST.format(node.name) if takes else ""
            )
    rows = (ROOT / "sessions.toml").read_text(encoding="utf-8")
    for name, about, more in re.findall(
        r'(?ms)^\[(\w+)\]\nabout = "(.+?)"$(.*?)(?=^\[|\Z)', rows
    ):
        found[name] = about + ("" if "\ntool" in more else _FOR_PYTEST.format(name))
    return found


def help_text(known: dict[str, str]) -> str:
    """Say what can be run."""
    width = max(map(len, known))
    lines = [
        f"  {name:<{width}}  {text.partition(chr(10))[0]}"
        for name, text in known.items()
    ]
    usage = "./dev SESSION... [arguments]      (Windows: python tools\\bootstrap.py SESSION...)"
    return "\n".join([usage, "./dev SESSION --help", "", *lines])


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

    DEV_TORCH=pinned ignores it.
    """
    if os.environ.get("DEV_TORCH") == "pinned":
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
        print("\n\n".join(f"./dev {name}\n\n{known[name]}" for name in names))
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
        return run_steps([Step(name, tuple(rest)) for name in names])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 (Windows users call this file with whatever `python` is)
        raise SystemExit(
            "dev: Python 3.10 or newer is needed; this is " + sys.version.split()[0]
        )
    raise SystemExit(main(sys.argv[1:]))
