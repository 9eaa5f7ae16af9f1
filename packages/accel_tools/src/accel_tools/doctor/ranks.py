"""`accel run --doctor`: compare the ranks' machines, and connect them, before the ranks' scripts start.

    python -m accel_tools.doctor.ranks VARIABLE...

The worker of each rank starts this program with the rank's environment variables. Each rank
examines its machine, and rank 0 reports the differences. The program runs in a separate
process, so that the program's store and torch do not affect the script. Each `VARIABLE` is the
name of an environment variable with a different value on each rank. The exit status is `REFUSED`
if no rank may start its script.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from accel_core import Selection, __version__, torch_build
from accel_core.errors import AccelError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import processes
from accel_core.settings import read as read_settings
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor.ranks_gloo import MAX_RANKS, connect_over_gloo
from accel_tools.doctor.records import DiagnosticContext, Finding, Topic
from accel_tools.doctor.run import run_topics
from accel_tools.doctor.topics import machine, visible_devices
from accel_train.launch.agreement import exchange_records, format_ranks
from accel_train.launch.rendezvous import Rank, Rendezvous, read_rank, rendezvous
from accel_train.launch.worker import REFUSED

__all__ = ["RankReport", "compare_ranks", "main"]

#: The time limit in seconds for one rank's report, in addition to the probe of its device.
_REPORT_SECONDS = 20.0
#: How many seconds a rank waits for the reports of the other ranks.
_EXCHANGE_SECONDS = 60.0
#: How many seconds a rank waits until rank 0 has closed its store. The script uses the same port.
_CLOSE_SECONDS = 5.0
#: The beginnings of the names of facts that normally differ between ranks of one host: each rank is bound
#: to different cores, and the amount of free memory changes.
_FACTS_OF_ONE_RANK = ("cores", "memory", "CPU quota")
#: Facts of the topic `machine` that `_examine_rank` adds to the report itself.
_FACTS_REPORTED_ELSEWHERE = ("system", "Python")
#: The codes of findings whose text normally differs between ranks of one host. Their texts are not compared.
_VARYING_CODES = (
    "machine.little-memory",
    "machine.little-shared-memory",
    "machine.shared-memory",
)
#: The environment variables whose values are compared, as shell patterns.
_COMPARED_VARIABLES = re.compile(
    "|".join(
        fnmatch.translate(pattern)
        for pattern in (
            "DS_ACCELERATOR", "DS_ALLOW_DEPRECATED_FP16", "ACCEL_ALLOW", "ACCEL_BLOCK", "ACCEL_STRICT",
            "ACCEL_PROBE", "ACCEL_PROBE_TIMEOUT", "ACCEL_INTEGRATIONS",
            "ACCEL_COMMUNICATION_BACKEND", "ACCEL_VENDOR_DEFAULTS", "ACCEL_SIMULATE", "*_VISIBLE_DEVICES",
            "*_VISIBLE_MODULES", "*_VERSION", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY",
            "ONEAPI_DEVICE_SELECTOR", "CUDA_DEVICE_ORDER", "HSA_OVERRIDE_GFX_VERSION",
            "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE", AUTOLOAD, "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_NPU_ALLOC_CONF", "OMP_NUM_THREADS", "ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE",
            "PT_HPU_LAZY_MODE", "PT_HPU_LAZY_ACC_PAR_MODE",
        )
    )
)  # fmt: skip
#: The verdicts that rank 0 sends to the other ranks: no script may start, all scripts may start, or all ranks
#: first connect over gloo.
_START_NONE, _START_ALL, _CONNECT_FIRST = "refused", "start", "connect"
#: The maximum number of characters of a text, and of facts, that are read from a rank's report.
_MAX_TEXT, _MAX_FACTS = 500, 400
#: The maximum number of hosts that a line names; the others are counted.
_MAX_HOSTS = 3


class RankReport(NamedTuple):
    """A rank's report about its machine, with facts to compare with those of other ranks."""

    rank: int
    host: str
    #: The observed facts by name, in the order of the report.
    facts: dict[str, str]
    #: The reason why no accelerator can be chosen. Otherwise, an empty string.
    problem: str = ""

    @classmethod
    def read(cls, rank: int, data: bytes) -> RankReport:
        """Return the report that a rank has put into the store as JSON.

        The JSON is not trusted, so the length of texts and the number of facts are limited. A report that
        cannot be read is replaced with a report that contains the error.
        """
        try:
            host, facts, problem = json.loads(data)
            limited_facts = {}
            for name, value in list(facts.items())[:_MAX_FACTS]:
                limited_facts[_limit_text(name)] = _limit_text(value)
            return cls(rank, _limit_text(host), limited_facts, _limit_text(problem))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            facts = {"report": f"unreadable: {type(error).__name__}"}
            return cls(rank, "unknown", facts)

    def to_json(self) -> str:
        """Return the report as JSON for the store, without the rank's number."""
        return json.dumps([self.host, self.facts, self.problem])


