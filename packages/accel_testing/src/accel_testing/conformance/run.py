"""Run the checks: each group in a child process with a deadline, so that its crash affects no other group."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accel_core import Verdict, __version__
from accel_core.exceptions import OWN_MODULES
from accel_core.sandbox import child, processes
from accel_core.settings import read as read_settings
from accel_core.survey import survey
from accel_testing.conformance import simulated
from accel_testing.conformance.catalogue import Check, checks
from accel_testing.conformance.forks import patient
from accel_testing.conformance.records import INTERRUPTED, Card, Outcome, Result

__all__ = ["run"]

_PAUSE = 0.02
#: Seconds in which a child must have begun its first check: it imports torch, on a machine under load too.
_START = 180.0
#: Of checks that their process did not survive, or that had none.
_ENDED = (Outcome.NOT_RUN, Outcome.DIED, Outcome.HUNG)
#: Children in a row that may end before a single check has: more would tell nothing new.
_MOST_IN_VAIN = 2


def run(
    candidate: Verdict,
    level: int,
    *,
    expected: Path | None = None,
    only: Sequence[str] = (),
    seconds: float | None = None,
    begins: Callable[[str], object] = lambda _: None,
) -> Card:
    """Run the checks up to `level`, or those that `only` names, and return the card.

    Each check may take as long as its group allows, or `seconds`. `begins` is called with the name of each
    check when it begins. After Ctrl-C in a check the card has what was found until then. Raises `OSError` if
    no child process can be started.
    """
    started = time.monotonic()
    pin = (
        f"{candidate.name}@{candidate.distribution}"
        if candidate.distribution
        else candidate.name
    )
    wanted = [
        check
        for check in checks()
        if check.level <= level and (not only or check.name in only)
    ]
    results: list[Result] = []
    obstacle = ""
    for process in dict.fromkeys(check.group.process for check in wanted):
        members = [check for check in wanted if check.group.process == process]
        if obstacle:
            results += [Result(check, Outcome.NOT_RUN, obstacle) for check in members]
            continue
        found = list(_of_process(members, _Order(pin, expected, seconds, begins)))
        if any(r.message == INTERRUPTED for r in found):
            obstacle = INTERRUPTED
        # No check came to its end: the package is to blame, or what it needs, and not each check in turn.
        elif (
            members[0].level
            and all(r.outcome in _ENDED for r in found)
            and (why := _failing(candidate))
        ):
            found = [r._replace(outcome=Outcome.NOT_RUN, message=why) for r in found]
        results += found
        reasons = {result.message for result in found}
        if (
            members[0].level
            and len(reasons) == 1
            and all(r.outcome is Outcome.NOT_RUN for r in found)
        ):
            obstacle = next(
                iter(reasons)
            )  # there is no accelerator: no other group will find one
    order = {check.name: place for place, check in enumerate(wanted)}
    return Card(
        backend=candidate.name,
        distribution=candidate.provenance.distribution,
        version=candidate.provenance.version,
        kit=__version__,
        torch=_version("torch"),
        python=platform.python_version(),
        simulated=simulated.told(),
        level=level,
        results=tuple(sorted(results, key=lambda result: order[result.check.name])),
        seconds=time.monotonic() - started,
        frameworks=tuple(_frameworks(results)),
    )


def _frameworks(results: list[Result]) -> Iterator[str]:
    """Those that passed a check, with their versions."""
    passed = dict.fromkeys(
        result.check.group for result in results if result.outcome is Outcome.PASSED
    )
    needed = dict.fromkeys(row for group in passed for row in group.needs)
    for row in (row for row in needed if row[0] not in OWN_MODULES):
        yield next(
            (f"{name} {version}" for name in row if (version := _version(name))), row[0]
        )


def _version(distribution: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return ""


class _Order(NamedTuple):
    """The settings shared by every child of a run."""

    pin: str
    expected: Path | None
    seconds: float | None
    begins: Callable[[str], object]


def _of_process(members: list[Check], order: _Order) -> Iterator[Result]:
    """The results of one process's checks; after a check that ends it another one does the rest."""
    left = list(members)
    in_vain = 0
    while left:
        told = _Told(left, order.begins)
        ending = _child(left, order, told)
        yield from told.results
        left = [check for check in left if check not in told.ended]
        if not left:
            return
        if told.current is not None and ending.words != INTERRUPTED:
            outcome = Outcome.HUNG if ending.hung else Outcome.DIED
            yield Result(told.current, outcome, ending.words, ending.seconds)
            left.remove(told.current)
        in_vain = 0 if told.ended else in_vain + 1
        if (
            told.current is None
            or in_vain > _MOST_IN_VAIN
            or ending.words == INTERRUPTED
        ):
            for check in left:
                yield Result(check, Outcome.NOT_RUN, ending.words)
            return


