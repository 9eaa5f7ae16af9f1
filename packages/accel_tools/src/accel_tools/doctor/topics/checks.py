"""Run the checks of plugins (`accel_checks`) in a child process, report the results, and apply fixes.

One child process runs all checks. If a check terminates or blocks the child process, a finding
reports this failure, and a new child process continues with the next check.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from accel_core import Backend, Check, CheckResult, Fix, Provenance, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.plugins import Plugin, load_plugin
from accel_core.sandbox import child, guard
from accel_core.text import one_line
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = [
    "TOPIC",
    "CheckReport",
    "apply_fix",
    "list_checks",
    "run_checks",
    "run_checks_in_child",
]

#: The levels of a check's result.
_LEVELS = ("ok", "warning", "error")
#: The time limit of a fix in seconds.
_FIX_SECONDS = 60.0
#: The time limit of all checks, as a multiple of the probe timeout.
_MAX_TIMEOUTS = 3
#: The maximum number of checks per backend, and of characters per text, that are read.
_MAX_CHECKS, _MAX_TEXT = 100, 2000
#: The format of a check's name, such as `toolkit-version`.
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class CheckReport(NamedTuple):
    """A check that a plugin provides, with its result if the check has run."""

    #: A unique key, made of the distribution, the backend, the backend's priority and the check.
    key: str
    #: The plugin, such as `"accel-npu 0.1.0"`.
    origin: str
    backend: str
    name: str
    title: str
    level: str = "ok"
    what: str = ""
    step: str = ""
    facts: Mapping[str, str] = {}
    #: What the fix would do, as an infinitive, or an empty string if the check does not have a fix.
    fix: str = ""
    #: The code of the finding: `checks.` and the check's name or the kind of failure.
    code: str = ""

    @property
    def is_fixable(self) -> bool:
        """Return whether the check failed and provides a fix."""
        return self.fix != "" and self.level != "ok"

    def to_finding(self) -> Finding:
        """Convert the check's report to a finding of the topic `checks`."""
        steps = [self.step] if self.step else []
        if self.is_fixable:
            steps.append(f"`accel doctor --fix` would {self.fix}")
        facts = {**self.facts, "check": f"{self.title} ({self.origin})"}
        return Finding(
            Level(self.level),
            self.code,
            self.what,
            "; or ".join(steps),
            self.backend,
            facts,
        )


def _examine_checks(context: DiagnosticContext) -> Iterator[Finding]:
    for report in run_checks(context):
        yield report.to_finding()


TOPIC = Topic("checks", "Plugin checks", _examine_checks)


def run_checks(context: DiagnosticContext) -> Iterator[CheckReport]:
    """Run the checks of all plugins, and yield a report for each check."""
    yield from _run_in_child_processes(context)


def list_checks(context: DiagnosticContext) -> list[CheckReport]:
    """Return the checks of all plugins without running them, so the reports contain no results."""
    return list(_run_in_child_processes(context, only_list=True))


def apply_fix(check: CheckReport, context: DiagnosticContext) -> CheckReport:
    """Apply a check's fix in a child process, and run the check again.

    Returns the report with the check's new result, or with the reason why the fix failed.
    """
    job = {**_make_job(context), "fix": check.key}
    child_report = child.run(run_checks_in_child, job, _FIX_SECONDS)
    if child_report.answer is not None and child_report.answer["rows"]:
        [new_report] = child_report.answer["rows"]
        return CheckReport(**new_report)
    if child_report.timed_out:
        what = f"the fix {child_report.ending}"
    else:
        what = f"the fix terminated its process: the process {child_report.ending}"
    return check._replace(level="error", what=what, code="checks.fix-failed")


# --- The child processes -------------------------------------------------------------


