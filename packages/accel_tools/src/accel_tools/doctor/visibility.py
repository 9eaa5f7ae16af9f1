"""Which physical devices a process sees, and by which number, after all variables are applied.

Variables apply one after the other: `ROCR_VISIBLE_DEVICES` filters the physical devices, and
`HIP_VISIBLE_DEVICES` numbers those that are left. The vendor ignores values that name no device without a
message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accel_core import Backend
from accel_core.errors import SettingError
from accel_core.toolkit import visible_devices

__all__ = ["Step", "Visibility", "rewritten", "visibility"]

#: Where an id that names no device ends the list, as `machine.visible_devices` says of invalid ones; in the
#: others' it is passed over, as far as their vendors tell.
_ENDS_THE_LIST = ("cuda", "mlu", "ascending")
#: Ids of modules are no indices: of which there are does not tell how many there are.
_NO_INDICES = "modules"


class Step(NamedTuple):
    """Effect of one variable."""

    variable: str
    value: str
    #: Entries without effect and why, as a clause; empty where all count.
    lost: str = ""
    #: Why the value cannot be understood.
    malformed: str = ""
    #: Another variable is read in its place.
    overruled_by: str = ""


class Visibility(NamedTuple):
    """Combined effect of the variables."""

    steps: tuple[Step, ...]
    #: The physical devices, as indices or the vendor's identifiers, by logical number. `None`: all of them,
    #: or nobody knows, as a value cannot be understood.
    devices: tuple[visible_devices.Id, ...] | None

    @property
    def logical(self) -> dict[visible_devices.Id, int]:
        """Return the logical number of each physical device."""
        return {physical: number for number, physical in enumerate(self.devices or ())}


def visibility(
    backend: Backend, environ: Mapping[str, str], count: int | None = None, uuids: Sequence[str] = ()
) -> Visibility:
    """Return which of `backend`'s devices a process with `environ` sees.

    `count`: the number of devices, if known; `uuids`: their identifiers, if known. Never raises: the step of
    a malformed value holds the error.
    """
    grammar = backend.visibility.grammar
    named = [name for name in backend.visibility.variables if name in environ]
    used = [name for name in backend.visibility.filters if name in environ] + named[:1]
    seen: list[visible_devices.Id] | None = (
        list(range(count)) if count is not None and grammar != _NO_INDICES else None
    )
    steps: list[Step] = []
    for name in used:
        value = environ[name]
        try:
            asked = visible_devices.parse_visible_devices(grammar, value)
        except SettingError as error:
            return Visibility((*steps, Step(name, value, malformed=str(error))), None)
        lost = asked.note
        if asked.ids is not None:
            seen, missing = _filtered(asked.ids, seen, grammar, uuids)
            if missing:
                lost = "; ".join(filter(None, [lost, missing]))
        steps.append(Step(name, value, lost))
    steps += [Step(name, environ[name], overruled_by=named[0]) for name in named[1:]]
    filtered = any(not (step.malformed or step.overruled_by) for step in steps) and seen is not None
    return Visibility(tuple(steps), tuple(seen or ()) if filtered else None)


def _filtered(
    asked: Sequence[visible_devices.Id],
    seen: Sequence[visible_devices.Id] | None,
    grammar: str,
    uuids: Sequence[str],
) -> tuple[list[visible_devices.Id], str]:
    """Those of `seen` that `asked` names by their place, and a clause on those that name nothing."""
    found: list[visible_devices.Id] = []
    for place, item in enumerate(asked):
        if isinstance(item, str) and (wrong := _unfit(item, uuids)):
            rest = ", ".join(map(str, asked[place:]))
            return found, f"{wrong}, which ends the list: {rest} not seen"
        if not isinstance(item, int) or seen is None:
            found.append(item)  # an identifier, or nobody knows how many there are
        elif item < len(seen):
            found.append(seen[item])
        elif grammar in _ENDS_THE_LIST:
            rest = ", ".join(map(str, asked[place:]))
            return found, f"there is no device {item}, which ends the list: {rest} not seen"
    missing = [i for i in asked if isinstance(i, int) and seen is not None and i >= len(seen)]
    return found, f"there is no device {', '.join(map(str, missing))}" if missing else ""


def _unfit(identifier: str, uuids: Sequence[str]) -> str:
    """Why the beginning of a UUID names no GPU, or several; of a part of a GPU only the driver knows.

    CUDA takes as much of it as tells the GPU from the others.
    """
    fits = [uuid for uuid in uuids if uuid.lower().startswith(identifier.lower())]
    if not uuids or not identifier.startswith("GPU-") or len(fits) == 1:
        return ""
    return (
        f"{identifier} is the beginning of {len(fits)} UUIDs" if fits else f"there is no device {identifier}"
    )


def rewritten(grammar: str, value: str, count: int | None = None) -> str:
    """Return a value with only the existing devices of `value`, each once; empty if none exists.

    `count`: the number of devices that this variable can name, if known.
    """
    items: dict[visible_devices.Id, None] = {}
    for entry in value.split(","):
        try:
            ids = visible_devices.parse_visible_devices(grammar, entry.strip()).ids or ()
        except SettingError:
            continue
        items.update((i, None) for i in ids if count is None or not isinstance(i, int) or i < count)
    ordered = sorted(i for i in items if isinstance(i, int)) if grammar == "ascending" else list(items)
    try:
        return visible_devices.format_visible_devices(grammar, ordered) if ordered else ""
    except SettingError:  # of two kinds
        return ""
