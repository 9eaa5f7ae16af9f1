"""The variables that choose which devices a process sees, each in its vendor's own grammar.

`parse_visible_devices` gives what the vendor's runtime makes of a value, its odd corners included: where
the runtime stops reading, so does this. `format_visible_devices` is stricter than the runtimes: it writes
only what means exactly the devices asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from accel_core import hardware
from accel_core.backend import GRAMMARS, Backend
from accel_core.errors import SettingError
from accel_core.hardware.bus import device_nodes, evidence

#: No machine has more devices. Also keeps `int()` away from numbers of a thousand digits.
_DIGITS = "[0-9]{1,9}"
_HEX = "[0-9A-Fa-f][0-9A-Fa-f-]*"
_INDEX = re.compile(_DIGITS)
#: The number at the start of an entry, which is how C's strtoul reads: CUDA takes `1gpu2` for 1.
_LEADING = re.compile(rf"\s*([+]?{_DIGITS}|-0)(?![0-9])")
#: As much of a value as is a list of indices.
_LIST = re.compile(rf"(?:{_DIGITS}(?![0-9])(?:,(?={_DIGITS}(?![0-9])))?)*")
_TILE = re.compile(rf"{_DIGITS}(\.{_DIGITS})?")
_CUDA_ID = re.compile(rf"GPU-{_HEX}|MIG-{_HEX}|MIG-GPU-{_HEX}/{_DIGITS}/{_DIGITS}")
#: Cambricon reads a value as UUIDs when it has a hyphen and at least the length of one UUID.
_MLU_UUID_LENGTH = 36
_MLU_UUID = re.compile(rf"(?=.{{{_MLU_UUID_LENGTH}}})[0-9A-Za-z]+(-[0-9A-Za-z]+)+")
Id = int | str
#: How many devices there are, the numbers of their nodes, and their UUIDs, as far as they are known.
Present = tuple[int | None, Sequence[int], Sequence[str]]


class Mask(NamedTuple):
    """The devices that one value leaves."""

    #: Device indices, or the vendor's identifiers, in the order of the value. `None`: every device.
    ids: tuple[Id, ...] | None = None
    #: Why the value, or part of it, has no effect: "'-1' ends the list".
    note: str = ""


class Step(NamedTuple):
    """Effect of one variable on the devices that those before it leave."""

    variable: str
    value: str
    #: Entries without effect and why, as a clause; empty where all count.
    lost: str = ""
    #: Why the runtime refuses the value; it decides what comes of that.
    malformed: str = ""
    #: Another variable is read in its place.
    overruled_by: str = ""
    #: What to write instead: the devices in the value that are there, or all. Empty where nothing is wrong.
    better: str = ""
    #: No device is left after it.
    hides: bool = False

    def __str__(self) -> str:
        said = f"{self.variable}={self.value!r}"
        if self.malformed:
            return f"{said} is not valid: {self.malformed}"
        return ": ".join(filter(None, [f"{said} hides every device" if self.hides else said, self.lost]))


class Masks(NamedTuple):
    """Devices of a backend that all variables together leave."""

    steps: tuple[Step, ...] = ()
    #: The physical devices, as indices or the vendor's identifiers, by logical number. `None`: all of them,
    #: or nobody knows, as a value cannot be understood.
    devices: tuple[Id, ...] | None = None

    @property
    def faulty(self) -> list[Step]:
        """The variables whose values must be changed."""
        return [step for step in self.steps if step.lost or step.malformed or step.hides or step.better]

    def __str__(self) -> str:
        return str(self.faulty[0]) if self.faulty else ""

    @property
    def step(self) -> str:
        """The next step: the variables with values that work here if they are known, else what to name in the
        first.
        """
        written = [f"{step.variable}={step.better}" for step in self.faulty if step.better]
        unset = f"unset {self.faulty[0].variable}, or name in it the devices to use"
        return f"export {' '.join(written)}" if written else unset


def masks(backend: Backend, environ: Mapping[str, str], present: Present = (None, (), ())) -> Masks:
    """Combine the visible-devices variables in `environ`, for the devices of `backend` that are `present`.

    As in the vendors' runtimes, the variables of `Visibility.filters` come first, each counting among the
    devices that the previous one leaves; then the first variable of `Visibility.variables` that is set.
    `present` is `there(backend)`, if that is known.
    """
    (count, numbers, uuids), visibility = present, backend.visibility
    rules, steps = _grammar(visibility.grammar), list[Step]()
    named = [name for name in visibility.variables if name in environ]
    seen: list[Id] | None = None if count is None or rules.places else list(range(count))
    left = None if seen is None else len(seen)  # for the next variable, once those before it are mended
    for name in (*(name for name in visibility.filters if name in environ), *named[:1]):
        value, malformed, lost, better = environ[name], "", "", ""
        try:
            asked = parse_visible_devices(visibility.grammar, value)
        except SettingError as error:
            asked, malformed = Mask(), str(error)
        meant = _meant(rules, value, (left, () if steps else numbers, uuids))
        taken, clause = _taken(rules, asked, left, uuids)
        if asked.ids is not None and seen != []:
            among = f" among what {steps[-1].variable} leaves" if steps else ""
            found, lost = _taken(rules, asked, None if seen is None else len(seen), uuids, among)
            seen = [seen[i] if seen is not None and isinstance(i, int) else i for i in found]
        if malformed or (asked.ids is not None and (clause or taken != meant or not taken)):
            with suppress(SettingError):  # the grammar has no word for it
                better = format_visible_devices(visibility.grammar, meant or range(left or 0))
        steps.append(Step(name, value, lost, malformed, "", better, seen == [] and asked.ids is not None))
        left = left if asked.ids is None and not malformed else len(meant) or left
    unknown = not steps or any(step.malformed for step in steps) or seen is None
    steps += [Step(name, environ[name], overruled_by=named[0]) for name in named[1:]]
    return Masks(tuple(steps), None if unknown else tuple(seen or ()))


def there(backend: Backend, root: str = "/") -> Present:
    """How many devices of `backend` there are, if that is known, the numbers of their nodes, and their UUIDs.

    By the nodes with a number, where a device has one each; a door to all (`/dev/kfd`) has a render node
    beside it for each. The UUIDs are those that NVIDIA's driver tells, as its README has it.
    """
    found = evidence(backend, root)
    if found is None or not _grammar(backend.visibility.grammar).ends_the_list:
        return None, (), ()
    numbers = [int(digits[0]) for node in found.nodes if (digits := re.search("[0-9]+$", node))]
    doors = device_nodes(("/dev/dri/renderD[0-9]*",), root)
    count = len(numbers) or (found.nodes and min(len(found.pci), len(doors) or len(found.pci)))
    files = hardware.names_in(_GPUS, root) if "cuda" in backend.in_torch.builds else []
    texts = "\n".join(hardware.read_text(f"{_GPUS}/{name}/information", root) for name in sorted(files))
    return count or None, numbers, re.findall(r"GPU UUID:\s*(\S+)", texts)


#: A folder for each GPU that NVIDIA's driver has.
_GPUS = "/proc/driver/nvidia/gpus"


def _taken(
    rules: _Grammar, asked: Mask, left: int | None, uuids: Sequence[str], among: str = ""
) -> tuple[list[Id], str]:
    """Which of `asked` the runtime sees among so many devices, and a clause on those that have no effect."""
    found: list[Id] = []
    ids, clauses = [_whole(item, uuids) for item in asked.ids or ()], [asked.note] if asked.note else []
    for place, item in enumerate(ids):
        if not (wrong := _wrong(item, left, uuids)):
            if item in found:
                return [], f"{item} is there twice"
            found.append(item)
            continue
        rest = ", ".join(map(str, ids[place + 1 :])) if rules.ends_the_list else ""
        clauses.append(wrong + among + (f", which ends the list: {rest} not seen" if rest else ""))
        if rules.ends_the_list:
            break
    if len(found) > 1 and str(found[0]).startswith("MIG-"):
        clauses.append("CUDA shows a process one MIG instance, the first; start a process for each")
        del found[1:]
    return found, "; ".join(clauses)


def _wrong(item: Id, left: int | None, uuids: Sequence[str]) -> str:
    """Why this names no device, or several; of a part of a GPU only the driver knows.

    CUDA takes as much of a UUID as tells the GPU from the others.
    """
    if isinstance(item, int):
        return f"there is no device {item}" if left is not None and item >= left else ""
    fits = sum(uuid.lower().startswith(item.lower()) for uuid in uuids)
    if not uuids or not item.startswith("GPU-") or fits == 1:
        return ""
    return f"{item} is the beginning of {fits} UUIDs" if fits else f"there is no device {item}"


def _whole(item: Id, uuids: Sequence[str]) -> Id:
    """The UUID of which this is the beginning, where it is that of one device alone."""
    fits = [uuid for uuid in uuids if uuid.lower().startswith(str(item).lower())]
    return fits[0] if len(fits) == 1 else item


def _meant(rules: _Grammar, value: str, present: Present) -> list[Id]:
    """The devices in `value` that are there, each once, as the runtime wants them.

    A number beyond those that are left may be that of a node: a container that was given `/dev/nvidia3` alone
    calls it 0.
    """
    left, numbers, uuids = present
    read = [rules.parse(entry.strip()) for entry in value.split(",")]
    named = [_whole(item, uuids) for mask in read if mask is not None for item in mask.ids or ()]
    if any(_wrong(item, left, uuids) for item in named) and all(item in numbers for item in named):
        named = [numbers.index(item) for item in named if isinstance(item, int)]
    items = [item for item in dict.fromkeys(named) if not _wrong(item, left, uuids)]
    # No runtime takes indices and identifiers, or two kinds of identifiers, in one value.
    kinds = [str(item).rpartition("-")[0][:4] for item in items]
    items = [item for item, kind in zip(items, kinds, strict=True) if kind == kinds[0]]
    return _taken(rules, Mask(tuple(sorted(items, key=_order) if rules.ordered else items)), left, uuids)[0]


def hidden_by(backend: Backend, environ: Mapping[str, str]) -> str | None:
    """Return the sentence "CUDA_VISIBLE_DEVICES='' hides every device"; `None` if no variable does that.

    For an invalid variable, the sentence says why it is invalid.
    """
    found = masks(backend, environ)
    return str(found) if found.devices == () or any(s.malformed for s in found.steps) else None


def parse_visible_devices(grammar: str, value: str | None) -> Mask:
    """Parse `value` in one of `accel_core.backend.GRAMMARS`; `None` means that the variable is not set.

    A UUID stays a string, as written. Raises `SettingError`, a `ValueError`, for a value that the vendor's
    runtime refuses too, and for an unknown grammar.
    """
    rules = _grammar(grammar)
    mask = Mask() if value is None else rules.parse(value)
    if mask is None:
        raise SettingError(f"{value!r} is not valid, expected {rules.expected}")
    return mask


def format_visible_devices(grammar: str, ids: Sequence[int | str]) -> str:
    """Return the value that makes exactly the devices `ids` visible, in `grammar`.

    `ids` are indices, or identifiers if the vendor has them; a string of digits is an index. The value is
    sorted if the order has no meaning or must ascend. Raises `SettingError`, a `ValueError`, for ids that the
    grammar cannot express.
    """
    rules = _grammar(grammar)
    items = [_normal(item) for item in ids]
    for item in items:
        if not rules.means([item]):
            raise SettingError(f"{item!r} is not a device in grammar {grammar!r}, expected {rules.expected}")
    if len(set(items)) < len(items):
        raise SettingError(f"{list(ids)!r} names a device twice, expected each once")
    if rules.ordered:
        items.sort(key=_order)
    # The runtime's own reading is the judge: it catches kinds that do not mix, and a grammar without "none".
    if not rules.means(items):
        raise SettingError(f"{list(ids)!r} is no value of grammar {grammar!r}, expected {rules.expected}")
    return ",".join(map(str, items))


# --- What the runtimes read ----------------------------------------------------------------------------


def _until_invalid(value: str, read: Callable[[str], Id | None]) -> Mask:
    """CUDA's rule, which Cambricon kept: the first invalid entry ends the list, a repeat empties it."""
    ids: list[Id] = []
    for entry in value.split(","):
        if (item := read(entry)) is None:
            return Mask(tuple(ids), f"{entry!r} ends the list" if value else "")
        if item in ids:
            return Mask((), f"{entry!r} is there twice")
        ids.append(item)
    return Mask(tuple(ids))


