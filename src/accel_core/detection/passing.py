"""What a child process is handed and hands back: candidates, declarations and outcomes as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_core.backend import Backend, Provenance
from accel_core.detection import builtin
from accel_core.detection.entry_points import EntryPoint
from accel_core.detection.plugin import Unimported
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded, root_cause, root_place

__all__ = ["backend", "candidate", "outcome", "told", "told_outcome"]


def told(found: Candidate | Unloaded) -> dict[str, object]:
    """A candidate without its plugin, which each process imports for itself; of one without, its outcome."""
    if isinstance(found, Unloaded):
        return {"outcome": told_outcome(found.outcome)}
    return {"backend": _fields(found.backend), "provenance": list(found.provenance)}


def candidate(given: Mapping[str, Any]) -> Candidate:
    """The candidate that `told` wrote; its plugin is imported when it is needed.

    Raises `InvalidBackendError` where the declaration is none.
    """
    source = Provenance(*given["provenance"])
    found = Candidate(backend(given["backend"])._declared_by(source), builtin)
    if found.builtin:
        return found
    origin = EntryPoint(source.entry_point, source.value, source.distribution, source.version)
    return found._replace(plugin=Unimported(origin))


def backend(given: Mapping[str, Any]) -> Backend:
    """The declaration that was told, checked as any is; raises `InvalidBackendError` where it is none."""
    return Backend(**{name: _tuples(value) for name, value in given.items()})


def told_outcome(found: Outcome) -> dict[str, object]:
    """An outcome; of its error what people read."""
    return {
        "status": found.status.value,
        "reason": found.reason,
        "hint": found.hint,
        "devices": found.devices,
        "cause": root_cause(found.error) if found.error else found.cause,
        "where": root_place(found.error) if found.error else found.where,
    }


def outcome(given: Mapping[str, Any]) -> Outcome:
    """The outcome that `told_outcome` wrote; raises `KeyError` or `ValueError` for anything else."""
    devices = given["devices"]
    return Outcome(
        Status(given["status"]),
        str(given["reason"]),
        str(given["hint"]),
        devices if isinstance(devices, int) else None,
        cause=str(given["cause"]),
        where=str(given["where"]),
    )


def _fields(declared: Backend) -> dict[str, object]:
    """What the declaration says: not its provenance, and not what it leaves at the default."""
    names = [name for name in Backend.__annotations__ if name != "provenance"]
    values = {name: getattr(declared, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if not hasattr(Backend, name) or value != getattr(Backend, name)
    }


def _tuples(value: object) -> Any:
    """Lists, as which tuples come through JSON, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
