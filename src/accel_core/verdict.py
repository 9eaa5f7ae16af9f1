"""Define the records of a choice: the verdict on each backend, and the selection.

A `Verdict` goes through every step of the pipeline, and each step replaces some of its
fields. The reason why a backend is not usable is data, a `Why`. The package `explain`
turns a `Why` into words when a record is shown.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accel_core.backend import Backend, Provenance
from accel_core.errors import AccelError
from accel_core.hardware import platform_matches
from accel_core.hardware.bus import Evidence
from accel_core.text import escape_control_chars

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


class Status(str, enum.Enum):
    """The status of a backend: the result of its checks and its probe."""

    USABLE = "usable"
    NOT_PROBED = "not_probed"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    NOT_INSTALLED = "not_installed"
    NO_DEVICE = "no_device"
    DEFERRED = "deferred"
    BROKEN = "broken"
    INVALID = "invalid"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"

    __str__ = str.__str__

    @property
    def label(self) -> str:
        """The status in human-readable words, such as `"no device"`."""
        return self.value.replace("_", " ")

    @property
    def is_failure(self) -> bool:
        """Whether an installed package or plugin does not work. A missing package is not
        a failure.
        """
        return self in _FAILURES


_FAILURES = frozenset(
    {
        Status.BROKEN,
        Status.INVALID,
        Status.TIMED_OUT,
        Status.CRASHED,
        Status.INCOMPATIBLE,
    }
)


class Reason(str, enum.Enum):
    """The reason why a backend has its status. The comment after each value names the
    fields of its `Why`.
    """

    # The settings and the other plugins.
    BLOCKED = "blocked"  # variable, rule
    CONFLICT = "conflict"  # rivals
    NOT_DECLARED = "not_declared"  # distribution
    OUTRANKED = "outranked"  # by
    NOT_ASKED = "not_asked"
    NOT_LOADED = "not_loaded"

    # The plugin.
    PLUGIN_FAILS = "plugin_fails"  # entry_point, step
    PLUGIN_FAILS_BESIDE_OTHERS = "plugin_fails_beside_others"  # entry_point, step
    DECLARATION_INVALID = "declaration_invalid"  # entry_point, text, step
    NEEDS_OTHER_CORE = "needs_other_core"  # at
    HOOK_DOES_NOT_FIT = "hook_does_not_fit"
    ANSWER_INVALID = "answer_invalid"  # call, field, value, kind, expected
    ACCELERATOR_INVALID = "accelerator_invalid"  # text, step
    PLUGIN_ANSWERS = "plugin_answers"  # text, step

    # What is installed.
    VENDOR_NOT_INSTALLED = "vendor_not_installed"  # modules, distributions
    DISTRIBUTION_NOT_INSTALLED = "distribution_not_installed"  # name, requirement
    REQUIREMENT_NOT_MET = "requirement_not_met"  # requirement, name, installed
    REQUIREMENT_MALFORMED = "requirement_malformed"  # requirement, text
    MADE_FOR_OTHER_TORCH = "made_for_other_torch"  # name, installed, release, torch
    TORCH_LACKS_BUILD = "torch_lacks_build"  # torch, build, toolkits
    NAMESPACE_TAKEN = "namespace_taken"  # by

    # The machine.
    OTHER_PLATFORM = "other_platform"  # platforms
    NO_HARDWARE = "no_hardware"  # torch, build, root
    DRIVER_NOT_LOADED = "driver_not_loaded"  # root
    NODES_WITHHELD = "nodes_withheld"  # root
    HIDDEN = "hidden"  # root, environ

    # The device.
    COUNTS_NONE = "counts_none"  # root, environ
    VENDOR_FAILS = "vendor_fails"  # what, cause, step
    UNAVAILABLE = "unavailable"  # text, cause, step
    REGISTERS = "registers"  # package, device_type, count
    TORCH_HAS_NONE = "torch_has_none"  # torch, claims, undeclared
    DECLARED_BY = "declared_by"  # backends, device_type
    CRASHED = "crashed"  # did, ending, stage, last_words, owner
    TIMED_OUT = "timed_out"  # seconds, stage, owner
    NO_PROCESS = "no_process"  # text

    # Two reasons in one.
    PINNED_WITHOUT_DEVICE = "pinned_without_device"  # because
    NOR_HARDWARE = "nor_hardware"  # hardware, because

    __str__ = str.__str__


@dataclass(frozen=True)
class Why:
    """A reason for a backend's status, and the facts that an explanation of it needs."""

    reason: Reason
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __getitem__(self, name: str) -> Any:
        """Return the value of the field called `name`. Raises `KeyError` if the field
        is missing.
        """
        return self.fields[name]

    def get(self, name: str) -> Any:
        """Return the value of the field called `name`, or an empty string if the field
        is missing.
        """
        return self.fields.get(name, "")

    def to_dict(self) -> dict[str, object]:
        """Return the reason and its fields as plain values, for JSON."""
        fields = dict(self.fields)
        for name, value in self.fields.items():
            if isinstance(value, Why):
                fields[name] = value.to_dict()
        return {"reason": self.reason.value, "fields": fields}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Why:
        """Return the `Why` from the `document` that `to_dict` returned."""
        fields = dict(document["fields"])
        for name, value in document["fields"].items():
            if _is_encoded_why(value):
                fields[name] = cls.from_dict(value)
        return cls(Reason(document["reason"]), fields)


