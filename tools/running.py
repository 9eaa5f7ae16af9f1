"""Run commands for people: a sign of life while one runs, and one sentence with the next step if it fails.

Only the standard library, as tools/bootstrap.py uses it before anything is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Everything that `./dev` installs lies in these two: nox and uv, and the sessions' environments.
DEV, NOX = ROOT / ".dev", ROOT / ".nox"
DEV_PYTHON = DEV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
#: Seconds between two signs of life.
BEAT = 10.0
#: Seconds that each session took when it last passed.
_SECONDS = NOX / "seconds.json"
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


class Step(NamedTuple):
    """One session to run, with its arguments."""

    session: str
    arguments: tuple[str, ...] = ()


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


def lasting(seconds: float) -> str:
    """Return a duration as people say it: `"40 s"`, `"6 min"`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# ---------------------------------------------------------------------------- several sessions


def run_steps(steps: Sequence[Step], beside: Step | None = None, until: int = 0) -> int:
    """Run sessions one after the other; a step `beside` runs while the first `until` of them do.

    Each begins with its number and what the rest takes by the last run's times. Return 0 if all passed.
    """
    known = _times()
    lasts = [None if step.arguments else known.get(step.session) for step in steps]
    failed: list[str] = []
    ahead = 1 if beside else 0
    total = len(steps) + ahead
    if beside:
        name = f"1 of {total}  {beside.session}, beside the next: its output comes at its end"
        _say(name, [known.get(beside.session)])
        second = _Beside(beside)
    for number, step in enumerate(steps):
        name = (
            f"{number + 1 + ahead} of {total}  {step.session}"
            if total > 1
            else step.session
        )
        _say(name, lasts[number:])
        failed += _run(step)
        if beside and number + 1 == until:
            failed += second.end()
    if total > 1:
        print(
            f"\n{total - len(failed)} of {total} passed{'; failed: ' if failed else ''}{', '.join(failed)}"
        )
    return 1 if failed else 0


def _say(name: str, lasts: Sequence[float | None]) -> None:
    """Print what begins, how long it took the last time, and how long all that is left did."""
    said = [f"last time {lasting(lasts[0])}"] if lasts[0] else []
    if len(lasts) > 1 and any(lasts):
        said += [
            f"{'at least ' if None in lasts else ''}{lasting(sum(filter(None, lasts)))} to the end"
        ]
    print(f"\n{name}{' (' + '; '.join(said) + ')' if said else ''}", flush=True)


def _command(step: Step) -> list[str]:
    start = [
        str(DEV_PYTHON),
        "-m",
        "nox",
        "-f",
        str(ROOT / "noxfile.py"),
        "-s",
        step.session,
    ]
    return [*start, "--", *step.arguments]


def _run(step: Step) -> list[str]:
    began = time.monotonic()
    if subprocess.call(_command(step), cwd=ROOT):
        return [step.session]
    _note(step, time.monotonic() - began)
    return []


class _Beside:
    """A session that runs while others do: its output goes to a file, which is printed at its end."""

    def __init__(self, step: Step) -> None:
        self._step, self._began = step, time.monotonic()
        self._file = NOX / f"{step.session}.txt"
        self._file.parent.mkdir(exist_ok=True)
        with self._file.open("w") as output:
            self._process = subprocess.Popen(
                _command(step), stdout=output, stderr=subprocess.STDOUT, cwd=ROOT
            )

    def end(self) -> list[str]:
        """Wait for the session and print its output; return its name if it failed."""
        while True:
            try:
                status = self._process.wait(BEAT)
                break
            except subprocess.TimeoutExpired:
                _beat(self._step.session, self._began)
        print(f"\n{self._file.read_text(errors='replace').strip()}", flush=True)
        if status:
            return [self._step.session]
        _note(self._step, time.monotonic() - self._began)
        return []


def _times() -> dict[str, float]:
    try:
        return dict(json.loads(_SECONDS.read_text()))
    except (OSError, ValueError):
        return {}


def _note(step: Step, seconds: float) -> None:
    if not step.arguments:
        _SECONDS.write_text(json.dumps(_times() | {step.session: round(seconds, 1)}))
