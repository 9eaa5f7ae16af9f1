"""Check the environment that the installation command would change, before the command runs."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from accel_tools.setup import builds
from accel_tools.setup.plan import AUTO, Plan

__all__ = ["default_format", "problems", "runnable", "unreachable"]

#: Seconds to wait for an index.
_INDEX_SECONDS = 5.0


def default_format() -> str:
    """Return `"uv"` if uv is installed, otherwise `"pip"`."""
    return "uv" if shutil.which("uv") else "pip"


_VENV = "python3 -m venv .venv && . .venv/bin/activate"


def problems(form: str) -> Iterator[str]:
    """Yield the reasons why an installer cannot change this Python's environment, each with a remedy.

    `form` is the installer, `"pip"` or `"uv"`.
    """
    if struct.calcsize("P") == 4:
        yield (
            "this Python is 32-bit, but PyTorch has wheels only for 64-bit Pythons: "
            "use a 64-bit Python"
        )
    if form == "uv" and shutil.which("uv") is None:
        yield "uv is not installed: pip install uv"
    if form == "pip" and find_spec("pip") is None:
        yield "this environment has no pip: python -m ensurepip, or use --format uv"
    yield from _environment_problems()


def _environment_problems() -> Iterator[str]:
    """Yield the first reason why the packages of this environment cannot be changed, if any."""
    site = sysconfig.get_path("purelib")
    if _is_externally_managed():
        yield (
            f"the system manages {sys.prefix}, so pip rejects changes to it (PEP 668): "
            f"{_VENV}"
        )
    elif not os.access(site, os.W_OK):
        yield f"{site} is not writable: {_VENV}"
    elif find_spec("torch") is not None and _is_from_conda("pytorch"):
        yield (
            "conda manages the torch of this environment, and pip would install a second "
            "torch over it: conda create --name torch python=3.12 pip"
        )


def _is_externally_managed() -> bool:
    in_venv = sys.prefix != sys.base_prefix
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return not in_venv and marker.is_file()


def _is_from_conda(package: str) -> bool:
    return any(Path(sys.prefix, "conda-meta").glob(f"{package}-[0-9]*.json"))


def runnable(line: str) -> list[list[str]]:
    """Return the commands of a line such as `"pip install a && pip install b"` as argument lists.

    The commands are changed to install into this Python's environment.
    """
    commands = []
    for part in line.split(" && "):
        words = shlex.split(part)
        if words[0] == "pip":
            commands.append([sys.executable, "-m", *words])
        else:
            commands.append([*words, "--python", sys.executable])
    return commands


def unreachable(plan: Plan) -> str:
    """Return why the plan's index with torch cannot be reached; empty if it can be reached.

    PyPI is not checked, because pip may be configured to use a different index.
    """
    if not plan.torch_backend and not plan.torch_index:
        return ""
    # All of PyTorch's indexes are on one server, so the index `cpu` is checked in place of the index
    # that uv will choose.
    index = builds.CPU if plan.torch_backend == AUTO else plan.torch_backend
    base = plan.torch_index or builds.index_of(index)
    address = f"{base.rstrip('/')}/torch/"
    try:
        with urllib.request.urlopen(address, timeout=_INDEX_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return f"{address} denies access ({error.code})"
        return ""
    except (OSError, ValueError) as error:
        return f"{address} cannot be reached: {getattr(error, 'reason', error)}"
