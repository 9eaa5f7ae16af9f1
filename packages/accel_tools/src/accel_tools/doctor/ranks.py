"""`accel run --doctor`: compare the ranks' machines before the ranks' scripts start.

    python -m accel_tools.doctor.ranks VARIABLE...

The worker of each rank starts this program with the rank's environment variables. Each rank
examines its machine, and rank 0 reports the differences. The program runs in a separate
process, so that its store and torch do not affect the script. Each `VARIABLE` is the name of
an environment variable with a different value on each rank. The exit status is `REFUSED` if
no rank may start its script.
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

from accel_core import Selection, __version__, packages
from accel_core.errors import AccelError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import processes
from accel_core.settings import read as read_settings
from accel_core.text import one_line
from accel_core.torch_import import AUTOLOAD
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
#: How many seconds a rank waits until rank 0 has closed its store. The script needs the store's port.
_CLOSE_SECONDS = 5.0
#: The beginnings of the names of facts that normally differ between ranks of one host: each rank is bound
#: to different cores, and the amount of free memory changes.
_FACTS_OF_ONE_RANK = ("cores", "memory", "time of cores")
#: Facts that the report already has under different names.
_FACTS_REPORTED_ELSEWHERE = ("system", "Python")
#: Words in findings whose text normally differs between ranks of one host.
_CHANGING = ("memory", "/dev/shm")
#: The environment variables whose values are compared, as shell patterns.
_COMPARED = re.compile(
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
#: The verdict of rank 0 if no script may start.
_REFUSED = "refused"
#: The maximum number of characters of a text, and of facts, that are read from a rank's report.
_MAX_TEXT, _MAX_FACTS = 500, 400


class RankReport(NamedTuple):
    """Observations of one rank."""

    rank: int
    host: str
    #: The observed facts by name, in the order of the report.
    facts: dict[str, str]
    #: The reason why no accelerator can be chosen; otherwise empty.
    problem: str = ""

    @classmethod
    def read(cls, rank: int, data: bytes) -> RankReport:
        """Read the report that a rank has put into the store as JSON; the JSON is not trusted."""
        try:
            host, facts, problem = json.loads(data)
            texts = {}
            for name, value in list(facts.items())[:_MAX_FACTS]:
                texts[_text(name)] = _text(value)
            return cls(rank, _text(host), texts, _text(problem))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            facts = {"report": f"unreadable: {type(error).__name__}"}
            return cls(rank, "unknown", facts)

    def to_json(self) -> str:
        """Return the report as JSON for the store, without the rank's number."""
        return json.dumps([self.host, self.facts, self.problem])


def main(own_variables: Sequence[str]) -> int:
    """Examine this rank, compare it with the other ranks, and return the exit status.

    `own_variables` are the names of variables that are not compared. If the examination itself
    fails, the error is printed on stderr and the exit status is 0, so that the script starts.
    """
    processes.end_with_parent(os.getppid())
    try:
        rank = read_rank()
        limit = _REPORT_SECONDS + read_settings().probe_timeout
        # The signal ends a process that hangs in a vendor's code or in the store. The rank's
        # script then starts.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * (limit + _EXCHANGE_SECONDS))
        report = _examine(rank, own_variables, limit)
        return _exchange_reports(rank, report, limit + _EXCHANGE_SECONDS)
    except AccelError as error:
        return _give_up(str(error))
    except PLUGIN_ERRORS as error:
        return _give_up(root_cause(error))


def _give_up(reason: str) -> int:
    _print([f"not compared with the other ranks: {' '.join(reason.split())}"])
    return 0


# --- One rank ------------------------------------------------------------------------