def _run_in_child_processes(
    context: DiagnosticContext, *, only_list: bool = False
) -> Iterator[CheckReport]:
    """Run or list all checks in child processes, and yield a report on each check.

    If a check terminates or blocks its child process, a new child continues with the next check.
    """
    job = _make_job(context)
    if not job["plugins"]:
        return
    timeout = context.settings.probe_timeout
    deadline = time.monotonic() + _MAX_TIMEOUTS * timeout
    job["list"] = only_list
    crashed: list[CheckReport] = []
    seconds_left = deadline - time.monotonic()
    while seconds_left > 0:
        report = child.run(run_checks_in_child, job, min(timeout, seconds_left))
        if report.answer is not None:
            yield from _parse_reports(report.answer["rows"])
            yield from _drop_steps_if_several_plugins_crash(crashed)
            return
        # The next process continues after the check that ended this process.
        progress = _read_progress(report)
        yield from progress.finished
        for check in (*progress.finished, progress.current):
            job["done"].append(check.key)
        if report.timed_out:
            yield _hung_report(progress.current, report)
        else:
            crashed.append(_crashed_report(progress.current, report))
        seconds_left = deadline - time.monotonic()
    yield from _drop_steps_if_several_plugins_crash(crashed)
    yield _time_limit_report()


def _time_limit_report() -> CheckReport:
    """Return the report that not all checks have run."""
    return CheckReport(
        key="",
        origin="accel-core",
        backend="",
        name="",
        title=TOPIC.title,
        level="warning",
        what="the time limit was reached before all checks had run",
        step="raise ACCEL_PROBE_TIMEOUT",
        code="checks.not-run",
    )


def _make_job(context: DiagnosticContext) -> dict[str, Any]:
    """Return the job for `run_checks_in_child`, with the entry points of plugins and their backends.

    Only declarations are used, so that checks do not wait for the probes of backends. Blocked
    plugins are not included, so that their code is not imported.
    """
    backends_by_plugin: dict[tuple[str, str], list[str]] = {}
    for candidate in context.examined_candidates():
        if not candidate.builtin:
            plugin = candidate.provenance
            key = plugin.entry_point, plugin.distribution
            backends_by_plugin.setdefault(key, []).append(candidate.name)
    plugins = []
    for (entry_point, distribution), backends in backends_by_plugin.items():
        plugins.append([entry_point, distribution, backends])
    # `done` gets the keys of the checks that have run. If `list` is true, no check runs.
    return {"plugins": plugins, "done": [], "list": False}


def _parse_reports(rows: list[dict[str, Any]]) -> list[CheckReport]:
    return [CheckReport(**row) for row in rows]


class _Progress(NamedTuple):
    """The progress of a child process that crashed or hung."""

    #: The check that was running.
    current: CheckReport
    #: The checks that had finished.
    finished: list[CheckReport]


def _read_progress(report: child.ChildReport) -> _Progress:
    """Return the progress of a child process that crashed or hung.

    Raises `RuntimeError` if the child process crashed or hung before its first check.
    """
    if not report.stage_facts:
        raise RuntimeError(
            f"before the first check, the process that runs the checks {report.ending}: "
            f"{report.stderr[-200:]}"
        )
    current = report.stage_facts["check"]
    finished = report.stage_facts["finished"]
    return _Progress(CheckReport(**current), _parse_reports(finished))


def _hung_report(check: CheckReport, report: child.ChildReport) -> CheckReport:
    """Return the report on a check that exceeded the time limit."""
    return check._replace(
        level="warning",
        what=f"{_sentence_subject(check)} {report.ending}",
        step="allow more time: --timeout 300",
        code="checks.hung",
        fix="",
    )


def _crashed_report(check: CheckReport, report: child.ChildReport) -> CheckReport:
    """Return the report on a check that terminated its process."""
    subject = _sentence_subject(check)
    return check._replace(
        level="warning",
        what=f"{subject} terminated its process: the process {report.ending}",
        step=_report_to_maintainers(check),
        code="checks.died",
        fix="",
    )


def _sentence_subject(check: CheckReport) -> str:
    """Return the subject of a sentence on the check, or on the plugin's hook if no check has begun."""
    if check.name:
        return f"the plugin's check {check.title!r}"
    return "the hook accel_checks()"


def _report_to_maintainers(check: CheckReport) -> str:
    """Return the next step after a defect in the plugin that provides the check."""
    plugin = check.origin.partition(" ")[0]
    return f"report this to the maintainers of {plugin}"


