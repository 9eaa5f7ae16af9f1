"""Records of `accel doctor`: findings, the results of topics, and the report."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from accel_core import Verdict
from accel_core.exceptions import PLUGIN_ERRORS
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends
from accel_core.settings import Pin, Settings
from accel_core.survey import Survey, survey
from accel_core.text import one_line, strip_period

if TYPE_CHECKING:
    from accel_tools.doctor.experiments.cases import FailedProgram

__all__ = [
    "DiagnosticContext",
    "Finding",
    "Level",
    "Report",
    "Topic",
    "TopicResult",
    "worst_level",
]


class Level(str, enum.Enum):
    """The severity of a finding: ok, warning or error."""

    #: There is no problem. Missing hardware and missing vendor packages are not problems.
    OK = "ok"
    #: The accelerator works, but not as a user would expect, or an unused package is broken.
    WARNING = "warning"
    #: No backend is usable, a pinned backend or a present device is not usable, or torch
    #: cannot be imported.
    ERROR = "error"

    def __str__(self) -> str:
        return self.value

    @property
    def mark(self) -> str:
        """Return the symbol that the report shows for the level: ✓, ! or ✗."""
        return {Level.OK: "✓", Level.WARNING: "!", Level.ERROR: "✗"}[self]

    @property
    def plain_mark(self) -> str:
        """Return the symbol that an ASCII report shows for the level: +, ! or x."""
        return {Level.OK: "+", Level.WARNING: "!", Level.ERROR: "x"}[self]


def worst_level(levels: Iterable[Level]) -> Level:
    """Return the most serious of the given levels, or `Level.OK` if there are none."""
    return max(levels, key=list(Level).index, default=Level.OK)


class Finding(NamedTuple):
    """A problem that `accel doctor` found, or the confirmation that there is no problem."""

    level: Level
    #: The kind of finding, for scripts, such as `"machine.driver-too-old"`.
    code: str
    #: The finding as one clause without a full stop. It does not contain `cause` and `details`.
    what: str
    #: The next command or step, or an empty string if nothing needs to be done.
    step: str = ""
    #: The name of the backend that the finding is about, or an empty string if it is about the machine.
    about: str = ""
    #: The observed facts by name, in the order of the report.
    facts: Mapping[str, str] = {}
    #: The error that caused the failure, or an empty string. Findings with the same cause are merged.
    cause: str = ""
    #: Whether `text` contains the cause.
    shows_cause: bool = True
    #: Further clauses of the text, which the summary of the report leaves out.
    details: str = ""
    #: What is known about the cause: the result of experiments, or the names of damaged files. It is an
    #: empty string if neither is known.
    proof: str = ""
    #: Whether `proof` names a proven cause.
    is_proven: bool = False

    @property
    def text(self) -> str:
        """Return the finding as one sentence without a full stop: the clause, the cause, the details."""
        clause = self.what
        if self.cause and self.shows_cause:
            clause = f"{clause}: {strip_period(one_line(self.cause))}"
        return self._add_details(clause)

    def text_referring_to(self, place: str) -> str:
        """Return the finding's text with a reference to `place` instead of the cause.

        `place` is the name of a part of the report that already shows the same cause.
        """
        clause = self.what
        if self.shows_cause:
            clause = f"{clause}, for the same reason as {place}"
        return self._add_details(clause)

    def _add_details(self, clause: str) -> str:
        if self.details:
            return f"{clause}; {self.details}"
        return clause

    @property
    def proof_text(self) -> str:
        """Return the proof as a sentence without a full stop, marked as proven if it is."""
        return f"Proven: {self.proof}" if self.is_proven else self.proof

    @property
    def all_facts(self) -> dict[str, str]:
        """Return the facts by name, with the cause as the fact `"root cause"`."""
        if self.cause:
            return {**self.facts, "root cause": self.cause}
        return dict(self.facts)

    def to_dict(self) -> dict[str, object]:
        """Return the finding as a JSON-serializable dictionary."""
        return {
            "level": self.level.value,
            "code": self.code,
            "what": self.text,
            "step": self.step,
            "about": self.about,
            "facts": self.all_facts,
            "proof": self.proof_text,
        }


class DiagnosticContext:
    """The input of all diagnostic topics: settings, environment variables, and the survey of all backends."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        requested: tuple[Pin, ...] = (),
    ) -> None:
        self.settings = settings
        self.environ = environ
        #: The backends named on the command line, or an empty tuple for all backends.
        self.requested = requested
        self._load = IsolatedLoader(settings.probe_timeout)
        self._candidates_lock = threading.Lock()
        self._candidates: tuple[Verdict, ...] | None = None
        self._survey_lock = threading.Lock()
        self._survey: Survey | None = None
        self._survey_error: BaseException | None = None
        #: Programs that failed in the topic `compute`, as input for experiments.
        self.failed_programs: list[FailedProgram] = []

    def candidates(self) -> tuple[Verdict, ...]:
        """Return the verdicts on all installed backends before any backend is probed.

        The first call reads the plugins. Calls in other threads wait until the first call has finished.
        """
        with self._candidates_lock:
            if self._candidates is None:
                self._candidates = find_backends(None, self.settings, self._load)
            return self._candidates

    def examined_candidates(self) -> tuple[Verdict, ...]:
        """Return the backends that the user requested and that the settings permit, in rank order."""
        return tuple(filter(self._is_to_be_examined, self.candidates()))

    def _is_to_be_examined(self, candidate: Verdict) -> bool:
        name, distribution = candidate.name, candidate.distribution
        has_declaration = candidate.backend is not None
        is_permitted = self.settings.permits(name, distribution)
        is_requested = self.is_requested(name, distribution)
        return has_declaration and is_requested and is_permitted

    def survey(self) -> Survey:
        """Return the verdicts on all backends, and the chosen backend.

        The first call probes the backends. Calls in other threads wait until the first call has finished.
        The survey does not try torch's autoload of packages, because the topic `import-hooks` tries it.

        If the survey fails, every call raises the survey's error.
        """
        with self._survey_lock:
            if self._survey_error is not None:  # An earlier call failed.
                raise self._survey_error
            if self._survey is None:
                try:
                    self.candidates()  # The survey uses the plugins that this call reads.
                    self._survey = survey(self.settings, load=self._load)
                except PLUGIN_ERRORS as error:
                    self._survey_error = error
                    raise
            return self._survey

    @property
    def finished_survey(self) -> Survey | None:
        """Return the result of `survey()` if the survey has finished, and otherwise `None`.

        This method does not wait.
        """
        return self._survey

    def is_requested(self, name: str, distribution: str) -> bool:
        """Return whether the user requested the backend called `name` from `distribution`.

        All backends count as requested if the command line names no backend.
        """
        if not self.requested:
            return True
        return any(pin.matches(name, distribution) for pin in self.requested)


