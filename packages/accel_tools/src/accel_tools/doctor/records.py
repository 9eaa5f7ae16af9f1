"""Records of a doctor's visit: findings, in topics, in a report. They are never changed."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from accel_core import Candidate, Unloaded
from accel_core.errors import CAUGHT
from accel_core.toolkit import IsolatedLoader, Pin, Settings, Survey, find_candidates, survey

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
        """The sign for people: ✓, ! or ✗."""
        return {Level.OK: "✓", Level.WARNING: "!", Level.ERROR: "✗"}[self]

    @property
    def plain_mark(self) -> str:
        """The sign in ASCII: +, ! or x."""
        return {Level.OK: "+", Level.WARNING: "!", Level.ERROR: "x"}[self]


class Finding(NamedTuple):
    """One thing that a topic says."""

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

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
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
        self._candidates: tuple[Candidate | Unloaded, ...] | None = None
        self._lock = threading.Lock()
        self._survey: Survey | None = None
        self._failure: BaseException | None = None

    def candidates(self) -> tuple[Candidate | Unloaded, ...]:
        """Candidates that are installed, before any is probed; the first caller reads them, others wait."""
        with self._discovering:
            if self._candidates is None:
                self._candidates = find_candidates(None, self.settings, self._load)
            return self._candidates

    def declared(self) -> tuple[Candidate, ...]:
        """Return the candidates that were asked for, in rank order, and that the policy leaves."""
        return tuple(
            candidate
            for candidate in self.candidates()
            if isinstance(candidate, Candidate)
            and self.concerns(candidate.name, candidate.distribution)
            and self.settings.permits(candidate.name, candidate.distribution)
        )

    def survey(self) -> Survey:
        """Every candidate's verdict and the choice; whoever asks first makes it, the others wait.

        What torch's autoload spoils is not in it, for that would be tried after all else: a topic does.
        Where that fails, each of them gets the same error.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._survey is None:
                try:
                    self.candidates()  # read once for both
                    self._survey = survey(self.settings, autoload=False, load=self._load)
                except CAUGHT as error:
                    self._failure = error
                    raise
            return self._survey

    @property
    def surveyed(self) -> Survey | None:
        """The survey where it has been made; nobody waits for it."""
        return self._survey

    def concerns(self, name: str, distribution: str) -> bool:
        """Whether a backend of that name, from that distribution, was asked for."""
        return not self.names or any(pin.matches(name, distribution) for pin in self.names)


class Topic(NamedTuple):
    """One matter that is looked into: a function that gives findings, and its titles."""

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

    @property
    def level(self) -> Level:
        """The most serious of its findings; a topic that failed is a warning, for it says nothing."""
        levels = {finding.level for finding in self.findings}
        worst = Level.ERROR if Level.ERROR in levels else Level.WARNING
        return worst if levels - {Level.OK} or self.failed else Level.OK

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            "name": self.name,
            "title": self.title,
            "level": self.level.value,
            "failed": self.failed,
            "ms": round(self.ms, 3),
            "findings": [f.to_dict() for f in self.findings],
        }  # fmt: skip


class Report(NamedTuple):
    """The whole visit."""

    #: One sentence: what is chosen, and whether something is wrong.
    verdict: str
    topics: tuple[Examined, ...]
    #: Milliseconds in all.
    ms: float
    #: The backend that is chosen; `None` where nothing is, or nobody looked.
    chosen: str | None = None

    @property
    def level(self) -> Level:
        """The most serious level of all topics."""
        return max((topic.level for topic in self.topics), key=list(Level).index, default=Level.OK)

    @property
    def exit_status(self) -> int:
        """0 healthy, 1 not, 2 where a name is nobody's; `level` says how bad it is."""
        codes = [finding.code for topic in self.topics for finding in topic.findings]
        return 2 if "candidates.not-declared" in codes else int(self.level is not Level.OK)

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            "verdict": self.verdict,
            "chosen": self.chosen,
            "level": self.level.value,
            "exit_status": self.exit_status,
            "ms": round(self.ms, 3),
            "topics": [topic.to_dict() for topic in self.topics],
        }
