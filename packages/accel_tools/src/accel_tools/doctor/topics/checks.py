"""Run the checks of plugins (`accel_checks`) in a child process, report the results, and apply fixes.

One child process runs all checks. If a check terminates or blocks the child, a finding reports this,
and a new child continues with the next check. Finished checks do not run again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from accel_core import Backend, Check, CheckResult, Fix, Provenance, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.plugins import Plugin, declare
from accel_core.sandbox import child, guard
from accel_core.text import one_line
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = ["TOPIC", "CheckReport", "apply_fix", "check_in_child", "listed", "run"]

#: The levels of a check's result.
LEVELS = ("ok", "warning", "error")
#: The time limit of a fix in seconds.
_FIX_SECONDS = 60.0
#: The time limit of all checks, as a multiple of the probe timeout.
_MAX_TIMEOUTS = 3
#: The maximum number of checks per backend, and of characters per text, that are read.
_MAX_CHECKS, _MAX_TEXT = 100, 2000
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class CheckReport(NamedTuple):
    """One check, and its result if it has run."""

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
    #: What the fix would do, as an infinitive; empty if the check does not have a fix.
    fix: str = ""
    #: The code of the finding: `checks.` and the check's name or the kind of failure.
    code: str = ""

    @property
    def is_fixable(self) -> bool:
        """Return whether the check failed and has a fix."""
        return self.fix != "" and self.level != "ok"

    def finding(self) -> Finding:
        """Return the check as a finding for the report."""
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


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    for report in run(context):
        yield report.finding()


TOPIC = Topic("checks", "Plugin checks", _examine)


def run(context: DiagnosticContext) -> Iterator[CheckReport]:
    """Run all checks, and yield each check with its result."""
    yield from _run_all(context)


def listed(context: DiagnosticContext) -> list[CheckReport]:
    """Return all checks without running them, with their names, titles and origins."""
    return list(_run_all(context, only_list=True))


def apply_fix(check: CheckReport, context: DiagnosticContext) -> CheckReport:
    """Apply the fix of a check, and run the check again.

    Returns the check with its new result, or with the reason why the fix failed.
    """
    job = {**_job(context), "fix": check.key}
    report = child.run(check_in_child, job, _FIX_SECONDS)
    if report.answer is not None and report.answer["rows"]:
        return CheckReport(**report.answer["rows"][0])
    what = f"the fix terminated its process: the process {report.ending}"
    if report.timed_out:
        what = f"the fix {report.ending}"
    return check._replace(level="error", what=what, code="checks.fix-failed")


# --- The child processes -------------------------------------------------------------


def _run_all(
    context: DiagnosticContext, *, only_list: bool = False
) -> Iterator[CheckReport]:
    """Run all checks, and yield their reports.

    If a check terminates or blocks its child process, a new child continues with the next check.
    """
    job = _job(context)
    if not job["plugins"]:
        return
    timeout = context.settings.probe_timeout
    deadline = time.monotonic() + _MAX_TIMEOUTS * timeout
    job["list"] = only_list
    crashed: list[CheckReport] = []
    left = deadline - time.monotonic()
    while left > 0:
        report = child.run(check_in_child, job, min(timeout, left))
        if report.answer is not None:
            yield from _reports(report.answer["rows"])
            yield from _without_blame(crashed)
            return
        current, finished = _progress(report)
        yield from _reports(finished)
        job["done"] += [row["key"] for row in (*finished, current)]
        if report.timed_out:
            yield _hung(CheckReport(**current), report)
        else:
            crashed.append(_crashed(CheckReport(**current), report))
        left = deadline - time.monotonic()
    yield from _without_blame(crashed)
    yield CheckReport(
        "",
        "accel-core",
        "",
        "",
        TOPIC.title,
        "warning",
        "the time limit was reached before all checks had run",
        "raise ACCEL_PROBE_TIMEOUT",
        code="checks.not-run",
    )


def _job(context: DiagnosticContext) -> dict[str, Any]:
    """Return the job of a child process, with the entry points of plugins and their backends.

    Only declarations are used, so that checks do not wait for the probes of backends. Blocked
    plugins are not included, so that their code is not imported.
    """
    backends: dict[tuple[str, str], list[str]] = {}
    for candidate in context.declared():
        if not candidate.builtin:
            source = candidate.provenance
            key = source.entry_point, source.distribution
            backends.setdefault(key, []).append(candidate.name)
    plugins = [[*key, names] for key, names in backends.items()]
    return {"plugins": plugins, "done": [], "list": False}


def _reports(rows: list[dict[str, Any]]) -> Iterator[CheckReport]:
    for row in rows:
        yield CheckReport(**row)


def _progress(
    report: child.ChildReport,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the check in which a child crashed or hung, and the checks that finished before.

    Raises `RuntimeError` if the child crashed or hung before its first check.
    """
    if not report.stage_facts:
        raise RuntimeError(
            f"the process that runs the checks {report.ending}: {report.stderr[-200:]}"
        )
    return report.stage_facts["check"], report.stage_facts["finished"]