def main(own_variables: Sequence[str]) -> int:
    """Examine this rank, compare it with the other ranks, and return the exit status.

    `own_variables` contains the names of variables that have a different value on each rank, and that are
    not compared. If the examination itself fails, the error is printed on stderr and the exit status is 0,
    so that the script starts.
    """
    processes.end_with_parent(os.getppid())
    try:
        rank = read_rank()
        report_seconds = _REPORT_SECONDS + read_settings().probe_timeout
        exchange_seconds = report_seconds + _EXCHANGE_SECONDS
        # The signal ends this process if it hangs in a vendor's code or in the store. The rank's
        # script then starts.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * exchange_seconds)
        report = _examine_rank(rank, own_variables, report_seconds)
        return _exchange_reports(rank, report, exchange_seconds)
    except AccelError as error:
        _print_failure(str(error))
    except PLUGIN_ERRORS as error:
        _print_failure(root_cause(error))
    return 0


def _print_failure(reason: str) -> None:
    reason_on_one_line = " ".join(reason.split())
    _print_lines(
        [f"this rank was not compared with the other ranks: {reason_on_one_line}"]
    )


# --- One rank ------------------------------------------------------------------------


def _examine_rank(rank: Rank, own_variables: Sequence[str], limit: float) -> RankReport:
    """Return the report on this rank: versions, the chosen accelerator, variables and findings.

    Args:
        rank: This rank.
        own_variables: The names of variables that are left out.
        limit: The time limit in seconds.
    """
    deadline = time.monotonic() + limit
    settings = read_settings()
    if settings.pins:
        # The launcher pins the backend that it has chosen, so the ranks probe only this backend.
        settings = replace(settings, allow=settings.pins)
    context = DiagnosticContext(settings, dict(os.environ))
    build = torch_build()
    facts = {
        "accel-core": __version__,
        "torch": build.version if build is not None else "not installed",
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
    }
    problem = ""
    try:
        facts["accelerator"] = _chosen_accelerator(context)
    except AccelError as error:
        problem = str(error)
    except PLUGIN_ERRORS as error:
        facts["accelerator"] = f"unknown: {root_cause(error)}"
    for name in sorted(context.environ):
        if _COMPARED_VARIABLES.match(name) and name not in own_variables:
            facts[name] = context.environ[name]
    seconds_left = max(1.0, deadline - time.monotonic())
    topics = _topics_to_examine(own_variables)
    for result in run_topics(context, topics, seconds_left):
        facts.update(_facts_to_compare(result.name, result.findings))
        if result.failed:
            facts[result.title] = f"could not be examined: {result.failed}"
    return RankReport(rank.rank, rank.host, facts, problem)


