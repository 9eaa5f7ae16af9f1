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

if TYPE_CHECKING:
    from accel_tools.doctor.experiments.cases import Case

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
    """How serious a finding is."""

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
        """Return the sign for people: ✓, ! or ✗."""
        return {Level.OK: "✓", Level.WARNING: "!", Level.ERROR: "✗"}[self]

    @property
    def plain_mark(self) -> str:
        """Return the sign in ASCII: +, ! or x."""
        return {Level.OK: "+", Level.WARNING: "!", Level.ERROR: "x"}[self]


def worst_level(levels: Iterable[Level]) -> Level:
    """Return the most serious of `levels`, or `Level.OK` if `levels` is empty."""
    return max(levels, key=list(Level).index, default=Level.OK)


class Finding(NamedTuple):
    """One result of a topic's examination."""

    level: Level
    #: The kind of finding, for scripts, such as `"machine.driver-too-old"`.
    code: str
    #: The finding as one sentence without a full stop.
    what: str
    #: The next command or step; empty if nothing needs to be done.
    step: str = ""
    #: The name of the backend that the finding is about; empty if it is about the machine.
    about: str = ""
    #: The observed facts by name, in the order of the report.
    facts: Mapping[str, str] = {}
    #: The result of experiments on the cause, such as `"Proven: without …"`; empty if no experiment ran.
    proof: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {**self._asdict(), "level": self.level.value, "facts": dict(self.facts)}


class DiagnosticContext:
    """The input of all topics: the settings, the environment variables, and a survey that runs once."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        requested: tuple[Pin, ...] = (),
    ) -> None:
        self.settings = settings
        self.environ = environ
        #: The backends named on the command line; empty for all backends.
        self.requested = requested
        self._load = IsolatedLoader(settings.probe_timeout)
        self._candidates_lock = threading.Lock()
        self._candidates: tuple[Verdict, ...] | None = None
        self._survey_lock = threading.Lock()
        self._survey: Survey | None = None
        self._survey_error: BaseException | None = None
        #: Programs that failed in the topic `compute`, as input for experiments.
        self.cases: list[Case] = []

    def candidates(self) -> tuple[Verdict, ...]:
        """Return the installed backends before any probe.

        The first call reads the plugins; calls in other threads wait for its result.
        """
        with self._candidates_lock:
            if self._candidates is None:
                self._candidates = find_backends(None, self.settings, self._load)
            return self._candidates

    def declared(self) -> tuple[Verdict, ...]:
        """Return the requested backends that the policy permits, in rank order."""
        return tuple(
            candidate for candidate in self.candidates() if self._is_examined(candidate)
        )

    def _is_examined(self, candidate: Verdict) -> bool:
        name, distribution = candidate.name, candidate.distribution
        if candidate.backend is None or not self.is_requested(name, distribution):
            return False
        return self.settings.permits(name, distribution)

    def survey(self) -> Survey:
        """Return the verdict on every backend, and the choice.

        The first call probes the backends; calls in other threads wait for its result.
        The survey does not cover packages that would break torch's autoload, because
        they must be tried last: the topic `import-hooks` tries them.

        If the survey fails, every call raises the survey's error.
        """
        with self._survey_lock:
            if self._survey_error is not None:
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
        """Return the survey, or `None` if it has not finished; does not wait."""
        return self._survey

    def is_requested(self, name: str, distribution: str) -> bool:
        """Return whether the backend called `name` from `distribution` is to be examined."""
        if not self.requested:
            return True
        return any(pin.matches(name, distribution) for pin in self.requested)


class Topic(NamedTuple):
    """One subject to examine."""

    #: The name for scripts and `--topic`, such as `"visible-devices"`.
    name: str
    #: The title for people, such as `"Visible devices"`.
    title: str
    #: The function that yields the findings. It may raise any exception. It must not import torch
    #: or a vendor package in this process.
    examine: Callable[[DiagnosticContext], Iterable[Finding]]


class TopicResult(NamedTuple):
    """Findings of one topic."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    #: The duration in milliseconds.
    ms: float
    #: The reason why the topic itself failed; empty if it did not fail.
    failed: str = ""
    #: The most serious level of the findings that were moved to another topic.
    merged: Level = Level.OK

    @property
    def level(self) -> Level:
        """Return the most serious level of the findings; at least a warning if the topic failed."""
        levels = [self.merged, *(finding.level for finding in self.findings)]
        if self.failed:
            levels.append(Level.WARNING)
        return worst_level(levels)

    def without(self, moved: Iterable[Finding]) -> TopicResult:
        """Return the result without the findings `moved`, which another topic reports."""
        ids = {id(finding) for finding in moved}
        kept = tuple(finding for finding in self.findings if id(finding) not in ids)
        levels = [finding.level for finding in self.findings if id(finding) in ids]
        return self._replace(findings=kept, merged=worst_level([self.merged, *levels]))

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "level": self.level.value,
            "failed": self.failed,
            "ms": round(self.ms, 3),
            "findings": [finding.to_dict() for finding in self.findings],
        }


class Report(NamedTuple):
    """Result of one run of `accel doctor`."""

    #: A summary in one sentence: the chosen backend, and the number of problems.
    verdict: str
    topics: tuple[TopicResult, ...]
    #: The duration in milliseconds.
    ms: float
    #: The name of the chosen backend; `None` if no backend is usable, or if no topic needed the survey.
    chosen: str | None = None

    @property
    def level(self) -> Level:
        """Return the most serious level of all topics."""
        return worst_level(topic.level for topic in self.topics)

    @property
    def exit_status(self) -> int:
        """Return the exit status: 0 = no problems, 1 = warnings or errors, 2 = unknown backend."""
        codes = [finding.code for topic in self.topics for finding in topic.findings]
        if "candidates.not-declared" in codes:
            return 2
        return 0 if self.level is Level.OK else 1

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {
            "verdict": self.verdict,
            "chosen": self.chosen,
            "level": self.level.value,
            "exit_status": self.exit_status,
            "ms": round(self.ms, 3),
            "topics": [topic.to_dict() for topic in self.topics],
        }
