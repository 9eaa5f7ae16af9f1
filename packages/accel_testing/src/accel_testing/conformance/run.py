"""Run each group of checks in a child process with a time limit, so that a crash affects only one group."""

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
from accel_testing.conformance.catalogue import Check, select
from accel_testing.conformance.forks import scale_timeout
from accel_testing.conformance.reach import device_failure
from accel_testing.conformance.records import (
    INTERRUPTED,
    ConformanceReport,
    Outcome,
    Result,
)

__all__ = ["run"]

_PAUSE = 0.02
#: The number of seconds in which a child process must begin its first check; it imports torch first.
_START = 180.0
#: Outcomes of checks whose process crashed, hung, or could not run the check.
_WITHOUT_RESULT = (Outcome.NOT_RUN, Outcome.DIED, Outcome.HUNG)
#: The maximum number of consecutive child processes that complete no check before the run gives up.
_MAX_FRUITLESS = 2


def run(
    verdict: Verdict,
    level: int,
    *,
    expected: Path | None = None,
    only: Sequence[str] = (),
    seconds: float | None = None,
    on_begin: Callable[[str], object] = lambda _: None,
) -> ConformanceReport:
    """Run the conformance checks up to `level`, or those of them that `only` names, and return a report.

    `seconds` is the time limit for each check, by default the limit of the check's group. `on_begin` is
    called with the name of each check when the check begins. After Ctrl-C, the report contains the results so
    far. Raises `OSError` if no child process can be started.
    """
    started = time.monotonic()
    settings = _Settings(_pin(verdict), expected, seconds, on_begin)
    selected = select(level, only)
    results: list[Result] = []
    obstacle = ""  # why no further check can run
    for process in dict.fromkeys(check.group.process for check in selected):
        process_checks = [check for check in selected if check.group.process == process]
        if obstacle:
            results += _not_run(process_checks, obstacle)
            continue
        process_results, obstacle = _run_process(process_checks, settings)
        process_results = _with_cause(process_results, verdict)
        results += process_results
        if not obstacle:
            obstacle = _obstacle(process_results)
    position = {check.name: number for number, check in enumerate(selected)}
    return ConformanceReport(
        backend=verdict.name,
        distribution=verdict.provenance.distribution,
        version=verdict.provenance.version,
        kit=__version__,
        torch=_version("torch"),
        python=platform.python_version(),
        simulated=simulated.description(),
        level=level,
        results=tuple(sorted(results, key=lambda result: position[result.check.name])),
        seconds=time.monotonic() - started,
        frameworks=tuple(_frameworks(results)),
    )


def _not_run(not_run_checks: list[Check], reason: str) -> list[Result]:
    """Return results for checks that could not run, all with the same reason."""
    return [Result(check, Outcome.NOT_RUN, reason) for check in not_run_checks]


def _pin(verdict: Verdict) -> str:
    """Return the backend as `name@distribution`, or just its name if the distribution is unknown."""
    if verdict.distribution:
        return f"{verdict.name}@{verdict.distribution}"
    return verdict.name


def _with_cause(results: list[Result], verdict: Verdict) -> list[Result]:
    """Return the results, with the backend's failure as the reason if no check could run.

    In that case, the vendor's package or one of its requirements is the cause rather than the individual
    checks.
    """
    was_interrupted = any(result.message == INTERRUPTED for result in results)
    has_result = any(result.outcome not in _WITHOUT_RESULT for result in results)
    is_declaration = results[0].check.level == 0
    if was_interrupted or has_result or is_declaration:
        return results
    reason = _failure_reason(verdict)
    if not reason:
        return results
    return [
        result._replace(outcome=Outcome.NOT_RUN, message=reason) for result in results
    ]


def _obstacle(results: list[Result]) -> str:
    """Return why later processes cannot run their checks either, or an empty string if they can."""
    messages = {result.message for result in results}
    if INTERRUPTED in messages:
        return INTERRUPTED
    is_declaration = results[0].check.level == 0
    none_ran = all(result.outcome is Outcome.NOT_RUN for result in results)
    if none_ran and len(messages) == 1 and not is_declaration:
        return results[0].message  # no accelerator is available
    return ""


