"""Every installed backend with its verdict, and which of them the settings choose or pin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from accel_core._support.torch_import import TorchBuild, torch_build
from accel_core.detection import select as choice
from accel_core.detection.records import Verdict
from accel_core.detection.select import How, Selection
from accel_core.detection.survey import survey
from accel_core.settings import Pin, Settings

__all__ = ["Mark", "Overview", "look"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The backend that a choice would come to, or that the settings pin."""

    verdict: Verdict
    how: How
    #: Whether the choice would succeed; `None` where only probing can tell.
    honoured: bool | None = True


@dataclass(frozen=True, slots=True)
class Overview:
    """What `accel list` shows."""

    #: In the order in which they rank.
    verdicts: tuple[Verdict, ...]
    mark: Mark | None
    #: The choice that the pins come to, where it had to be tried.
    selection: Selection | None
    probed: bool
    #: Hardware that was seen while no plugin for it is installed, each with the command to run.
    unserved: tuple[str, ...]
    torch: TorchBuild | None

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        marked = self.mark.verdict if self.mark else None
        return {
            "torch": self.torch.version if self.torch else None,
            "probed": self.probed,
            "chosen": self.mark.verdict.name if self.mark and self.mark.honoured else None,
            "how": self.mark.how.value if self.mark else None,
            "unserved": list(self.unserved),
            "backends": [{**v.to_dict(), "marked": v is marked} for v in self.verdicts],
        }


def look(settings: Settings, *, probing: bool = True) -> Overview:
    """Examine every candidate; `probing`: each in a child process too, all at once under one deadline.

    This process imports neither torch nor a vendor's package.
    """
    verdicts = survey(settings, probing=probing)
    first = _meant(verdicts, settings.pins[0]) if settings.pins else None
    # What is usable at rank is usable when pinned. The reverse must be tried: a pinned backend needs no
    # device, and a pin may settle a conflict.
    tried = settings.pins and probing and not (first and first.usable)
    selection = choice.choose(settings, os.environ, isolated=True).selection if tried else None
    return Overview(
        verdicts=verdicts,
        mark=_pinned(verdicts, first, settings, selection) if settings.pins else _ranked(verdicts),
        selection=selection,
        probed=probing,
        unserved=choice.unserved(v.name for v in verdicts),
        torch=torch_build(),
    )


def _ranked(verdicts: Sequence[Verdict]) -> Mark | None:
    """The first usable backend."""
    first = next((v for v in verdicts if v.usable), None)
    if first is None:
        return None
    return Mark(first, How.FALLBACK if first.builtin and first.name == "cpu" else How.RANKED)


def _pinned(
    verdicts: Sequence[Verdict], first: Verdict | None, settings: Settings, selection: Selection | None
) -> Mark | None:
    """What the pins come to: `first` is what the first of them means, `selection` how the choice went."""
    how = How.PINNED if len(settings.pins) == 1 else How.PREFERRED
    if first is not None and first.usable:
        return Mark(first, how)
    if selection is not None and selection.chosen:
        return next(Mark(v, how) for v in verdicts if _is_chosen(v, selection))
    if first is None or how is How.PREFERRED:
        return None
    return Mark(first, how, honoured=None if selection is None else False)


def _is_chosen(verdict: Verdict, selection: Selection) -> bool:
    return (verdict.name, verdict.provenance) == (selection.chosen, selection.provenance)


def _meant(verdicts: Sequence[Verdict], pin: Pin) -> Verdict | None:
    """The one backend that a pin names: the built-in one where there is one; none of several others."""
    named = [v for v in verdicts if pin.matches(v.name, v.provenance.distribution)]
    named = [v for v in named if v.builtin] or named
    return named[0] if len({v.provenance.distribution for v in named}) == 1 else None
