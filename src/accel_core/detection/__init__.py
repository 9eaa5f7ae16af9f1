"""Entry points in, a `Selection` out: a pipeline of small functions over the records of this module.

    guard      others' code runs announced and quiet, and what it changes is put back
    discovery  entry points to candidates, in rank order; a plugin's hooks; what announces itself to torch
    device     a plugin and its device, asked in this process
    isolated   the same in a child process
    probe      a candidate to its verdict: a table of steps that import nothing, then the device
    messages   errors and warnings in words
    select     candidates and a judge to a choice, the one place that decides; or every verdict at once

A module imports only from those above it, and the records are never changed. Importing one imports neither
torch nor a vendor's package.
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from accel_core.backend import Backend, Provenance
from accel_core.errors import AccelError
from accel_core.exceptions import root_cause, root_place
from accel_core.hardware import platform_matches
from accel_core.hardware.bus import Evidence
from accel_core.hardware.vendors import command_with_its_package
from accel_core.packages import brought_by
from accel_core.text import escape_control_chars, one_line, strip_period

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


class Status(str, enum.Enum):
    """The result of probing a backend."""

    USABLE = "usable"
    NOT_PROBED = "not_probed"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    NOT_INSTALLED = "not_installed"
    NO_DEVICE = "no_device"
    STANDS_ASIDE = "stands_aside"
    BROKEN = "broken"
    INVALID = "invalid"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"

    __str__ = str.__str__

    @property
    def words(self) -> str:
        """The status in words: `"no device"`."""
        return self.value.replace("_", " ")

    @property
    def is_failure(self) -> bool:
        """Whether something that is installed does not work; False if it is merely missing."""
        return self in (Status.BROKEN, Status.INVALID, Status.TIMED_OUT, Status.CRASHED, Status.INCOMPATIBLE)


class Outcome(NamedTuple):
    """Result of one step of the funnel."""

    status: Status
    reason: str = ""
    hint: str = ""
    devices: int | None = None
    error: BaseException | None = None
    #: Type and message of the error, and where it was raised, where that was another process's.
    cause: str = ""
    where: str = ""
    #: Whether it ended the child that asked it, and would end a program, which asks it in its own process.
    fatal: bool = False
    #: What the probe built in this process.
    accelerator: "Accelerator | None" = None
    #: The device type that has torch's PrivateUse1 slot after the probe, if that was in a child process.
    slot: str = ""

    @property
    def is_absence(self) -> bool:
        """Whether the only thing missing is a device, without which a pinned backend can still be used."""
        return self.status is Status.NO_DEVICE and self.devices == 0

    @property
    def told(self) -> "Outcome":
        """The same with its error's cause and place in words, as people read them."""
        error = self.error
        return self._replace(cause=root_cause(error), where=root_place(error)) if error else self


def no_device(reason: str, hint: str = "") -> Outcome:
    """Return the outcome for a backend that lacks only a device."""
    return Outcome(Status.NO_DEVICE, reason, hint, devices=0)


class _Known:
    """Members that a candidate and an unloaded plugin share."""

    #: The declared priority.
    priority = 0
    #: Whether accel_core itself brings this backend: it was found by no entry point.
    builtin = False

    def __init__(self, name: str, provenance: Provenance) -> None:
        self.name, self.provenance = name, provenance
        #: Name of the distribution; `accel-core` for what is built in.
        self.distribution = provenance.distribution

    def __repr__(self) -> str:
        return f"{self.name} ({self.provenance})"


class Candidate(_Known):
    """A backend that can be probed: `backend` has its provenance, which loads the plugin of hooks."""

    def __init__(self, backend: Backend, *, builtin: bool = False) -> None:
        assert backend.provenance is not None
        super().__init__(backend.name, backend.provenance)
        self.backend, self.priority, self.builtin = backend, backend.priority, builtin


class Unloaded(_Known):
    """An entry point from which no backend could be read, or which was not loaded, and why."""

    def __init__(self, name: str, provenance: Provenance, outcome: Outcome) -> None:
        super().__init__(name, provenance)
        self.outcome = outcome


#: What there is a verdict on.
Judged: TypeAlias = Candidate | Unloaded
#: Some of them, in rank order.
Ranked: TypeAlias = tuple[Judged, ...]


class Found(Ranked):
    """The result of `discover`; a notebook shows it as a table."""

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text("\n".join(map(str, self)))

    def _repr_html_(self) -> str:
        rows = ((c.name, c.priority if isinstance(c, Candidate) else "", c.provenance) for c in self)
        return _html_table(("backend", "priority", "from"), *rows)


_NOT_IN_JSON = ("provenance", "error", "broken", "absent", "fatal", "accelerator", "slot")