def _frameworks(results: list[Result]) -> Iterator[str]:
    """Yield each framework that passed a check, with its version, as in `"deepspeed 0.19.8"`."""
    needs_of_passed_groups: list[tuple[str, ...]] = []
    for result in results:
        if result.outcome is Outcome.PASSED:
            needs_of_passed_groups += result.check.group.needs
    # Each need is a tuple of alternative distributions. Duplicates are removed, and the order is kept.
    for alternatives in dict.fromkeys(needs_of_passed_groups):
        if alternatives[0] not in OWN_MODULES:
            yield _installed_of(alternatives)


def _installed_of(names: tuple[str, ...]) -> str:
    """Return the first installed distribution with its version, or the first name if none is installed."""
    for name in names:
        version = _version(name)
        if version:
            return f"{name} {version}"
    return names[0]


def _version(distribution: str) -> str:
    """Return the version of a distribution, or an empty string if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return ""


class _Settings(NamedTuple):
    """The settings that all child processes of a run share."""

    pin: str
    expected: Path | None
    #: The time limit for each check in seconds, or `None` for the limit of the check's group.
    seconds: float | None
    on_begin: Callable[[str], object]


def _run_process(
    process_checks: list[Check], settings: _Settings
) -> tuple[list[Result], str]:
    """Run the checks that share a process, and return their results.

    If a check ends the process, or loses the connection to its device, a new process runs the remaining
    checks. Also returns the reason why no later check can run, or an empty string.
    """
    results: list[Result] = []
    remaining = list(process_checks)
    fruitless_processes = 0  # consecutive processes that completed no check
    while remaining:
        records = _Records(remaining, settings.on_begin)
        ending = _run_child(remaining, settings, records)
        results += records.results
        remaining = [check for check in remaining if check not in records.ended]
        fruitless_processes += 1
        if records.ended:
            fruitless_processes = 0
        if _has_ended_between_checks(records, ending):
            return results + _not_run(remaining, ending.reason), ""
        if records.current is not None and not records.is_lost:
            results.append(_fatal_result(records.current, ending))
            remaining.remove(records.current)
        failure = _device_failure_after(records, ending, settings)
        if failure:
            return results + _not_run(remaining, failure), failure
        if fruitless_processes > _MAX_FRUITLESS:
            return results + _not_run(remaining, ending.reason), ""
    return results, ""


def _has_ended_between_checks(records: _Records, ending: _Ending) -> bool:
    """Return whether the process ended between checks, or was interrupted, without losing its device."""
    is_between = records.current is None or ending.reason == INTERRUPTED
    return is_between and not records.is_lost


def _device_failure_after(
    records: _Records, ending: _Ending, settings: _Settings
) -> str:
    """Return why the device stopped working after a check that lost it or hung, or an empty string."""
    if records.is_lost or ending.is_hung:
        return device_failure(settings.pin)
    return ""


def _fatal_result(check: Check, ending: _Ending) -> Result:
    """Return the result for the check in which the process crashed or hung."""
    outcome = Outcome.HUNG if ending.is_hung else Outcome.DIED
    return Result(check, outcome, ending.reason, ending.seconds)


class _Ending(NamedTuple):
    """The way in which a child process ended."""

    is_hung: bool
    reason: str
    seconds: float


class _Records:
    """The records that a child process has written so far through the plugin `reporting`."""

    def __init__(
        self, expected_checks: list[Check], on_begin: Callable[[str], object]
    ) -> None:
        self.results: list[Result] = []
        self.ended: set[Check] = set()
        #: The check that is running, or `None` between checks.
        self.current: Check | None = None
        #: Whether a check lost the connection to the device.
        self.is_lost = False
        #: The time at which the last record was read, as returned by `time.monotonic()`.
        self.updated = time.monotonic()
        self._by_node = {check.node: check for check in expected_checks}
        self._on_begin = on_begin
        self._offset = 0

    def read_new(self, file: Path) -> None:
        """Read the complete lines that were added to the file since the last call."""
        with file.open("rb") as stream:
            stream.seek(self._offset)
            text = stream.read()
        # The process may still be writing the last line.
        complete_lines = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        for line in complete_lines.splitlines():
            with contextlib.suppress(ValueError):
                self._add(json.loads(line))

    def _add(self, record: dict[str, Any]) -> None:
        """Process a record, which reports that a check has begun or ended."""
        self.updated = time.monotonic()
        if "begins" in record:
            node = record["begins"]
        else:
            node = record.get("ended", "")
        check = self._by_node.get(node)
        if check is None:
            return
        if "begins" in record:
            self.current = check
            self._on_begin(check.name)
            return
        outcome = Outcome(record["outcome"])
        if check in self.ended:  # the check's teardown failed
            self.results = [
                result._replace(outcome=outcome) if result.check == check else result
                for result in self.results
            ]
        else:
            self.results.append(
                Result(check, outcome, record["message"], record["seconds"])
            )
        self.ended.add(check)
        self.current = None
        self.is_lost = self.is_lost or record["is_lost"]


def _run_child(
    process_checks: list[Check], settings: _Settings, records: _Records
) -> _Ending:
    """Run checks in a child process, add their records to `records`, and return how the process ended."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="accel-verify-") as folder,
        tempfile.TemporaryFile() as output,
    ):
        results_file = Path(folder, "results")
        results_file.touch()
        process = subprocess.Popen(
            _command(process_checks, settings, results_file, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                records.read_new(results_file)
                if records.is_lost:
                    break  # the next process opens a new connection to the device
                waited = time.monotonic() - records.updated
                if waited > _time_limit(records.current, settings):
                    reason = (
                        f"the process did not end in {waited:.0f} s, and was killed"
                    )
                    return _Ending(is_hung=True, reason=reason, seconds=waited)
                time.sleep(_PAUSE)
        except KeyboardInterrupt:
            records.read_new(results_file)
            seconds = time.monotonic() - began
            return _Ending(is_hung=False, reason=INTERRUPTED, seconds=seconds)
        finally:
            processes.end_group(process)
            process.wait()
        records.read_new(results_file)
        reason = _describe_crash(process.returncode, output)
        seconds = time.monotonic() - began
        return _Ending(is_hung=False, reason=reason, seconds=seconds)


def _time_limit(check: Check | None, settings: _Settings) -> float:
    """Return the time limit in seconds for a check, or for the start of the process if `check` is `None`."""
    if check is None:
        return scale_timeout(_START)
    return settings.seconds or scale_timeout(check.group.seconds)


def _command(
    process_checks: list[Check], settings: _Settings, results_file: Path, folder: str
) -> list[str]:
    """Return the command that runs pytest on these checks."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", folder, "--noconftest",
        "-p", "accel_testing.conformance.option", "-p", "accel_testing.conformance.reporting",
        "-p", "no:cacheprovider", "-W", "ignore", "--import-mode=importlib",
        "--accel", settings.pin, "--accel-results", str(results_file),
    ]  # fmt: skip
    if settings.expected is not None:
        command += ["--accel-expected", str(settings.expected.absolute())]
    command += [f"{check.group.file}::{check.node}" for check in process_checks]
    return command


def _environment() -> dict[str, str]:
    """Return this process's environment without the options that the user has set for pytest."""
    environ = dict(os.environ)
    environ.pop("PYTEST_ADDOPTS", None)
    # With this variable a simulated device detects every missing wait; other devices ignore the variable.
    environ.setdefault("ACCEL_SIMULATE_RACE", "1")
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return environ


#: The innermost call of the thread that crashed, in the output of Python's faulthandler.
_CRASHED_CALL = re.compile(
    r'Current thread .*\n(?:  .*<invalid frame>\n)?  File "(.+)", line (\d+) in (.+)'
)
#: The number of bytes of a child's output to read, because faulthandler also lists all extension modules.
_OUTPUT_BYTES = 1 << 17


def _describe_crash(returncode: int, output: Any) -> str:
    """Return how a child process ended during its checks: the call that crashed, or the last output."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT_BYTES))
    text = output.read().decode("utf-8", "replace").strip()
    report = child.ChildReport(returncode=returncode, stderr=text)
    ending = f"its process {report.ending}"
    calls = _CRASHED_CALL.findall(text)
    if calls:
        file, line, function = calls[-1]
        return f"{ending} in {function} ({file}, line {line})"
    return f"{ending}{report.last_words}"


def _failure_reason(verdict: Verdict) -> str:
    """Return why the backend fails, with the next step, or an empty string if the backend works."""
    backend = (verdict.name, verdict.provenance)
    for surveyed in survey(read_settings()).verdicts:
        is_same = (surveyed.name, surveyed.provenance) == backend
        if is_same and surveyed.status.is_failure:
            return f"{surveyed.reason}. {surveyed.hint}".strip()
    return ""