def _examine(rank: Rank, own_variables: Sequence[str], limit: float) -> RankReport:
    """Return this rank's versions, chosen accelerator, variables and findings."""
    deadline = time.monotonic() + limit
    settings = read_settings()
    # Only the launcher's backend is probed, instead of all backends in each rank.
    settings = replace(settings, allow=settings.pins or settings.allow)
    context = DiagnosticContext(settings, dict(os.environ))
    facts = {
        "accel-core": __version__,
        "torch": packages.version("torch") or "not installed",
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
        if _COMPARED.match(name) and name not in own_variables:
            facts[name] = context.environ[name]
    left = max(1.0, deadline - time.monotonic())
    for topic in run_topics(context, _topics(own_variables), left):
        facts.update(_facts(topic.name, topic.findings))
        if topic.failed:
            facts[topic.title] = f"could not be examined: {topic.failed}"
    return RankReport(rank.rank, rank.host, facts, problem)


def _chosen_accelerator(context: DiagnosticContext) -> str:
    """Return the chosen accelerator and its number of devices as text.

    Raises `AccelError` with the reason if no accelerator can be chosen.
    """
    selection = context.survey().selection
    if selection is None:
        raise AccelError("no backend was probed")
    if selection.name is None:
        raise AccelError(selection.problem)
    return f"{selection.name} ({selection.provenance}){_device_count(selection)}"


def _device_count(selection: Selection) -> str:
    """Return the number of devices, such as `", 8 devices"`; empty if the devices were not counted."""
    for verdict in selection.verdicts:
        if verdict.name == selection.name:
            if verdict.devices is None:
                return ""
            return f", {verdict.devices} device{'' if verdict.devices == 1 else 's'}"
    return ""


def _topics(own_variables: Sequence[str]) -> list[Topic]:
    """Return the topics to examine.

    The topic on visible devices is included only if all ranks have the same visible devices.
    """
    for name in own_variables:
        if "VISIBLE" in name or name == "ZE_AFFINITY_MASK":
            return [machine.TOPIC]
    return [machine.TOPIC, visible_devices.TOPIC]


def _facts(topic: str, findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Yield the names and values to compare: the text of each finding, and each of its facts."""
    for finding in findings:
        if not any(word in finding.what for word in _CHANGING):
            yield f"{finding.about} {finding.code}".strip(), finding.what
        for name, value in finding.facts.items():
            is_of_one_rank = name.startswith(_FACTS_OF_ONE_RANK)
            if not is_of_one_rank and name not in _FACTS_REPORTED_ELSEWHERE:
                yield f"{topic}: {name}", value


# --- All ranks -----------------------------------------------------------------------


def _exchange_reports(rank: Rank, report: RankReport, timeout: float) -> int:
    """Send the report to rank 0, wait for rank 0's verdict, and return the exit status."""

    def judge(others: Mapping[int, bytes]) -> str:
        reports = [report]
        reports += [RankReport.read(*item) for item in sorted(others.items())]
        lines, is_refused = compare_ranks(reports, rank.world_size, timeout)
        # The lines are printed before the verdict is sent: when a refused rank exits, the launcher
        # terminates the other ranks.
        _print(lines)
        return _REFUSED if is_refused else "start"

    if rank.world_size == 1:
        return REFUSED if judge({}) == _REFUSED else 0
    # This hides torch's warning about the closed store, for which the code below waits.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    met = rendezvous(rank, None, None, timedelta(seconds=timeout))
    exchange = exchange_records(met.store, rank, report.to_json(), judge, timeout)
    if rank.rank == 0:
        exchange.wait_for_readers()
    else:
        _wait_until_closed(met)
    return REFUSED if exchange.verdict == _REFUSED.encode() else 0


def _wait_until_closed(met: Rendezvous) -> None:
    """Wait until rank 0's process has closed the store, so that the scripts do not connect to it."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    deadline = time.monotonic() + _CLOSE_SECONDS
    with contextlib.suppress(RuntimeError):
        while time.monotonic() < deadline:
            met.store.check(["closed"])
            time.sleep(0.02)


def compare_ranks(
    reports: Sequence[RankReport], world_size: int, timeout: float
) -> tuple[list[str], bool]:
    """Describe the differences between ranks, and return whether no script may start.

    No script may start if a rank cannot choose an accelerator: its script would fail, and the
    other ranks would wait for it.

    Args:
        reports: The reports that arrived in time, in the order of ranks.
        world_size: The number of ranks.
        timeout: The time limit for the reports in seconds.

    Returns:
        The lines to print, and whether no script may start.
    """
    failed = [report for report in reports if report.problem]
    lines = []
    for report in failed:
        reason = report.problem.splitlines()[0].rstrip(".")
        lines.append(f"{_ranks([report])} cannot choose an accelerator: {reason}")
    absent = sorted(set(range(world_size)) - {report.rank for report in reports})
    if absent:
        lines.append(
            f"{format_ranks(absent)} of {world_size} did not respond within {timeout:g} s; "
            "the script starts anyway"
        )
    lines += _difference_lines(reports, world_size, is_complete=not lines)
    if failed:
        lines.append(
            "no script was started. Next step: run `accel doctor` on that host"
        )
    return lines, bool(failed)


def _difference_lines(
    reports: Sequence[RankReport], world_size: int, *, is_complete: bool
) -> list[str]:
    """Return lines with the number of differences and the differences, or a line that there are none."""
    differences = list(_differences(reports))
    if len(differences) == 1:
        return ["1 difference between the ranks", *differences]
    if differences:
        return [f"{len(differences)} differences between the ranks", *differences]
    if is_complete:
        facts = reports[0].facts
        accelerator = facts.get("accelerator", "unknown accelerator")
        ranks = "the only rank" if world_size == 1 else f"all {world_size} ranks"
        return [f"the same on {ranks}: {accelerator}, torch {facts.get('torch')}"]
    if len(reports) > 1:
        return ["no other difference between the ranks"]
    return []


def _differences(reports: Sequence[RankReport]) -> Iterator[str]:
    """Yield a line on each fact that differs, with the ranks that have each value."""
    names = dict.fromkeys(name for report in reports for name in report.facts)
    for name in names:
        by_value: dict[str, list[RankReport]] = {}
        for report in reports:
            by_value.setdefault(report.facts.get(name, "none"), []).append(report)
        if len(by_value) > 1:
            values = [f"{value} on {_ranks(same)}" for value, same in by_value.items()]
            yield f"  {name}: {'; '.join(values)}"


def _ranks(reports: Sequence[RankReport]) -> str:
    """Return the ranks and at most three of their hosts, such as `"ranks 0, 1 (host a)"`."""
    hosts = list(dict.fromkeys(report.host for report in reports))
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    ranks = format_ranks([report.rank for report in reports])
    return f"{ranks} (host {', '.join(hosts[:3])}{more})"


def _print(lines: Sequence[str]) -> None:
    """Write the lines to stderr in one call, with the command's name before the first line."""
    text = "\n".join(lines)
    sys.stderr.write(f"accel run --doctor: {text}\n")
    sys.stderr.flush()


def _text(value: object) -> str:
    return one_line(str(value))[:_MAX_TEXT]


if __name__ == "__main__":
    if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - `-m` adds this string.
        del sys.path[
            0
        ]  # Plugins must not be loaded from the folder in which the job started.
    sys.exit(main(sys.argv[1:]))
