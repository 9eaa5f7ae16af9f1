"""Plugin checks (`accel_checks`): run them in a child process, report findings, and apply fixes.

One child runs all checks. If a check ends or blocks the child, that is the check's finding, and a new child
continues with the next check. Checks that have finished are not run again.
"""

from __future__ import annotations

import json
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
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC", "Checked", "check_in_child", "listed", "mend", "run"]

#: What a check's result can be.
LEVELS = ("ok", "warning", "error")
#: Seconds that a fix may take.
_MENDING = 60.0
#: How often the deadline of one child may pass before the checks that are left are given up.
_CHILDREN = 3
#: Checks of one backend, and characters of one text, that are read.
_MOST, _LONGEST = 100, 2000
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Checked(NamedTuple):
    """One check together with its result."""

    #: Distribution, backend, its priority and the check: no other has all four.
    key: str
    #: The plugin, `"accel-npu 0.1.0"`.
    origin: str
    backend: str
    name: str
    title: str
    level: str = "ok"
    what: str = ""
    step: str = ""
    facts: Mapping[str, str] = {}
    #: What its fix would do; empty where it has none.
    fix: str = ""
    #: The findings' code: its own, or that of what went wrong with it.
    code: str = ""

    def finding(self) -> Finding:
        """Return the check as a finding for the report."""
        mends = (
            f"`accel doctor --fix` would {self.fix}"
            if self.fix and self.level != "ok"
            else ""
        )
        step = "; or ".join(filter(None, (self.step, mends)))
        facts = {**self.facts, "check": f"{self.title} ({self.origin})"}
        return Finding(
            Level(self.level), self.code, self.what, step, self.backend, facts
        )


def _examine(visit: Visit) -> Iterator[Finding]:
    for checked in run(visit):
        yield checked.finding()


TOPIC = Topic("checks", "Plugin checks", _examine)


def run(visit: Visit) -> Iterator[Checked]:
    """Yield each check with its result, as soon as it has finished."""
    yield from _all(visit)


def listed(visit: Visit) -> list[Checked]:
    """List all checks without running any: names, titles and origins."""
    return list(_all(visit, only_list=True))


def mend(checked: Checked, visit: Visit) -> Checked:
    """Apply the fix of a check and run the check again. Return its new result, or why the fix failed."""
    job = {**_job(visit), "mend": checked.key}
    report = child.run(check_in_child, job, _MENDING)
    rows = [Checked(**row) for row in _rows(report.answer)]
    if rows:
        return rows[0]
    how = (
        report.ending if report.timed_out else f"ended its process: it {report.ending}"
    )
    return checked._replace(
        level="error", what=f"the fix {how}", code="checks.fix-failed"
    )


def _all(visit: Visit, *, only_list: bool = False) -> Iterator[Checked]:
    job = _job(visit)
    if not job["plugins"]:
        return
    timeout = visit.settings.probe_timeout
    end = time.monotonic() + _CHILDREN * timeout
    behind: list[str] = []
    died: list[Checked] = []
    while (left := end - time.monotonic()) > 0:
        report = child.run(
            check_in_child,
            {**job, "behind": behind, "list": only_list},
            min(timeout, left),
        )
        if report.answer is not None:
            yield from (Checked(**row) for row in _rows(report.answer))
            yield from _blamed(died)
            return
        try:
            _, at, done = json.loads(report.stage)
        except ValueError:
            raise RuntimeError(
                f"the process that checks {report.ending}: {report.stderr[-200:]}"
            ) from None
        yield from (Checked(**row) for row in done)
        behind += [row["key"] for row in done] + [at["key"]]
        ended = _ended(at, report)
        if report.timed_out:
            yield ended
        else:
            died.append(ended)
    yield from _blamed(died)
    yield Checked(
        "", "accel-core", "", "", TOPIC.title, "warning", "the time was over before all checks had run",
        "raise ACCEL_PROBE_TIMEOUT", code="checks.not-run",
    )  # fmt: skip


def _blamed(died: list[Checked]) -> list[Checked]:
    """Return the results of checks that ended their process: if those of several plugins did, something else
    ends processes here, such as a limit, and nothing is to be reported to a plugin's maintainers.
    """
    if len({checked.origin for checked in died}) < 2:
        return died
    return [checked._replace(step="") for checked in died]