def _hung(check: CheckReport, report: child.ChildReport) -> CheckReport:
    return check._replace(
        level="warning",
        what=f"{_subject(check)} {report.ending}",
        step="allow more time: --timeout 300",
        code="checks.hung",
        fix="",
    )


def _crashed(check: CheckReport, report: child.ChildReport) -> CheckReport:
    return check._replace(
        level="warning",
        what=f"{_subject(check)} terminated its process: the process {report.ending}",
        step=_report_step(check),
        code="checks.died",
        fix="",
    )


def _subject(check: CheckReport) -> str:
    """Return the check as the subject of a clause, or the hook if the report is about a plugin."""
    return f"its check {check.title!r}" if check.name else "the hook accel_checks()"


def _report_step(check: CheckReport) -> str:
    return f"report this to the maintainers of {check.origin.partition(' ')[0]}"


def _without_blame(crashed: list[CheckReport]) -> list[CheckReport]:
    """Return the reports of checks that crashed, without next steps if several plugins are affected.

    If checks of several plugins crash, the cause is probably not a plugin, but for example a limit.
    """
    if len({check.origin for check in crashed}) < 2:
        return crashed
    return [check._replace(step="") for check in crashed]


# --- In the child --------------------------------------------------------------------


def check_in_child(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Run all checks that are not in `job["done"]`, and return the results under the key `rows`.

    Runs in a child process. Before each check, `stage` is called with the check and all results so
    far. If `job["list"]` is true, checks are only listed. If `job["fix"]` is the key of a check, only
    the fix of this check is applied.
    """
    if job.get("fix"):
        return _fix_in_child(job)
    rows: list[dict[str, object]] = []

    def begin(check: CheckReport) -> bool:
        """Report that the check begins, and return whether it should run."""
        if check.key in job["done"]:
            return False
        stage(f"checks of {check.origin}", check=check._asdict(), finished=rows)
        return True

    for report, check in _checks(job["plugins"], begin):
        if begin(report):
            result = report
            if check is not None and not job["list"]:
                result = _run_check(report, check)
            rows.append(result._asdict())
    return {"rows": rows}


def _fix_in_child(job: dict[str, Any]) -> dict[str, object]:
    """Apply the fix of the check `job["fix"]`, and return the check's new result."""
    for report, check in _checks(job["plugins"], lambda _: True):
        if check is not None and report.key == job["fix"]:
            return {"rows": [_apply_fix(report, check)._asdict()]}
    return {"rows": []}


_Reported = Iterator[tuple[CheckReport, Check | None]]


def _checks(plugins: list[Any], begin: Callable[[CheckReport], bool]) -> _Reported:
    """Yield each check with its report; a report without a check is about an error of a plugin.

    `begin` is called before each plugin and each backend, and returns whether to examine it.
    """
    backends = {(name, distribution): names for name, distribution, names in plugins}
    for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
        names = backends.get((entry_point.name, entry_point.distribution))
        if names is None:
            continue
        origin = str(entry_point)
        plugin = CheckReport(f"{origin} {entry_point.name}", origin, "", "", "")
        if not begin(plugin):
            continue
        for candidate in declare(entry_point):
            if candidate.backend is None or candidate.name not in names:
                continue
            key = f"{origin} {candidate.name} {candidate.priority}"
            report = CheckReport(key, origin, candidate.name, "", "")
            if begin(report):
                yield from _checks_of(candidate.backend, entry_point, report)


def _checks_of(
    backend: Backend, provenance: Provenance, template: CheckReport
) -> _Reported:
    """Yield the checks of one backend, with reports that are made from `template`."""
    try:
        with guard.preserved_state(template.origin):
            answer = Plugin(provenance).hooks.accel_checks(backend=backend)
        checks = list(answer or ())[:_MAX_CHECKS]
    except PLUGIN_ERRORS as error:
        report = template._replace(key=f"{template.key} !")
        what = f"accel_checks() failed: {root_cause(error)}"
        yield _faulty(report, "checks.raised", what), None
        return
    names: set[str] = set()
    for index, check in enumerate(checks):
        invalid = _why_invalid(check) or _why_duplicate(check, names)
        if invalid:
            report = template._replace(key=f"{template.key} !{index}")
            what = f"accel_checks() returned {invalid}"
            yield _faulty(report, "checks.invalid", what), None
            continue
        names.add(check.name)
        report = template._replace(
            key=f"{template.key} {check.name}",
            name=check.name,
            title=_text(check.title),
            fix=_text(check.fix.what) if check.fix else "",
            code=f"checks.{check.name}",
        )
        yield report, check


def _why_invalid(check: object) -> str:
    """Return why a check is invalid, as the object of "returned"; empty if it is valid."""
    if not isinstance(check, Check):
        return f"{check!r:.80} ({type(check).__name__}), expected accel_core.Check"
    if not isinstance(check.name, str) or not _NAME.fullmatch(check.name):
        return (
            f"a check called {check.name!r:.80}, expected lower case with hyphens, "
            "such as 'toolkit-version'"
        )
    if not isinstance(check.title, str) or not callable(check.run):
        return (
            f"the check {check.name!r} without a title, or without a function run(), "
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


def _why_duplicate(check: Check, names: set[str]) -> str:
    """Return why a check's name is not allowed, as the object of "returned"; empty if it is new."""
    if check.name in names:
        return f"two checks called {check.name!r}, expected different names"
    return ""


def _run_check(report: CheckReport, check: Check) -> CheckReport:
    """Run the check and return the report with its result."""
    try:
        with guard.preserved_state(report.origin):
            result: object = check.run()
    except PLUGIN_ERRORS as error:
        what = f"its check {report.title!r} failed: {root_cause(error)}"
        return _faulty(report, "checks.raised", what)
    if not isinstance(result, CheckResult) or not _is_valid(result):
        what = (
            f"its check {report.title!r} returned {result!r:.80}, expected "
            f"accel_core.CheckResult of the level {', '.join(LEVELS)}"
        )
        return _faulty(report, "checks.invalid", what)
    facts = {_text(name): _text(value) for name, value in dict(result.facts).items()}
    return report._replace(
        level=str(result.level),
        what=_text(result.what).rstrip("."),  # The text becomes part of a sentence.
        step=_text(result.step),
        facts=facts,
    )


def _is_valid(result: CheckResult) -> bool:
    what: object = result.what
    return result.level in LEVELS and isinstance(what, str)


def _apply_fix(report: CheckReport, check: Check) -> CheckReport:
    """Apply the check's fix, run the check again, and return the report with its result."""
    if check.fix is None:
        what = "the check no longer has a fix"
        return report._replace(level="error", what=what, code="checks.fix-failed")
    try:
        check.fix.apply()
    except PLUGIN_ERRORS as error:
        what = _text(f"the fix failed: {root_cause(error)}")
        return report._replace(level="error", what=what, code="checks.fix-failed")
    return _run_check(report, check)


def _faulty(report: CheckReport, code: str, what: str) -> CheckReport:
    return report._replace(
        level="warning", what=_text(what), step=_report_step(report), code=code, fix=""
    )


def _text(text: object) -> str:
    return one_line(str(text))[:_MAX_TEXT]