class Verdict(NamedTuple):
    """The result of probing one backend, and how long that took."""

    name: str
    status: Status
    #: Why, as one clause; empty for `usable`.
    reason: str
    #: The next step for a user; empty where there is none.
    hint: str
    #: Type and message of the exception behind it; empty where there was none.
    cause: str
    #: Number of devices; `None` where it was not asked.
    devices: int | None
    #: Device nodes and PCI ids that were found.
    evidence: str
    #: How long the probe took, in milliseconds.
    ms: float
    priority: int
    device_type: str
    vendor_import: tuple[str, ...]
    provenance: Provenance
    builtin: bool
    description: str = ""
    url: str = ""
    error: BaseException | None = None
    #: Whether something that is installed for it does not work, though the status is another.
    broken: bool = False
    #: What people call the device: `"NVIDIA GPU"`; empty where its plugin does not say.
    hardware: str = ""
    #: Whether the device was looked for and is not on this machine, or cannot be.
    absent: bool = False
    #: The file and line that raised the cause; empty where it was accel_core, or is not known.
    where: str = ""
    #: Whether it ends a program that asks it in its own process, as `ACCEL_PROBE=isolated` has nobody do.
    fatal: bool = False
    #: The accelerator that the probe built in this process, which is the one that a program gets.
    accelerator: "Accelerator | None" = None
    #: The device type that has torch's PrivateUse1 slot after the probe, if that was in a child process.
    slot: str = ""

    @classmethod
    def of(cls, judged: Judged, outcome: Outcome, seen: Evidence | None = None, ms: float = 0.0) -> "Verdict":
        """The verdict that `outcome` means; `seen` of its hardware, if that was sought."""
        backend = judged.backend if isinstance(judged, Candidate) else None
        told = outcome.told
        known: dict[str, Any] = {n: getattr(backend, n, "") for n in ("device_type", "description", "url")}
        known |= {n: getattr(judged, n) for n in ("name", "priority", "provenance", "builtin")}
        return cls(
            **known,
            status=outcome.status,
            reason=strip_period(one_line(outcome.reason)),
            hint=strip_period(command_with_its_package(one_line(outcome.hint))),
            cause=one_line(told.cause),
            devices=outcome.devices,
            evidence=one_line(str(seen or "")),
            ms=ms,
            vendor_import=backend.vendor_imports if backend else (),
            hardware=backend.hardware.name if backend else "",
            error=outcome.error,
            absent=(seen is not None and not seen)
            or not (backend is None or platform_matches(backend.hardware.platforms)),
            where=one_line(told.where),
            fatal=outcome.fatal,
            accelerator=outcome.accelerator,
            slot=outcome.slot,
        )

    def besides(self, broken: "Verdict") -> "Verdict":
        """The same, told what else does not work: no mended package brings a device."""
        brought = (brought_by(module)[0] for module in self.vendor_import)
        hint, package = broken.hint, next(filter(None, brought), "")
        if self.absent and package and not hint.startswith("pip uninstall "):
            hint = f"pip uninstall {package}." + (f" (On a machine that has one: {hint}.)" if hint else "")
        reason = f"{self.reason}; besides, {broken.reason}"
        return self._replace(reason=reason, hint=hint, cause=broken.cause, where=broken.where, broken=True)

    @property
    def usable(self) -> bool:
        """Whether this backend can be chosen."""
        return self.status is Status.USABLE

    @property
    def is_news(self) -> bool:
        """Whether users are told that this backend is not used.

        Built-in and blocked backends are not reported, unless a built-in one met a broken vendor package.
        """
        return (not self.builtin or self.status.is_failure) and self.status is not Status.BLOCKED

    @property
    def needs_mending(self) -> bool:
        """Whether somebody should act: the hardware is present, or something installed for it does not work.

        The fallback's warning, `ACCEL_STRICT`, `accel list` and `accel doctor` all use this rule.
        """
        if self.usable or not self.is_news:
            return False
        present = bool(self.evidence) and self.status not in (Status.STANDS_ASIDE, Status.NOT_PROBED)
        return present or self.broken or self.status.is_failure or self.status is Status.CONFLICT

    def is_about(self, other: "Judged | Verdict") -> bool:
        """Whether both verdicts are about the same backend of the same distribution."""
        return (self.name, self.provenance, self.priority) == (other.name, other.provenance, other.priority)

    def kind(self, others: "Iterable[Verdict]") -> str:
        """Return its hardware if one of `others` has the same name and other hardware; else nothing.

        CUDA and ROCm are two declarations of one `cuda`.
        """
        alike = (v for v in others if (v.name, v.provenance) == (self.name, self.provenance))
        return self.hardware if any(v.hardware != self.hardware for v in alike) else ""

    def label(self, others: "Iterable[Verdict]") -> str:
        """Return its name, with what tells it from one of `others` that has the same name."""
        kind = self.kind(others)
        return f"{self.name} ({kind})" if kind else self.name

    def line(self, others: "Iterable[Verdict]" = ()) -> str:
        """Return it as a line of a text that has `others` too."""
        source = ", ".join(filter(None, [self.kind(others), str(self.provenance)]))
        reason, hint = self.reason and f": {self.reason}", self.hint and f". {self.hint}"
        return f"{self.name} ({source}): {self.status.words}{reason}{hint}"

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        return {
            **{name: value for name, value in self._asdict().items() if name not in _NOT_IN_JSON},
            "distribution": self.provenance.distribution,
            "version": self.provenance.version,
            "entry_point": self.provenance.value,
            "entry_point_name": self.provenance.entry_point,
            "vendor_import": list(self.vendor_import),
            "status": self.status.value,
            "ms": round(self.ms, 3),
        }

    def __str__(self) -> str:
        return self.line()


