"""The case of one backend: its verdict, where it ranks, and what a choice makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from accel_core.cli.overview import Overview, look
from accel_core.detection.messages import not_found
from accel_core.detection.records import Verdict
from accel_core.errors import BackendNotFoundError
from accel_core.settings import Pin, Settings

__all__ = ["Case", "cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """One backend among all."""

    verdict: Verdict
    #: Its place in the order, from 1, and how many there are.
    rank: int
    total: int
    #: What ranks above it, usable or not.
    above: tuple[Verdict, ...]
    chosen: bool
    #: What a choice makes of it, as a sentence.
    standing: str

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            **self.verdict.to_dict(),
            "usable": self.verdict.usable,
            "chosen": self.chosen,
            "standing": self.standing,
            "rank": self.rank,
            "of": self.total,
            "outranked_by": [
                {"name": v.name, "distribution": v.provenance.distribution, "status": v.status.value}
                for v in self.above
            ],
        }


def cases(pin: Pin, settings: Settings) -> list[Case]:
    """The cases of every backend that `pin` means; raises `BackendNotFoundError` when there is none."""
    overview = look(settings)
    meant = [v for v in overview.verdicts if pin.matches(v.name, v.provenance.distribution)]
    if not meant:
        raise BackendNotFoundError(not_found(f"accel why {pin}", pin))
    chosen, asked = _chosen(overview)
    return [_case(verdict, overview, settings, chosen, asked) for verdict in meant]


def _chosen(overview: Overview) -> tuple[Verdict | None, tuple[Verdict, ...]]:
    """What would be chosen, and the verdicts that are different for a pin, which needs no device."""
    selection = overview.selection
    if selection is None:
        return (overview.mark.verdict if overview.mark else None), ()
    return next((v for v in selection.verdicts if v.usable), None), selection.verdicts


def _case(
    verdict: Verdict,
    overview: Overview,
    settings: Settings,
    chosen: Verdict | None,
    asked: tuple[Verdict, ...],
) -> Case:
    above = overview.verdicts[: overview.verdicts.index(verdict)]
    verdict = next((v for v in asked if _same(v, verdict)), verdict)
    is_chosen = chosen is not None and _same(chosen, verdict)
    return Case(
        verdict=verdict,
        rank=len(above) + 1,
        total=len(overview.verdicts),
        above=above,
        chosen=is_chosen,
        standing=_standing(verdict, chosen, settings, is_chosen=is_chosen),
    )


def _same(one: Verdict, other: Verdict) -> bool:
    return (one.name, one.provenance, one.priority) == (other.name, other.provenance, other.priority)


def _standing(verdict: Verdict, chosen: Verdict | None, settings: Settings, *, is_chosen: bool) -> str:
    by = f" by {settings.asked}" if settings.pins else ""
    if is_chosen:
        return f"It would be chosen{by}."
    if chosen is None:
        return f"Nothing would be chosen{by}."
    if verdict.usable and not by:
        return f"{chosen.name} is usable too and ranks above it, so {chosen.name} would be chosen."
    return f"{chosen.name} would be chosen{by}."