def _drop_steps_if_several_plugins_crash(
    crashed: list[CheckReport],
) -> list[CheckReport]:
    """Return the reports of crashed checks, without next steps if several plugins are affected.

    The cause is then probably not a plugin, but for example a limit of the machine. The next step
    would be to report the crash to the maintainers of the plugin.
    """
    plugins = {check.origin for check in crashed}
    if len(plugins) < 2:  # The plugin is probably the cause.
        return crashed
    return [check._replace(step="") for check in crashed]


# --- In the child --------------------------------------------------------------------


def run_checks_in_child(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Run all checks that are not in `job["done"]`, and return their reports under the key `rows`.

    Runs in a child process. Before each check, `stage` is called with the check and the reports so far. If
    `job["list"]` is true, the checks are only listed. If `job["fix"]` is the key of a check, only the fix
    of this check is applied.
    """
    if job.get("fix"):
        return _apply_fix_in_child(job)
    rows: list[dict[str, object]] = []

    def begin_unless_done(report: CheckReport) -> bool:
        """Report the check as begun, unless an earlier child process has run it.

        Returns whether the check has begun.
        """
        if report.key in job["done"]:  # An earlier child process has run the check.
            return False
        description = f"checks of {report.origin}"
        stage(description, check=report._asdict(), finished=rows)
        return True

    for report, check in _checks_with_empty_reports(job["plugins"], begin_unless_done):
        if not begin_unless_done(report):
            continue
        if check is not None and not job["list"]:
            rows.append(_run_check(report, check)._asdict())
        else:
            rows.append(report._asdict())
    return {"rows": rows}


def _apply_fix_in_child(job: dict[str, Any]) -> dict[str, object]:
    """Apply the fix of the check whose key is `job["fix"]`, and return the check's new report."""

    def examine_all(_report: CheckReport) -> bool:
        return True

    for report, check in _checks_with_empty_reports(job["plugins"], examine_all):
        if check is not None and report.key == job["fix"]:
            new_report = _apply_fix_and_rerun(report, check)
            return {"rows": [new_report._asdict()]}
    return {"rows": []}


_ReportsWithChecks = Iterator[tuple[CheckReport, Check | None]]


def _checks_with_empty_reports(
    plugins: list[Any], begin_unless_done: Callable[[CheckReport], bool]
) -> _ReportsWithChecks:
    """Yield each check together with a report.

    The check is `None` if the report is about a plugin's error.

    Args:
        plugins: The entry point, the distribution and the backends of each plugin.
        begin_unless_done: A function called with a report before each plugin and each backend. It returns
            whether to examine the plugin or the backend.
    """
    backends_by_plugin = {
        (entry_point, distribution): backends
        for entry_point, distribution, backends in plugins
    }
    for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
        key = entry_point.name, entry_point.distribution
        backends = backends_by_plugin.get(key)
        if backends is None:
            continue
        origin = str(entry_point)
        plugin_report = _empty_report(f"{origin} {entry_point.name}", origin)
        if not begin_unless_done(plugin_report):
            continue
        for candidate in load_plugin(entry_point):
            if candidate.backend is None or candidate.name not in backends:
                continue
            report = _empty_report(
                f"{origin} {candidate.name} {candidate.priority}",
                origin,
                backend=candidate.name,
            )
            if begin_unless_done(report):
                yield from _checks_of_backend(candidate.backend, entry_point, report)


def _empty_report(key: str, origin: str, backend: str = "") -> CheckReport:
    """Return a report on a plugin or a backend as a whole, which names no check."""
    return CheckReport(key, origin, backend, name="", title="")


def _checks_of_backend(
    backend: Backend, plugin: Provenance, template: CheckReport
) -> _ReportsWithChecks:
    """Yield the checks that a plugin provides for a backend, with reports based on `template`."""
    try:
        with guard.preserved_state(template.origin):
            returned = Plugin(plugin).hooks.accel_checks(backend=backend)
        checks = list(returned or ())[:_MAX_CHECKS]
    except PLUGIN_ERRORS as error:
        # The report is about the plugin, not about a check. No check's name contains an exclamation mark.
        report = template._replace(key=f"{template.key} !")
        what = f"accel_checks() failed: {root_cause(error)}"
        yield _faulty_report(report, "checks.raised", what), None
        return
    names: set[str] = set()
    for index, check in enumerate(checks):
        problem = _describe_invalid_check(check)
        if not problem and check.name in names:  # Names must be unique.
            problem = f"two checks called {check.name!r}, expected different names"
        if problem:
            report = template._replace(key=f"{template.key} !{index}")
            what = f"accel_checks() returned {problem}"
            yield _faulty_report(report, "checks.invalid", what), None
            continue
        names.add(check.name)
        report = template._replace(
            key=f"{template.key} {check.name}",
            name=check.name,
            title=_limit_text(check.title),
            fix=_limit_text(check.fix.what) if check.fix else "",
            code=f"checks.{check.name}",
        )
        yield report, check


def _describe_invalid_check(check: object) -> str:
    """Return how an object differs from a valid check.

    Returns an empty string if it is a valid check.

    The text completes a sentence that begins with "accel_checks() returned".
    """
    if not isinstance(check, Check):
        return f"{check!r:.80} ({type(check).__name__}), expected accel_core.Check"
    if not isinstance(check.name, str) or not _NAME.fullmatch(check.name):
        return (
            f"a check called {check.name!r:.80}, expected lower case with hyphens, "
            "such as 'toolkit-version'"
        )
    if not isinstance(check.title, str) or not callable(check.run):
        return (
            f"the check {check.name!r} without a title or without a function run(), "
            "expected both"
        )
    if check.fix is not None and not _is_fix(check.fix):
        return (
            f"the check {check.name!r} with the fix {check.fix!r:.80}, "
            "expected accel_core.Fix or None"
        )
    return ""


def _is_fix(fix: object) -> bool:
    return isinstance(fix, Fix) and isinstance(fix.what, str) and callable(fix.apply)


def _run_check(report: CheckReport, check: Check) -> CheckReport:
    """Run the check and return the report with its result."""
    try:
        with guard.preserved_state(report.origin):
            result: object = check.run()
    except PLUGIN_ERRORS as error:
        what = f"the plugin's check {report.title!r} failed: {root_cause(error)}"
        return _faulty_report(report, "checks.raised", what)
    if not isinstance(result, CheckResult) or not _is_valid_result(result):
        what = (
            f"the plugin's check {report.title!r} returned {result!r:.80}, expected an "
            f"accel_core.CheckResult with one of the levels {', '.join(_LEVELS)}"
        )
        return _faulty_report(report, "checks.invalid", what)
    facts = {
        _limit_text(name): _limit_text(value)
        for name, value in dict(result.facts).items()
    }
    # The text becomes part of a sentence.
    what_without_period = _limit_text(result.what).rstrip(".")
    return report._replace(
        level=str(result.level),
        what=what_without_period,
        step=_limit_text(result.step),
        facts=facts,
    )


def _is_valid_result(result: CheckResult) -> bool:
    # The declared types of a plugin's result are not trusted.
    what: object = result.what
    return result.level in _LEVELS and isinstance(what, str)


def _apply_fix_and_rerun(report: CheckReport, check: Check) -> CheckReport:
    """Apply the check's fix, run the check again, and return the report with its result."""
    if check.fix is None:
        what = "the check no longer has a fix"
        return report._replace(level="error", what=what, code="checks.fix-failed")
    try:
        check.fix.apply()
    except PLUGIN_ERRORS as error:
        what = _limit_text(f"the fix failed: {root_cause(error)}")
        return report._replace(level="error", what=what, code="checks.fix-failed")
    return _run_check(report, check)


def _faulty_report(report: CheckReport, code: str, what: str) -> CheckReport:
    """Return the report with a warning about a defect in the plugin's code."""
    return report._replace(
        level="warning",
        what=_limit_text(what),
        step=_report_to_maintainers(report),
        code=code,
        fix="",
    )


def _limit_text(text: object) -> str:
    """Return a plugin's text on one line, shortened to the maximum length."""
    return one_line(str(text))[:_MAX_TEXT]