def _is_encoded_why(value: object) -> bool:
    """Return whether `value` is a document that `Why.to_dict` returned."""
    return isinstance(value, dict) and value.keys() == {"reason", "fields"}


@dataclass(frozen=True)
class Words:
    """A reason in one or two clauses, and the next step. Any of them may be empty."""

    clause: str = ""
    step: str = ""
    #: A second clause. Verdicts of one group may share it.
    second_clause: str = ""
    #: The first error of the failure that the last clause describes.
    cause: str = ""

    @property
    def text(self) -> str:
        """The clauses and the cause as one text."""
        if self.cause:
            return f"{self.text_without_cause}: {self.cause}"
        return self.text_without_cause

    @property
    def text_without_cause(self) -> str:
        """Both clauses of the reason as one text."""
        if self.second_clause:
            return f"{self.clause}; and {self.second_clause}"
        return self.clause

    def referring_to(self, name: str) -> Words:
        """Return the words with the cause replaced by a reference to the backend `name`,
        which failed for the same reason.
        """
        if not self.cause:
            return self
        reference = f", for the same reason as {name}"
        if self.second_clause:
            second_clause = self.second_clause + reference
            return replace(self, second_clause=second_clause, cause="")
        return replace(self, clause=self.clause + reference, cause="")


@dataclass(frozen=True)
class Verdict:
    """The state of one backend on this machine, or of a plugin that could not be read."""

    name: str
    #: The distribution and the entry point that declare the backend. A built-in backend
    #: has only a distribution.
    provenance: Provenance
    #: The declaration, or `None` if it could not be read.
    backend: Backend | None = None
    #: Whether the backend is built into accel-core.
    builtin: bool = False
    #: The result of the checks and the probe.
    status: Status = Status.NOT_PROBED
    #: The reason for the status, or `None` for most usable backends.
    why: Why | None = None
    #: The number of devices, or `None` if they were not counted.
    devices: int | None = None
    #: Signs of the hardware, or `None` if they were not searched for, or the
    #: declaration names none.
    hardware_signs: Evidence | None = None
    #: The exception that the probe raised in this process.
    error: BaseException | None = field(default=None, compare=False, repr=False)
    #: Type and message of the first exception of the chain, or an empty string if there
    #: was none.
    cause: str = ""
    #: The file and line that raised the first exception, or an empty string if there
    #: was none.
    where: str = ""
    #: Whether the probe ended its child process. It would end a program too.
    fatal: bool = False
    #: A second failure, of the vendor's package, if the status is a missing device.
    package_failure: Verdict | None = None
    #: The device type that uses torch's PrivateUse1 slot after a probe in a child process.
    slot: str = ""
    #: The duration of the probe in milliseconds.
    ms: float = field(default=0.0, compare=False)
    #: The accelerator that the probe built in this process.
    accelerator: Accelerator | None = field(default=None, compare=False, repr=False)

    @property
    def declaration(self) -> Backend:
        """The backend's declaration. Raises `AssertionError` if it could not be read."""
        assert self.backend is not None, self.name
        return self.backend

    # Fields of the declaration; empty if there is no declaration

    @property
    def priority(self) -> int:
        """The backend's declared priority, or 0 without a declaration."""
        return self.backend.priority if self.backend else 0

    @property
    def device_type(self) -> str:
        """The backend's torch device type."""
        return self.backend.device_type if self.backend else ""

    @property
    def vendor_import(self) -> tuple[str, ...]:
        """The modules that can add the device to torch. The first one that is installed
        is imported.
        """
        return self.backend.vendor_imports if self.backend else ()

    @property
    def hardware(self) -> str:
        """The common name of the device, such as `"NVIDIA GPU"`, or an empty string if
        its plugin declares none.
        """
        return self.backend.hardware.name if self.backend else ""

    @property
    def description(self) -> str:
        """The backend's description in one line, for people."""
        return self.backend.description if self.backend else ""

    @property
    def url(self) -> str:
        """The address of the documentation page for users of this backend."""
        return self.backend.url if self.backend else ""

    @property
    def distribution(self) -> str:
        """The name of the distribution that declares the backend, or `"accel-core"` for
        a built-in one.
        """
        return self.provenance.distribution

    # Properties that follow from the status

    @property
    def usable(self) -> bool:
        """Whether this backend can be chosen."""
        return self.status is Status.USABLE

    @property
    def evidence(self) -> str:
        """The device nodes and PCI ids of the backend's hardware on this machine, as text."""
        return str(self.hardware_signs or "")

    @property
    def lacks_device(self) -> bool:
        """Whether the backend lacks only a device. Such a backend is usable if it is pinned."""
        return self.status is Status.NO_DEVICE and self.devices == 0

    @property
    def absent(self) -> bool:
        """Whether it is certain that the device is not on this machine."""
        was_searched_for = self.hardware_signs is not None
        if was_searched_for and not self.hardware_signs:
            return True
        if self.backend is None:
            return False
        return not platform_matches(self.backend.hardware.platforms)

    @property
    def is_reported(self) -> bool:
        """Whether messages to users mention that this backend is not used.

        Blocked backends are not reported, and built-in ones only if a vendor's package
        is broken.
        """
        if self.status is Status.BLOCKED:  # The user excluded the backend.
            return False
        # Nobody installed a built-in backend, so only its failure is worth a message.
        return not self.builtin or self.status.is_failure

    @property
    def needs_attention(self) -> bool:
        """Whether the user should act, because hardware is present but unused or an
        installed package is broken.

        The warning of the CPU fallback, `ACCEL_STRICT`, `accel list` and `accel doctor`
        use this property.
        """
        if self.usable or not self.is_reported:
            return False
        if self.package_failure is not None or self.status.is_failure:
            return True
        if self.status is Status.CONFLICT:
            return True
        is_left_to_others = self.status in (Status.DEFERRED, Status.NOT_PROBED)
        return bool(self.hardware_signs) and not is_left_to_others

    def is_about(self, other: Verdict) -> bool:
        """Return whether this verdict and `other` are about the same backend of the
        same distribution.
        """
        own_key = (self.name, self.provenance, self.priority)
        return own_key == (other.name, other.provenance, other.priority)

    # The verdict in words

    @cached_property
    def words(self) -> Words:
        """The reason for the status and the next step in English, written from `why` at
        first use.
        """
        from accel_core.explain.reasons import words_of

        return words_of(self)

    @property
    def reason(self) -> str:
        """The reason for the status, as one clause, or an empty string for most usable backends."""
        return self.words.text

    @property
    def hint(self) -> str:
        """The user's next step, or an empty string if there is none."""
        return self.words.step

    def hardware_if_ambiguous(self, others: Iterable[Verdict]) -> str:
        """Return this backend's hardware if a backend of the same name in `others` has
        other hardware, or an empty string otherwise.

        CUDA and ROCm, for example, are two declarations of `cuda`.
        """
        for other in others:
            has_same_name = other.name == self.name
            is_of_same_plugin = other.provenance == self.provenance
            has_other_hardware = other.hardware != self.hardware
            if has_same_name and is_of_same_plugin and has_other_hardware:
                return self.hardware
        return ""

    def label(self, others: Iterable[Verdict]) -> str:
        """Return the backend's name, followed by its hardware if `others` contains a
        backend of the same name.
        """
        hardware = self.hardware_if_ambiguous(others)
        return f"{self.name} ({hardware})" if hardware else self.name

    def line(self, others: Iterable[Verdict] = (), reason: str | None = None) -> str:
        """Return the verdict as one line of a text that also contains `others`.

        `reason` replaces the verdict's reason.
        """
        source = str(self.provenance)
        hardware = self.hardware_if_ambiguous(others)
        if hardware:
            source = f"{hardware}, {source}"
        if reason is None:
            reason = self.reason
        line = f"{self.name} ({source}): {self.status.label}"
        if reason:
            line += f": {reason}"
        if self.hint:
            line += f". Next step: {self.hint}"
        return line

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain values, for JSON."""
        return {
            "name": self.name,
            "status": self.status.value,
            "reason": self.reason,
            "reason_code": self.why.reason.value if self.why else "",
            "hint": self.hint,
            "cause": self.cause,
            "where": self.where,
            "devices": self.devices,
            "evidence": self.evidence,
            "ms": round(self.ms, 3),
            "priority": self.priority,
            "device_type": self.device_type,
            "vendor_import": list(self.vendor_import),
            "builtin": self.builtin,
            "description": self.description,
            "url": self.url,
            "hardware": self.hardware,
            "distribution": self.provenance.distribution,
            "version": self.provenance.version,
            "entry_point": self.provenance.value,
            "entry_point_name": self.provenance.entry_point,
        }

    def __str__(self) -> str:
        return self.line()


class How(str, enum.Enum):
    """The way in which a backend was chosen. JSON documents contain the value."""

    PINNED = "pinned"
    PREFERRED = "preferred"
    RANKED = "ranked"
    FALLBACK = "fallback"
    SET = "set"

    __str__ = str.__str__

    @property
    def label(self) -> str:
        """The way in which the backend was chosen, in human-readable words."""
        return _LABELS_OF_HOW[self]


_LABELS_OF_HOW = {
    How.PINNED: "pinned by DS_ACCELERATOR",
    How.PREFERRED: "the first usable backend in DS_ACCELERATOR",
    How.RANKED: "the usable backend with the highest priority",
    How.FALLBACK: "CPU fallback: no accelerator is usable",
    How.SET: "set by the program",
}


@dataclass(frozen=True)
class Note:
    """A note for the user on the settings that controlled a choice, and the next step."""

    #: A clause on the setting, or a statement with a question.
    text: str
    #: The user's next step, or an empty string if the text contains it.
    step: str = ""
    #: The name of the backend that the note is about, or an empty string if it is about
    #: a setting.
    about: str = ""

    def __str__(self) -> str:
        if not self.step:
            return self.text
        return f"{self.text}. Next step: {self.step}."


@dataclass(frozen=True)
class Selection:
    """The record of one choice of a backend. `print(selection)` explains the choice."""

    #: The verdict on the chosen backend, with its accelerator, or `None` if the choice
    #: failed.
    chosen: Verdict | None
    #: How the backend was chosen.
    how: How
    #: Every verdict, in the order in which the backends were considered.
    verdicts: tuple[Verdict, ...] = ()
    #: The error of a failed choice, or `None` if the choice succeeded.
    error: AccelError | None = field(default=None, compare=False)
    #: The id of the process that made the choice.
    pid: int = 0
    #: The environment variables that could affect the choice, with their values at that
    #: time.
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: A line for each device without an installed plugin, with the command to install
    #: the plugin.
    missing_plugins: tuple[str, ...] = ()
    #: The duration of the choice in milliseconds.
    ms: float = 0.0
    #: Notes on settings that are probably mistakes: misspelled names, pins without a
    #: device.
    notes: tuple[Note, ...] = ()
    #: A line for each package that breaks `import torch` or takes over the chosen device,
    #: with the next step. Only commands search for such packages.
    autoload: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The chosen backend's name, or `None` if the choice failed."""
        return self.chosen.name if self.chosen else None

    @property
    def provenance(self) -> Provenance | None:
        """The distribution and entry point of the chosen backend, or `None` if the
        choice failed.
        """
        return self.chosen.provenance if self.chosen else None

    @property
    def problem(self) -> str:
        """The error message of a failed choice, or an empty string if the choice succeeded."""
        return str(self.error) if self.error else ""

    @property
    def problem_summary(self) -> str:
        """The first line of the error message `problem`. The other lines contain details."""
        return self.problem.partition("\n")[0]

    @property
    def is_unknown(self) -> bool:
        """Whether it is unknown which backend is chosen, because a backend did not
        respond in time.
        """
        has_timed_out = any(v.status is Status.TIMED_OUT for v in self.verdicts)
        return self.chosen is None and has_timed_out

    def to_dict(self) -> dict[str, object]:
        """Return the selection as plain values, for JSON."""
        source = self.provenance
        return {
            "chosen": self.name,
            "how": self.how.value,
            "distribution": source.distribution if source else None,
            "version": source.version if source else None,
            "verdicts": [v.to_dict() for v in self.verdicts],
            "pid": self.pid,
            "environ": dict(self.environ),
            "missing_plugins": list(self.missing_plugins),
            "ms": round(self.ms, 3),
            "problem": self.problem,
            "notes": [str(note) for note in self.notes],
            "autoload": list(self.autoload),
        }

    def __str__(self) -> str:
        lines = [self._headline()]
        for verdict in self.verdicts:
            is_chosen = verdict.name == self.name and verdict.usable
            if not is_chosen:
                lines.append(f"  {verdict.line(self.verdicts)}")
        for remark in (*self.missing_plugins, *self.autoload, *self.notes):
            lines.append(f"  {remark}")
        if self.environ:
            assignments = [f"{name}={value!r}" for name, value in self.environ.items()]
            lines.append(f"Variables: {', '.join(assignments)}")
        lines.append(f"Chosen by process {self.pid} in {self.ms:.1f} ms.")
        return escape_control_chars("\n".join(lines))

    def _headline(self) -> str:
        if self.chosen is None:
            return f"No backend could be chosen. {self.problem}"
        origin = f" ({self.provenance})" if str(self.provenance) else ""
        return f"{self.name}{origin}: {self.how.label}."
