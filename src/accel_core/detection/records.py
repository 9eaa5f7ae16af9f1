"""What probing gives: statuses, outcomes of a step, and the verdict on a candidate."""

from __future__ import annotations

import enum
from typing import NamedTuple

from accel_core.backend import Provenance
from accel_core.detection.discovery import Candidate, root_cause
from accel_core.machine import devices

__all__ = ["Outcome", "Status", "Verdict", "verdict"]


class Status(str, enum.Enum):
    """What probing a candidate gave."""

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

    def __str__(self) -> str:
        return self.value

    @property
    def is_failure(self) -> bool:
        """Whether something installed does not work, as against not being there."""
        return self in (Status.BROKEN, Status.INVALID, Status.TIMED_OUT, Status.CRASHED, Status.INCOMPATIBLE)


class Outcome(NamedTuple):
    """What one step of the funnel found."""

    status: Status
    reason: str = ""
    hint: str = ""
    devices: int | None = None
    error: BaseException | None = None


class Verdict(NamedTuple):
    """What probing one candidate gave, and what it took."""

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

    @property
    def usable(self) -> bool:
        """Whether this backend can be chosen."""
        return self.status is Status.USABLE

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            "name": self.name,
            "distribution": self.provenance.distribution,
            "version": self.provenance.version,
            "entry_point": self.provenance.value,
            "priority": self.priority,
            "device_type": self.device_type,
            "vendor_import": list(self.vendor_import),
            "status": self.status.value,
            "reason": self.reason,
            "hint": self.hint,
            "cause": self.cause,
            "devices": self.devices,
            "evidence": self.evidence,
            "ms": round(self.ms, 3),
            "builtin": self.builtin,
            "description": self.description,
            "url": self.url,
        }

    def __str__(self) -> str:
        parts = [f"{self.name} ({self.provenance}): {self.status.value.replace('_', ' ')}"]
        if self.reason:
            parts.append(f": {self.reason}")
        return "".join(parts) + (f". {self.hint}" if self.hint else "")


def verdict(candidate: Candidate, outcome: Outcome, ms: float = 0.0) -> Verdict:
    """The verdict that `outcome` means for `candidate`."""
    backend = candidate.backend
    return Verdict(
        name=candidate.name,
        status=outcome.status,
        reason=outcome.reason,
        hint=outcome.hint,
        cause=root_cause(outcome.error) if outcome.error else "",
        devices=outcome.devices,
        evidence=str((backend and devices.evidence(backend)) or ""),
        ms=ms,
        priority=candidate.priority,
        device_type=backend.device_type if backend else "",
        vendor_import=backend.vendor_imports if backend else (),
        provenance=candidate.provenance,
        builtin=candidate.builtin,
        description=backend.description if backend else "",
        url=backend.url if backend else "",
        error=outcome.error,
    )
