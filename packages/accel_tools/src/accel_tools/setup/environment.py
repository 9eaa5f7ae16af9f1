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
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from accel_tools.setup import builds
from accel_tools.setup.plan import AUTO, Plan

__all__ = [
    "commands_for_this_python",
    "default_installer",
    "find_installer_problems",
    "why_index_is_unreachable",
]

#: Seconds to wait for an index.
_INDEX_SECONDS = 5.0


def default_installer() -> str:
    """Return `"uv"` if uv is installed, otherwise `"pip"`."""
    return "uv" if shutil.which("uv") else "pip"


#: The commands that make a virtual environment and activate it.
_VENV = "python3 -m venv .venv && . .venv/bin/activate"


def find_installer_problems(installer: str) -> Iterator[str]:
    """Yield each reason why an installer cannot change this Python's environment, with the remedy.

    `installer` is `"pip"` or `"uv"`.
    """
    pointer_bytes = struct.calcsize("P")
    if pointer_bytes == 4:
        yield (
            "this Python is 32-bit, but PyTorch has wheels only for 64-bit Pythons. "
            "Next step: use a 64-bit Python"
        )
    if installer == "uv" and shutil.which("uv") is None:
        yield "uv is not installed. Next step: pip install uv"
    if installer == "pip" and PathFinder.find_spec("pip") is None:
        yield (
            "this environment has no pip. Next step: python -m ensurepip, or use --format uv"
        )
    environment_problem = _find_environment_problem()
    if environment_problem:
        yield environment_problem


def _find_environment_problem() -> str:
    """Return why the packages in this environment cannot be changed, and the remedy.

    Returns an empty string if they can be changed.
    """
    site_packages = sysconfig.get_path("purelib")
    if _is_externally_managed():
        return (
            f"the operating system manages the packages in {sys.prefix}, so pip rejects "
            f"changes (PEP 668). Next step: {_VENV}"
        )
    if not os.access(site_packages, os.W_OK):
        return f"{site_packages} is not writable. Next step: {_VENV}"
    if find_spec("torch") is not None and _is_from_conda("pytorch"):
        return (
            "conda manages the torch of this environment, and pip would install a second "
            "torch over it. Next step: conda create --name torch python=3.12 pip"
        )
    return ""


def _is_externally_managed() -> bool:
    """Return whether the operating system manages this Python's packages (PEP 668)."""
    in_venv = sys.prefix != sys.base_prefix
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return not in_venv and marker.is_file()


def _is_from_conda(package: str) -> bool:
    """Return whether conda installed the package in this environment."""
    return any(Path(sys.prefix, "conda-meta").glob(f"{package}-[0-9]*.json"))


def commands_for_this_python(command_line: str) -> list[list[str]]:
    """Split a line such as `"pip install a && pip install b"` into commands for this Python's environment.

    A command is a list of arguments.
    """
    commands = []
    for command in command_line.split(" && "):
        arguments = shlex.split(command)
        if arguments[0] == "pip":
            commands.append([sys.executable, "-m", *arguments])
        else:  # uv
            commands.append([*arguments, "--python", sys.executable])
    return commands


def why_index_is_unreachable(plan: Plan) -> str:
    """Return why the package index with the plan's torch cannot be reached.

    Returns an empty string if the index can be reached. PyPI is not checked, because pip may be configured
    to use a different index.
    """
    if not plan.torch_backend and not plan.torch_index:
        return ""
    # All of PyTorch's indexes are on one server, so the index `cpu` is checked in place of the index
    # that uv will choose.
    name = builds.CPU if plan.torch_backend == AUTO else plan.torch_backend
    index_url = plan.torch_index or builds.index_url(name)
    url = f"{index_url.rstrip('/')}/torch/"
    try:
        with urllib.request.urlopen(url, timeout=_INDEX_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return f"{url} denies access ({error.code})"
        return ""  # The server responded, so pip or uv will report the error.
    except (OSError, ValueError) as error:
        return f"{url} cannot be reached: {getattr(error, 'reason', error)}"
