"""Run commands for people: a sign of life while one runs, and one sentence with the next step if it fails.

Only the standard library, as tools/bootstrap.py uses it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Everything that `./dev` installs lies in these two: nox and uv, and the sessions' environments.
DEV, NOX = ROOT / ".dev", ROOT / ".nox"
DEV_PYTHON = DEV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
#: Seconds between two signs of life.
BEAT = 10.0
# What installers print, in their own words or the operating system's.
_SPACE = "No space left on device|os error 28|Errno 28"
#: Megabytes without which nothing can be installed.
_LEAST = 20
_NETWORK = (
    "dns error|failed to lookup|name resolution|[Nn]ame or service not known|Network is unreachable"
    "|error sending request|tcp connect error|Failed to establish a new connection"
)
_DENIED = "Read-only file system|os error 30|Permission denied|os error 13"


class CommandFailedError(Exception):
    """A command that ended with another status than 0; says what it printed and, if known, what to do."""


def quietly(what: str, command: Sequence[object], **options: Any) -> str:
    """Run a command and return its output, which is shown if it fails; say each ten seconds that it runs."""
    began = time.monotonic()
    words = [str(word) for word in command]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options,
    ) as process:
        while True:
            try:
                output, _ = process.communicate(timeout=BEAT)
                break
            except subprocess.TimeoutExpired:
                _beat(what, began)
    if process.returncode:
        raise CommandFailedError(
            f"{output.strip()}\ndev: {what} failed. {reason(output)}".strip()
        )
    return output


def _beat(what: str, began: float) -> None:
    print(f"     … {what}: {time.monotonic() - began:.0f} s so far", flush=True)


def reason(output: str) -> str:
    """Return one sentence on why a command failed, with the next step; empty where its output names none."""
    free = shutil.disk_usage(ROOT).free // 2**20
    if re.search(_SPACE, output) or free < _LEAST:  # venv does not say why it failed
        return (
            f"No space is left: {ROOT} has {free:,} MB free, and the smallest session needs 300, with torch "
            "1,200. Free some, then run the same again."
        )
    if re.search(_NETWORK, output):
        return (
            "The packages' index does not answer. Connect to a network, or name a mirror, and run the same "
            "again: export PIP_INDEX_URL=https://MIRROR/simple"
        )
    if re.search(_DENIED, output):
        return (
            "A file of an earlier run may not be changed: another user made it, or the disk is read-only. "
            f"Delete what was installed, then run the same again: rm -rf {DEV} {NOX}"
        )
    return ""


def unwritable(folder: Path) -> str:
    """Return why no file can be made in a folder, which is made if it is missing; empty if one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)