class _Ending(NamedTuple):
    hung: bool
    words: str
    seconds: float


class _Told:
    """A child's records so far."""

    def __init__(self, members: list[Check], begins: Callable[[str], object]) -> None:
        self.results: list[Result] = []
        self.ended: set[Check] = set()
        self.current: Check | None = None
        self.since = time.monotonic()
        self._by_node = {check.node: check for check in members}
        self._begins = begins
        self._read = 0

    def look(self, file: Path) -> None:
        """Take in the lines that are new."""
        with file.open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        self.since = time.monotonic()
        check = self._by_node.get(line.get("begins", line.get("ended", "")))
        if check is None:
            return
        if "begins" in line:
            self.current = check
            self._begins(check.name)
            return
        outcome = Outcome(line["outcome"])
        if check in self.ended:  # its tear-down failed
            self.results = [
                r if r.check != check else r._replace(outcome=outcome)
                for r in self.results
            ]
        else:
            self.results.append(
                Result(check, outcome, line["message"], line["seconds"])
            )
        self.ended.add(check)
        self.current = None


def _child(members: list[Check], order: _Order, told: _Told) -> _Ending:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="accel-verify-") as folder,
        tempfile.TemporaryFile() as output,
    ):
        results = Path(folder, "results")
        results.touch()
        process = subprocess.Popen(
            _command(members, order, results, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                told.look(results)
                waited = time.monotonic() - told.since
                own = patient(told.current.group.seconds if told.current else _START)
                limit = order.seconds or own if told.current else own
                if waited > limit:
                    return _Ending(
                        True, f"it did not end in {waited:.0f} s, and was ended", waited
                    )
                time.sleep(_PAUSE)
        except KeyboardInterrupt:
            told.look(results)
            return _Ending(False, INTERRUPTED, time.monotonic() - began)
        finally:
            processes.end_group(process)
            process.wait()
        told.look(results)
        return _Ending(
            False, _how(process.returncode, output), time.monotonic() - began
        )


def _command(
    members: list[Check], order: _Order, results: Path, folder: str
) -> list[str]:
    plugins = (
        "accel_testing.conformance.option",
        "accel_testing.conformance.reporting",
    )
    return [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", folder, "--noconftest",
        *(part for plugin in plugins for part in ("-p", plugin)), "-p", "no:cacheprovider", "-W", "ignore",
        "--import-mode=importlib", "--accel", order.pin, "--accel-results", str(results),
        *(["--accel-expected", str(order.expected.absolute())] if order.expected else []),
        *(f"{check.group.file}::{check.node}" for check in members),
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """Ours, without what the user asks of pytest for tests of his own."""
    kept = {
        name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"
    }
    # Of a simulated device a missing wait is found for certain; no other reads the variable.
    return {"ACCEL_SIMULATE_RACE": "1", **kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


#: As Python's faulthandler writes the thread that died, its innermost call first.
_DIED_IN = re.compile(
    r'Current thread .*\n(?:  .*<invalid frame>\n)?  File "(.+)", line (\d+) in (.+)'
)
#: How much of a child's output is read: faulthandler ends with the names of all extension modules.
_OUTPUT = 1 << 17


def _how(code: int, output: Any) -> str:
    """How a child that did not come to its end ended, and in which call, or else its last words."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT))
    said = output.read().decode("utf-8", "replace").strip()
    report = child.ChildReport(returncode=code, stderr=said)
    ending = f"its process {report.ending}"
    if calls := _DIED_IN.findall(said):
        file, line, function = calls[-1]
        return f"{ending} in {function} ({file}, line {line})"
    return f"{ending}{report.last_words}"


def _failing(candidate: Verdict) -> str:
    """Give `accel why`'s reason for a failing candidate, and the next step; empty for any other."""
    for verdict in survey(read_settings()).verdicts:
        same = (verdict.name, verdict.provenance) == (
            candidate.name,
            candidate.provenance,
        )
        if same and verdict.status.is_failure:
            return f"{verdict.reason}. {verdict.hint}".strip()
    return ""
