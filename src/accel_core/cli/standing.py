"""Where one backend stands: its verdict, its rank, and what the choice makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from accel_core.detection.messages import not_found
from accel_core.detection.records import Verdict
from accel_core.detection.survey import Survey, survey
from accel_core.errors import BackendNotFoundError
from accel_core.settings import Pin, Settings

__all__ = ["Standing", "standings"]


@dataclass(frozen=True, slots=True)
class Standing:
    """One backend among all."""

    verdict: Verdict
    #: Its place in the order, from 1, and how many there are.
    rank: int
    total: int
    #: What ranks above it, usable or not.
    above: tuple[Verdict, ...]
    chosen: bool
    #: What the choice makes of it, as a sentence.
    sentence: str

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            **self.verdict.to_dict(),
            "usable": self.verdict.usable,
            "chosen": self.chosen,
            "standing": self.sentence,
            "rank": self.rank,
            "of": self.total,
            "outranked_by": [
                {"name": v.name, "distribution": v.provenance.distribution, "status": v.status.value}
                for v in self.above
            ],
        }


def standings(pin: Pin, settings: Settings) -> list[Standing]:
    """Every backend that `pin` means; raises `BackendNotFoundError` when there is none."""
    everything = survey(settings)
    meant = [v for v in everything.verdicts if pin.matches(v.name, v.provenance.distribution)]
    if not meant:
        raise BackendNotFoundError(not_found(f"accel why {pin}", pin))
    return [_standing(verdict, everything, settings) for verdict in meant]


def _standing(verdict: Verdict, everything: Survey, settings: Settings) -> Standing:
    choice = everything.choice
    assert choice is not None
    above = everything.verdicts[: everything.verdicts.index(verdict)]
    candidate = choice.candidate
    chosen = next((v for v in choice.selection.verdicts if candidate and v.is_about(candidate)), None)
    # A pin needs no device: what was pinned has the verdict that it has as a pin.
    pinned = choice.selection.verdicts if settings.pins else ()
    verdict = next((v for v in pinned if v.is_about(verdict)), verdict)
    is_chosen = chosen is not None and chosen.is_about(verdict)
    return Standing(
        verdict=verdict,
        rank=len(above) + 1,
        total=len(everything.verdicts),
        above=above,
        chosen=is_chosen,
        sentence=_sentence(verdict, chosen, settings, is_chosen=is_chosen),
    )


def _sentence(verdict: Verdict, chosen: Verdict | None, settings: Settings, *, is_chosen: bool) -> str:
    by = f" by {settings.asked}" if settings.pins else ""
    if is_chosen:
        return f"It would be chosen{by}."
    if chosen is None:
        return f"Nothing would be chosen{by}."
    if verdict.usable and not by:
        return f"{chosen.name} is usable too and ranks above it, so {chosen.name} would be chosen."
    return f"{chosen.name} would be chosen{by}."