def _rows(answer: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return list((answer or {}).get("rows", ()))


def _ended(at: dict[str, Any], report: child.ChildReport) -> Checked:
    """Make the result for the check, or the plugin, in which a child ended or hung."""
    what = (
        f"its check {at['title']!r}"
        if at["name"]
        else "the plugin, asked for its checks,"
    )
    late = report.timed_out
    return Checked(
        at["key"], at["origin"], at["backend"], at["name"], at["title"], "warning",
        f"{what} {report.ending}" if late else f"{what} ended its process: it {report.ending}",
        "give it longer: --timeout 300" if late
        else f"report this to the maintainers of {at['origin'].partition(' ')[0]}",
        code="checks.hung" if late else "checks.died",
    )  # fmt: skip


def _job(visit: Visit) -> dict[str, Any]:
    """The plugins whose backends may be asked, by entry point; no code of a blocked one is imported."""
    asked: dict[tuple[str, str], list[str]] = {}
    for candidate in (
        visit.declared()
    ):  # before anything is probed: nobody's checks wait for all verdicts
        source = candidate.provenance
        if not candidate.builtin:
            asked.setdefault((source.entry_point, source.distribution), []).append(
                candidate.name
            )
    return {
        "plugins": [[*source, names] for source, names in asked.items()],
        "behind": [],
        "list": False,
    }


# --- in the child --------------------------------------------------------------------------------------


def check_in_child(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """In the child: run every check that has not run yet, and report each before it begins."""
    rows: list[dict[str, object]] = []

    def begin(row: Checked) -> bool:
        """Return whether to run this check; report it, and all results so far, to the parent."""
        if row.key in job["behind"]:
            return False
        stage(json.dumps([f"checks of {row.origin}", row._asdict(), rows]))
        return True

    for row, check in _checks(job["plugins"], begin):
        if job.get("mend"):
            if check is not None and row.key == job["mend"]:
                return {"rows": [_mended(row, check)._asdict()]}
        elif begin(row):
            done = row if check is None or job["list"] else _checked(row, check)
            rows.append(done._asdict())
    return {"rows": rows}


def _checks(
    asked: list[Any], begin: Callable[[Checked], bool]
) -> Iterator[tuple[Checked, Check | None]]:
    """Every check with its row; a row alone says what is wrong with a plugin's answer."""
    wanted = {(name, distribution): backends for name, distribution, backends in asked}
    for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
        backends = wanted.get((entry_point.name, entry_point.distribution))
        if backends is None:
            continue
        source = str(entry_point)
        plugin = Checked(f"{source} {entry_point.name}", source, "", "", "")
        if not begin(plugin):
            continue
        for candidate in declare(entry_point):
            if candidate.backend is not None and candidate.name in backends:
                key = f"{source} {candidate.name} {candidate.priority}"
                whole = Checked(key, source, candidate.name, "", "")
                if begin(whole):
                    yield from _of(candidate.backend, entry_point, whole)


def _of(
    backend: Backend, plugin: Provenance, whole: Checked
) -> Iterator[tuple[Checked, Check | None]]:
    """The checks of one backend."""
    try:
        with guard.preserved_state(whole.origin):
            answer = Plugin(plugin).hooks.accel_checks(backend=backend)
        checks = list(answer or ())[:_MOST]
    except PLUGIN_ERRORS as error:
        whole = whole._replace(key=f"{whole.key} !")
        yield (
            _faulty(
                whole, "checks.raised", f"accel_checks() failed: {root_cause(error)}"
            ),
            None,
        )
        return
    known: set[str] = set()
    for place, check in enumerate(checks):
        fault = _fault(check, known)
        if fault:
            row = whole._replace(key=f"{whole.key} !{place}")
            yield _faulty(row, "checks.invalid", f"accel_checks() gave {fault}"), None
            continue
        known.add(check.name)
        fix = _text(check.fix.what) if check.fix else ""
        row = whole._replace(
            key=f"{whole.key} {check.name}", name=check.name, title=_text(check.title), fix=fix,
            code=f"checks.{check.name}",
        )  # fmt: skip
        yield row, check


def _fault(check: object, known: set[str]) -> str:
    """Return the fault of a check, as a clause; empty without one."""
    if not isinstance(check, Check):
        return f"{check!r:.80} ({type(check).__name__}), expected accel_core.Check"
    if not isinstance(check.name, str) or not _NAME.fullmatch(check.name):
        return f"a check named {check.name!r:.80}, expected lower case with hyphens: 'toolkit-version'"
    if check.name in known:
        return f"two checks named {check.name!r}, expected different names"
    if not isinstance(check.title, str) or not callable(check.run):
        return f"the check {check.name!r} without a title, or without a function run(), expected both"
    fix: object = check.fix
    if fix is not None and not (
        isinstance(fix, Fix) and isinstance(fix.what, str) and callable(fix.apply)
    ):
        return f"the check {check.name!r} with {fix!r:.80} as its fix, expected accel_core.Fix or None"
    return ""


def _checked(row: Checked, check: Check) -> Checked:
    """The row with what the check says."""
    try:
        with guard.preserved_state(row.origin):
            result: object = check.run()
    except PLUGIN_ERRORS as error:
        return _faulty(
            row, "checks.raised", f"its check {row.title!r} failed: {root_cause(error)}"
        )
    if (
        not isinstance(result, CheckResult)
        or result.level not in LEVELS
        or not isinstance(result.what, str)
    ):
        what = f"its check {row.title!r} gave {result!r:.80}, expected accel_core.CheckResult"
        return _faulty(
            row, "checks.invalid", f"{what} of the level {', '.join(LEVELS)}"
        )
    facts = {_text(name): _text(value) for name, value in dict(result.facts).items()}
    # A full stop would end the sentence that this stands in.
    what = _text(result.what).rstrip(".")
    return row._replace(
        level=str(result.level), what=what, step=_text(result.step), facts=facts
    )


def _mended(row: Checked, check: Check) -> Checked:
    """The row after the check's fix."""
    if check.fix is None:
        return row._replace(
            level="error", what="it no longer has a fix", code="checks.fix-failed"
        )
    try:
        check.fix.apply()
    except PLUGIN_ERRORS as error:
        what = f"the fix failed: {root_cause(error)}"
        return row._replace(level="error", what=_text(what), code="checks.fix-failed")
    return _checked(row, check)


def _faulty(row: Checked, code: str, what: str) -> Checked:
    step = f"report this to the maintainers of {row.origin.partition(' ')[0]}"
    return row._replace(level="warning", what=_text(what), step=step, code=code, fix="")


def _text(text: object) -> str:
    return one_line(str(text))[:_LONGEST]