def _cuda(value: str) -> Mask:
    """The first entry tells the kind. Shortened identifiers are left as they are: only a driver can tell."""
    if (kind := value[:4]) in ("GPU-", "MIG-"):
        return _until_invalid(value, lambda e: e if e[:4] == kind and _CUDA_ID.fullmatch(e) else None)
    return _until_invalid(value, lambda e: int(match[1]) if (match := _LEADING.match(e)) else None)


def _mlu(value: str) -> Mask:
    if "-" in value and len(value) >= _MLU_UUID_LENGTH:
        return _until_invalid(value, lambda entry: entry if _MLU_UUID.fullmatch(entry) else None)
    return _until_invalid(value, _index)


def _ascending(value: str) -> Mask:
    """Any other character ends the list, a space too; torch_npu counts no device unless the ids ascend."""
    read: Any = _LIST.match(value)
    ids = tuple(int(entry) for entry in read[0].split(",") if entry)
    if list(ids) != sorted(set(ids)):
        return Mask((), "the ids must ascend")
    rest = value[read.end() :]
    return Mask(ids, f"{rest.lstrip(',')!r} ends the list" if rest else "")


def _indices(value: str, most: int = 10**9) -> Mask | None:
    """Vendors whose reading of anything else is not known: nothing but plain indices is let through."""
    ids = [index for entry in value.split(",") if (index := _index(entry)) is not None and index < most]
    return Mask(tuple(ids)) if len(set(ids)) == value.count(",") + 1 else None