class Topic(NamedTuple):
    """One subject that `accel doctor` examines, such as the visible devices."""

    #: The name for scripts and `--topic`, such as `"visible-devices"`.
    name: str
    #: The human-readable title, such as `"Visible devices"`.
    title: str
    #: The function that yields the findings. It may raise any exception. It must not import torch
    #: or a vendor package in this process.
    examine: Callable[[DiagnosticContext], Iterable[Finding]]


class TopicResult(NamedTuple):
    """The findings of one diagnostic topic, and how long its examination took."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    #: The duration in milliseconds.
    ms: float
    #: The reason why the topic itself failed, or an empty string if it did not fail.
    failed: str = ""
    #: The most serious level of the findings that were moved to another topic.
    level_of_moved_findings: Level = Level.OK

    @property
    def level(self) -> Level:
        """Return the most serious level of the topic's findings.

        The level is at least a warning if the topic itself failed.
        """
        levels = [
            self.level_of_moved_findings,
            *(finding.level for finding in self.findings),
        ]
        if self.failed:
            levels.append(Level.WARNING)
        return worst_level(levels)

    def without_findings(self, moved: Iterable[Finding]) -> TopicResult:
        """Return the topic's result without the findings in `moved`, which a different topic reports.

        The most serious level of the findings in `moved` is kept in `level_of_moved_findings`.
        """
        moved_ids = {id(finding) for finding in moved}
        kept = []
        level = self.level_of_moved_findings
        for finding in self.findings:
            if id(finding) in moved_ids:
                level = worst_level([level, finding.level])
            else:
                kept.append(finding)
        return self._replace(findings=tuple(kept), level_of_moved_findings=level)

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-serializable dictionary."""
        return {
            "name": self.name,
            "title": self.title,
            "level": self.level.value,
            "failed": self.failed,
            "ms": round(self.ms, 3),
            "findings": [finding.to_dict() for finding in self.findings],
        }


class Report(NamedTuple):
    """The report of one run of `accel doctor`: a summary, and the results of all topics."""

    #: A summary in one sentence: the chosen backend, and the number of problems.
    verdict: str
    topics: tuple[TopicResult, ...]
    #: The duration in milliseconds.
    ms: float
    #: The name of the chosen backend, or `None` if no backend is usable, or if no topic needed the survey.
    chosen: str | None = None

    @property
    def level(self) -> Level:
        """Return the most serious level of all topics in the report."""
        return worst_level(topic.level for topic in self.topics)

    @property
    def exit_status(self) -> int:
        """Return the command's exit status: 0 = no problems, 1 = warnings or errors, 2 = unknown backend."""
        for topic in self.topics:
            for finding in topic.findings:
                if finding.code == "candidates.not-declared":
                    return 2  # The user requested a backend that does not exist.
        return 0 if self.level is Level.OK else 1

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serializable dictionary."""
        return {
            "verdict": self.verdict,
            "chosen": self.chosen,
            "level": self.level.value,
            "exit_status": self.exit_status,
            "ms": round(self.ms, 3),
            "topics": [topic.to_dict() for topic in self.topics],
        }