def _chosen_accelerator(context: DiagnosticContext) -> str:
    """Return the chosen accelerator as text, such as `"npu (accel-npu 0.1.0), 8 devices"`.

    Raises `AccelError` with the reason if no accelerator can be chosen.
    """
    selection = context.survey().selection
    if selection is None:
        raise AccelError("no backend was probed")
    if selection.name is None:
        raise AccelError(selection.problem)
    text = f"{selection.name} ({selection.provenance})"
    count = _device_count(selection)
    if count is not None:
        text += f", {count} device{'' if count == 1 else 's'}"
    return text


def _device_count(selection: Selection) -> int | None:
    """Return the number of devices of the chosen backend.

    Returns `None` if they were not counted.
    """
    for verdict in selection.verdicts:
        if verdict.name == selection.name:
            return verdict.devices
    return None


def _topics_to_examine(own_variables: Sequence[str]) -> list[Topic]:
    """Return the topics to examine on each rank.

    The topic `visible-devices` is left out if each rank has its own visible devices, which is the case
    if `own_variables` contains a variable that limits them.
    """
    for name in own_variables:
        if "VISIBLE" in name or name == "ZE_AFFINITY_MASK":
            return [machine.TOPIC]
    return [machine.TOPIC, visible_devices.TOPIC]


def _facts_to_compare(
    topic: str, findings: Sequence[Finding]
) -> Iterator[tuple[str, str]]:
    """Yield the names and values to compare: the text of each finding, and each of its facts."""
    for finding in findings:
        if finding.code not in _VARYING_CODES:
            yield f"{finding.about} {finding.code}".strip(), finding.text
        for name, value in finding.all_facts.items():
            is_of_one_rank = name.startswith(_FACTS_OF_ONE_RANK)
            if not is_of_one_rank and name not in _FACTS_REPORTED_ELSEWHERE:
                yield f"{topic}: {name}", value


# --- All ranks -----------------------------------------------------------------------


def _exchange_reports(rank: Rank, report: RankReport, timeout: float) -> int:
    """Send this rank's report to rank 0, wait for rank 0's verdict, and return the exit status.

    Rank 0 compares the reports, prints the differences, and decides whether the scripts may start. If they
    may, all ranks connect over gloo, and rank 0 prints why they cannot.
    """

    def decide(data_of_other_ranks: Mapping[int, bytes]) -> str:
        reports = [report]
        for other_rank, data in sorted(data_of_other_ranks.items()):
            reports.append(RankReport.read(other_rank, data))
        comparison = compare_ranks(reports, rank.world_size, timeout)
        # The lines are printed before the verdict is sent: when a refused rank exits, the launcher
        # terminates the other ranks.
        _print_lines(comparison.lines)
        if comparison.is_refused:
            return _START_NONE
        have_all_reported = len(reports) == rank.world_size
        if have_all_reported and rank.world_size <= MAX_RANKS:
            return _CONNECT_FIRST
        return _START_ALL

    if rank.world_size == 1:
        return REFUSED if decide({}) == _START_NONE else 0
    # torch would warn that rank 0 has closed the store, which is expected here.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    connection = rendezvous(rank, None, None, timedelta(seconds=timeout))
    data = report.to_json()
    exchange = exchange_records(connection.store, rank, data, decide, timeout)
    verdict = exchange.verdict.decode()
    if verdict == _CONNECT_FIRST:
        lines = connect_over_gloo(connection.store, rank)
        if lines:
            _print_lines(lines)
    if rank.rank != 0:
        _wait_until_store_is_closed(connection)
    return REFUSED if verdict == _START_NONE else 0


