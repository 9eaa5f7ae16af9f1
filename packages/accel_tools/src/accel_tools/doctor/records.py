"""Immutable records of a doctor's visit: findings, in topics, in a report."""

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

__all__ = ["Examined", "Finding", "Level", "Report", "Topic", "Visit"]


class Level(str, enum.Enum):
    """How serious a finding is."""

    #: As it should be; also hardware, and a vendor's package, that is not here.
    OK = "ok"
    #: It works, and not as somebody would expect; or a package is broken that nothing here needs.
    WARNING = "warning"
    #: What this machine has, or was told to use, cannot be used: nothing is usable, a pin or a device that is
    #: present is not, torch cannot be imported.
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


class Finding(NamedTuple):
    """One statement of a topic."""

    level: Level
    #: What kind of finding it is, for scripts: `"machine.driver-too-old"`.
    code: str
    #: One sentence without a full stop.
    what: str
    #: The next command or step; empty where nothing is to be done.
    step: str = ""
    #: The backend that it is about; empty for the machine.
    about: str = ""
    #: What was seen, by name, in the order in which people read it.
    facts: Mapping[str, str] = {}
    #: What experiments say of its cause: "Proven: without …"; empty if there were none.
    proof: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {**self._asdict(), "level": self.level.value, "facts": dict(self.facts)}


class Visit:
    """Input of the topics: the settings, the environment, and the survey, which is made once."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        names: tuple[Pin, ...] = (),
    ) -> None:
        self.settings = settings
        self.environ = environ
        #: The backends that were asked for; empty for all of them.
        self.names = names
        self._load = IsolatedLoader(settings.probe_timeout)
        self._discovering = threading.Lock()
        self._candidates: tuple[Verdict, ...] | None = None
        self._lock = threading.Lock()
        self._survey: Survey | None = None
        self._failure: BaseException | None = None
        #: The programs that the topic `compute` has run, for experiments.
        self.cases: list[Case] = []

    def candidates(self) -> tuple[Verdict, ...]:
        """Return the installed candidates, before any is probed. The first call reads them; others wait."""
        with self._discovering:
            if self._candidates is None:
                self._candidates = find_backends(None, self.settings, self._load)
            return self._candidates

    def declared(self) -> tuple[Verdict, ...]:
        """Return the requested candidates that the policy allows, in rank order."""
        return tuple(
            candidate
            for candidate in self.candidates()
            if candidate.backend is not None
            and self.concerns(candidate.name, candidate.distribution)
            and self.settings.permits(candidate.name, candidate.distribution)
        )

    def survey(self) -> Survey:
        """Return the verdicts on all candidates and the choice. The first call makes them; others wait.

        The survey does not say what torch's autoload would break, because that must be tried last: a topic
        does it. If the survey fails, every call raises the same error.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._survey is None:
                try:
                    self.candidates()  # read once for both
                    self._survey = survey(self.settings, load=self._load)
                except PLUGIN_ERRORS as error:
                    self._failure = error
                    raise
            return self._survey

    @property
    def surveyed(self) -> Survey | None:
        """Return the survey if it has been made, else `None`; does not wait for it."""
        return self._survey

    def concerns(self, name: str, distribution: str) -> bool:
        """Return whether a backend of that name, from that distribution, was requested."""
        return not self.names or any(
            pin.matches(name, distribution) for pin in self.names
        )


class Topic(NamedTuple):
    """One matter to examine: a function that yields findings, and its titles."""

    #: For scripts and `--topic`: `"visible-devices"`.
    name: str
    #: For people: `"Visible devices"`.
    title: str
    #: May raise anything; it must not import torch or a vendor in this process.
    examine: Callable[[Visit], Iterable[Finding]]


class Examined(NamedTuple):
    """Result of one topic."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    #: Milliseconds that it took.
    ms: float
    #: Why the topic itself failed; empty where it did not.
    failed: str = ""
    #: The most serious level of its findings that another topic reports, with the same cause.
    merged: Level = Level.OK

    @property
    def level(self) -> Level:
        """Return the most serious level of the findings; at least a warning if the topic raised an error."""
        levels = {self.merged, *(finding.level for finding in self.findings)}
        worst = Level.ERROR if Level.ERROR in levels else Level.WARNING
        return worst if levels - {Level.OK} or self.failed else Level.OK

    def without(self, moved: Iterable[Finding]) -> Examined:
        """Return the topic without these findings, which another topic reports."""
        places = {id(finding) for finding in moved}
        levels = [self.merged, *(f.level for f in self.findings if id(f) in places)]
        kept = tuple(f for f in self.findings if id(f) not in places)
        return self._replace(findings=kept, merged=max(levels, key=list(Level).index))

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "level": self.level.value,
            "failed": self.failed,
            "ms": round(self.ms, 3),
            "findings": [f.to_dict() for f in self.findings],
        }  # fmt: skip


class Report(NamedTuple):
    """The result of a whole visit."""

    #: One sentence: what is chosen, and whether something is wrong.
    verdict: str
    topics: tuple[Examined, ...]
    #: Milliseconds in all.
    ms: float
    #: The backend that is chosen; `None` where nothing is, or nobody looked.
    chosen: str | None = None

    @property
    def level(self) -> Level:
        """Return the most serious level of all topics."""
        return max(
            (topic.level for topic in self.topics),
            key=list(Level).index,
            default=Level.OK,
        )

    @property
    def exit_status(self) -> int:
        """Return 0 if healthy, 1 if not, 2 if a name is unknown; `level` tells how serious it is."""
        codes = [finding.code for topic in self.topics for finding in topic.findings]
        return (
            2 if "candidates.not-declared" in codes else int(self.level is not Level.OK)
        )

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