def _level_zero(value: str) -> Mask | None:
    """Intel's driver takes empty for "no mask"; the mask has no order, and skips what does not exist."""
    if value in ("", "default"):
        return Mask()
    entries = [entry.strip() for entry in value.split(",")]
    skipped = [entry for entry in entries if entry.startswith("-") and _INDEX.fullmatch(entry[1:])]
    named = [entry for entry in entries if entry not in skipped]
    if not all(map(_TILE.fullmatch, named)):
        return None
    note = f"{', '.join(map(repr, skipped))} is not a device" if skipped else ""
    return Mask(tuple(sorted(set(map(_normal, named)), key=_order)), note)


def _index(entry: str) -> int | None:
    # What C's isspace() takes, as the vendors' runtimes do: Python's strip() and int() disagree on U+001D.
    digits = entry.strip(" \t\n\v\f\r")
    return int(digits) if _INDEX.fullmatch(digits) else None


def _normal(item: Id) -> Id:
    """One spelling for each device: `"07"` is 7, `"0.01"` is `"0.1"`."""
    if not isinstance(item, str) or not _TILE.fullmatch(item):
        return item
    spelling = ".".join(str(int(part)) for part in item.split("."))
    return spelling if "." in spelling else int(spelling)


def _order(item: Id) -> list[int]:
    """Indices by number, `"1.0"` after 1."""
    return [int(part) for part in str(item).split(".")]