def _wait_until_store_is_closed(connection: Rendezvous) -> None:
    """Wait until rank 0's process has closed the store, so that no script connects to this store."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The store is torchrun's, which rank 0 does not close.
        return
    deadline = time.monotonic() + _CLOSE_SECONDS
    # check() raises RuntimeError when the store is closed.
    with contextlib.suppress(RuntimeError):
        while time.monotonic() < deadline:
            connection.store.check(["closed"])
            time.sleep(0.02)


class RankComparison(NamedTuple):
    """The differences between ranks, and whether the ranks may start their scripts."""

    #: The lines to print.
    lines: list[str]
    #: Whether no rank may start its script.
    is_refused: bool


def compare_ranks(
    reports: Sequence[RankReport], world_size: int, timeout: float
) -> RankComparison:
    """Return the differences between ranks, and whether the ranks may start their scripts.

    No rank may start its script if one rank cannot choose an accelerator. The script of that rank would
    fail, and the other ranks would wait for it.

    Args:
        reports: The reports that arrived in time, in the order of ranks.
        world_size: The number of ranks.
        timeout: The time limit for the reports in seconds.
    """
    failed = [report for report in reports if report.problem]
    lines = []
    for report in failed:
        reason = report.problem.splitlines()[0].rstrip(".")
        rank = _describe_ranks([report])
        lines.append(f"{rank} cannot choose an accelerator: {reason}")
    present = {report.rank for report in reports}
    absent = [rank for rank in range(world_size) if rank not in present]
    if absent:
        lines.append(
            f"{format_ranks(absent)} of {world_size} did not respond within {timeout:g} s; "
            "the script starts anyway"
        )
    lines += _difference_lines(reports, world_size, is_complete=not lines)
    if failed:
        lines.append(
            "no script was started. Next step: run `accel doctor` on the host of the rank that has no "
            "accelerator"
        )
    return RankComparison(lines, is_refused=bool(failed))


def _difference_lines(
    reports: Sequence[RankReport], world_size: int, *, is_complete: bool
) -> list[str]:
    """Return the number of differences and one line per difference, or a line that there are none.

    `is_complete` means that all ranks have reported, and that each rank has chosen an accelerator.
    """
    differences = list(_differences(reports))
    if len(differences) == 1:
        return ["1 difference between the ranks", *differences]
    if differences:
        return [f"{len(differences)} differences between the ranks", *differences]
    if is_complete:
        facts = reports[0].facts
        accelerator = facts.get("accelerator", "unknown accelerator")
        comparison = f"no differences between the {world_size} ranks"
        if world_size == 1:
            comparison = "there is only one rank"
        torch_version = facts.get("torch")
        return [f"{comparison}: {accelerator}, torch {torch_version}"]
    if len(reports) > 1:
        return ["no other difference between the ranks"]
    return []


def _differences(reports: Sequence[RankReport]) -> Iterator[str]:
    """Yield a line for each fact that differs, with the ranks that have each value."""
    names = dict.fromkeys(name for report in reports for name in report.facts)
    for name in names:
        reports_by_value: dict[str, list[RankReport]] = {}
        for report in reports:
            value = report.facts.get(name, "none")
            reports_by_value.setdefault(value, []).append(report)
        if len(reports_by_value) > 1:
            parts = []
            for value, same_value in reports_by_value.items():
                parts.append(f"{value} on {_describe_ranks(same_value)}")
            yield f"  {name}: {'; '.join(parts)}"


def _describe_ranks(reports: Sequence[RankReport]) -> str:
    """Return the ranks and at most three of their hosts, such as `"ranks 0, 1 (host a)"`."""
    unique_hosts = list(dict.fromkeys(report.host for report in reports))
    hosts = ", ".join(unique_hosts[:_MAX_HOSTS])
    other_hosts = len(unique_hosts) - _MAX_HOSTS
    if other_hosts > 0:
        hosts += f" and {other_hosts} more"
    ranks = format_ranks([report.rank for report in reports])
    return f"{ranks} (host {hosts})"


def _print_lines(lines: Sequence[str]) -> None:
    """Write the lines to stderr in one call, with the command's name before the first line."""
    text = "\n".join(lines)
    sys.stderr.write(f"accel run --doctor: {text}\n")
    sys.stderr.flush()


def _limit_text(value: object) -> str:
    """Return the value as text on one line, shortened to the maximum length."""
    return one_line(str(value))[:_MAX_TEXT]


if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - `-m` adds this string.
        # Plugins must not be loaded from the folder in which the job was started.
        del sys.path[0]
    sys.exit(main(sys.argv[1:]))