class How(str, enum.Enum):
    """The way in which a backend was chosen."""

    words: str

    PINNED = "pinned", "pinned by DS_ACCELERATOR"
    PREFERRED = "preferred", "the first usable one of DS_ACCELERATOR's list"
    RANKED = "ranked", "the highest-ranking usable one"
    FALLBACK = "fallback", "the fall-back, as nothing that ranks higher is usable"
    SET = "set", "set by the program"

    def __new__(cls, value: str, words: str = "") -> "How":
        """Make a member of its value, which is what JSON holds, and its words."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    __str__ = str.__str__


class Selection(NamedTuple):
    """The record of one choice; `print(selection)` explains it, and `to_dict()` is for JSON."""

    #: The backend's name; `None` where the choice failed, and `problem` says why.
    chosen: str | None
    how: How
    #: Every verdict, in the order in which the backends were considered.
    verdicts: tuple[Verdict, ...]
    #: Where the chosen backend comes from.
    provenance: Provenance | None = None
    #: The process that chose.
    pid: int = 0
    #: The environment variables that mattered, as they were.
    environ: Mapping[str, str] = MappingProxyType({})
    #: Hardware that is present while no plugin for it is installed, each with the command to run.
    missing_plugins: tuple[str, ...] = ()
    #: What the choice took, in milliseconds.
    ms: float = 0.0
    problem: str = ""
    #: What a user should know of the settings: misspelt names, and pins without their device.
    notes: tuple[str, ...] = ()
    #: Packages with which `import torch` fails, or takes the device away, each with what helps; as far as
    #: it was looked for, and no verdict says it.
    autoload: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether the choice is not known because a backend gave no answer in time."""
        return self.chosen is None and any(v.status is Status.TIMED_OUT for v in self.verdicts)

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        same = {name: list(v) if isinstance(v, tuple) else v for name, v in self._asdict().items()}
        del same["provenance"]
        return {
            **same,
            "how": self.how.value,
            "distribution": self.provenance.distribution if self.provenance else None,
            "version": self.provenance.version if self.provenance else None,
            "ms": round(self.ms, 3),
            "environ": dict(self.environ),
            "verdicts": [v.to_dict() for v in self.verdicts],
        }

    def __str__(self) -> str:
        if self.chosen is None:
            lines = [f"No backend could be chosen. {self.problem}"]
        else:
            origin = f" ({self.provenance})" if self.provenance else ""  # a class that no plugin declares
            lines = [f"{self.chosen}{origin}: {self.how.words}."]
        lines += [
            f"  {v.line(self.verdicts)}" for v in self.verdicts if v.name != self.chosen or not v.usable
        ]
        lines += [f"  {line}" for line in (*self.missing_plugins, *self.autoload, *self.notes)]
        if self.environ:
            lines.append("Variables: " + ", ".join(f"{k}={v!r}" for k, v in self.environ.items()))
        lines.append(f"Chosen by process {self.pid} in {self.ms:.1f} ms.")
        return escape_control_chars("\n".join(lines))

    # In a notebook: the choice alone as text, every verdict as a table.

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(str(self).partition("\n")[0])

    def _repr_html_(self) -> str:
        words = [f"usable: {self.how.words}" if v.usable else v.status.words for v in self.verdicts]
        names = [v.label(self.verdicts) for v in self.verdicts]
        told = zip(self.verdicts, names, words, strict=True)
        rows = ((name, what, v.reason, v.hint) for v, name, what in told)
        return _html_table(("backend", "verdict", "why", "next step"), *rows)


class Choice(NamedTuple):
    """A selection, with the chosen candidate and the others considered; or the error that it ended with."""

    selection: Selection
    candidate: Candidate | None
    considered: Ranked
    error: AccelError | None = None
    #: Built by the probe of the chosen backend; `None` where that was in a child process.
    accelerator: "Accelerator | None" = None


def _html_table(*rows: Iterable[object]) -> str:
    """Return a table for notebooks; the first row is its head."""
    from html import escape

    cells = [[escape(escape_control_chars(str(cell)), quote=False) for cell in row] for row in rows]
    head, *body = (f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    return f"<table>{head.replace('td>', 'th>')}{''.join(body)}</table>"