# --- The table -----------------------------------------------------------------------------------------


class _Grammar(NamedTuple):
    """How one grammar is read, and how to say what may be written in it."""

    #: Gives `None` for what the runtime refuses.
    parse: Callable[[str], Mask | None]
    expected: str
    #: Written in ascending order: the runtime wants it so, or the order has no meaning.
    ordered: bool = False
    #: An id that names no device ends the list, and a node with a number is a device.
    ends_the_list: bool = False
    #: Ids are places in the server: how many there are does not tell which.
    places: bool = False

    def means(self, items: Sequence[Id]) -> bool:
        """Whether the runtime reads these, and no others, in the value that names them."""
        mask = self.parse(",".join(map(str, items)))
        return mask is not None and mask.ids == tuple(items)


_TABLE = {
    "cuda": _Grammar(_cuda, "indices, or GPU-<uuid>, or MIG-<uuid>, of one kind: '0,1'", ends_the_list=True),
    "ascending": _Grammar(_ascending, "ascending indices without spaces: '0,1'", True, ends_the_list=True),
    "modules": _Grammar(partial(_indices, most=8), "module ids from 0 to 7, each once: '0,1'", places=True),
    "mlu": _Grammar(_mlu, "indices, or whole UUIDs, of one kind: '0,1'", ends_the_list=True),
    "level-zero": _Grammar(_level_zero, "one or more devices, or device.tile: '0,1' or '0.0,0.1'", True),
    "indices": _Grammar(lambda v: _indices(v) if v.strip() else Mask(()), "indices, each once: '0,1'"),
}


def _grammar(name: str) -> _Grammar:
    if name in _TABLE:
        return _TABLE[name]
    raise SettingError(f"unknown visible-devices grammar {name!r}, expected one of {', '.join(GRAMMARS)}")
