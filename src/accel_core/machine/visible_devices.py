"""The variables that choose which devices a process sees, each in its vendor's own grammar.

`parse_visible_devices` gives what the vendor's runtime makes of a value, its odd corners included: where
the runtime stops reading, so does this. `format_visible_devices` is stricter than the runtimes: it writes
only what means exactly the devices asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from accel_core.backend import GRAMMARS, Backend
from accel_core.errors import SettingError
from accel_core.machine.devices import enumerated

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


class Mask(NamedTuple):
    """The devices that visible-devices variables leave to a process."""

    #: Device indices, or the vendor's identifiers, in the order of the value. `None`: every device.
    ids: tuple[Id, ...] | None = None
    #: Why the value, or part of it, has no effect: "'-1' ends the list".
    note: str = ""
    #: The runtime refuses the value, as `note` says, and decides what comes of it.
    malformed: bool = False
    #: Which variable this is about, and its value; empty where none is set.
    variable: str = ""
    value: str = ""
    #: Device nodes with a number, where the value names devices that have none: `missing`.
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Every device is hidden."""
        return self.ids == ()

    def __str__(self) -> str:
        """Describe what is wrong in a sentence; empty where nothing is known to be."""
        said = f"{self.variable}={self.value!r}"
        if self.malformed:
            return f"{said} is not valid: {self.note}"
        if self.nothing:
            return f"{said} hides every device" + (f": {self.note}" if self.note else "")
        if not self.missing:
            return ""
        noun = "device" if len(self.missing) == 1 else "devices"
        return (
            f"{said} names {noun} {enumerated(self.missing)}, counted from 0, "
            f"and this machine has {enumerated(self.nodes)}"
        )

    @property
    def step(self) -> str:
        """A value that works here, where the number of devices is known; else what to name in it."""
        if self.missing:
            return choices(self.variable, len(self.nodes))
        return f"unset {self.variable}, or name in it the devices to use"


def masks(backend: Backend, environ: Mapping[str, str], nodes: tuple[str, ...] = ()) -> Mask:
    """The mask that decides which devices of `backend` a process sees; its text says what is wrong with it.

    Each of `Visibility.filters` counts by itself, in their order, and then the first that is set of
    `Visibility.variables`, as in the vendors' runtimes. Of those the first counts that hides every device,
    cannot be understood, or names devices beyond `nodes`; else the last.
    """
    visibility, mask = backend.visibility, Mask()
    first = [name for name in visibility.variables if name in environ][:1]
    for variable in (*visibility.filters, *first):
        if variable in environ:
            mask = _read(visibility.grammar, environ[variable], nodes)
            mask = mask._replace(variable=variable, value=environ[variable])
            if str(mask):
                break
    return mask


def _read(grammar: str, value: str, nodes: tuple[str, ...]) -> Mask:
    """One variable's mask, beside the device nodes that there are."""
    try:
        mask = parse_visible_devices(grammar, value)
    except SettingError as error:
        return Mask((), str(error), malformed=True)
    # A node without a number is a door to all devices (`/dev/kfd`), and tells nothing; and Gaudi's modules
    # are numbered by their places in the server, not one by one.
    numbered = tuple(node for node in nodes if node[-1:].isdigit() and grammar != "modules")
    if not numbered:
        return mask
    missing = tuple(str(i) for i in mask.ids or () if isinstance(i, int) and i >= len(numbered))
    return mask._replace(nodes=numbered, missing=missing)


def choices(variable: str, count: int) -> str:
    """Advice for the variable's value on a machine with `count` devices."""
    names = " or ".join(map(str, range(count))) if count < 3 else f"0 to {count - 1}"
    return f"this machine has {count}: name {names}, or unset {variable}"


def hidden_by(backend: Backend, environ: Mapping[str, str]) -> str | None:
    """The sentence "CUDA_VISIBLE_DEVICES='' hides every device", or `None` where that is not so.

    Also where a variable cannot be understood: the sentence then says why.
    """
    return str(masks(backend, environ)) or None


def parse_visible_devices(grammar: str, value: str | None) -> Mask:
    """Parse `value` in one of `accel_core.backend.GRAMMARS`; `None` is a variable that is not set.

    Raises `SettingError`, a `ValueError`, that says what is accepted, where the vendor's runtime refuses
    the value too, and for an unknown grammar. A UUID stays a string, as it was written.
    """
    rules = _grammar(grammar)
    mask = Mask() if value is None else rules.parse(value)
    if mask is None:
        raise SettingError(f"{value!r} is not valid, expected {rules.expected}")
    return mask


def format_visible_devices(grammar: str, ids: Sequence[int | str]) -> str:
    """The value that makes exactly the devices `ids` visible, in `grammar`.

    `ids` are indices, or identifiers where the vendor has them; a string of digits counts as an index.
    The value is sorted where the order has no meaning or must ascend. Raises `SettingError`, a
    `ValueError`, for what the grammar cannot express.
    """
    rules = _grammar(grammar)
    items = [_normal(item) for item in ids]
    for item in items:
        if not rules.means([item]):
            raise SettingError(
                f"{item!r} is not a device in the {grammar!r} grammar, expected {rules.expected}"
            )
    if len(set(items)) < len(items):
        raise SettingError(f"{list(ids)!r} names a device twice, expected each once")
    if rules.ordered:
        items.sort(key=_order)
    # The runtime's own reading is the judge: it catches kinds that do not mix, and a grammar without "none".
    if not rules.means(items):
        raise SettingError(
            f"{list(ids)!r} cannot be written in the {grammar!r} grammar, expected {rules.expected}"
        )
    return ",".join(map(str, items))


# --- What the runtimes read ----------------------------------------------------------------------------


def _until_invalid(value: str, read: Callable[[str], Id | None]) -> Mask:
    """CUDA's rule, which Cambricon kept: the first invalid entry ends the list, a repeat empties it."""
    ids: list[Id] = []
    for entry in value.split(","):
        item = read(entry)
        if item is None:
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
    whole = len(set(ids)) == value.count(",") + 1
    return Mask(tuple(ids)) if whole else None


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

    def means(self, items: Sequence[Id]) -> bool:
        """Whether the runtime reads these, and no others, in the value that names them."""
        mask = self.parse(",".join(map(str, items)))
        return mask is not None and mask.ids == tuple(items)


_TABLE = {
    "cuda": _Grammar(_cuda, "indices, or GPU-<uuid>, or MIG-<uuid>, of one kind: '0,1'"),
    "ascending": _Grammar(_ascending, "ascending indices without spaces: '0,1'", ordered=True),
    "modules": _Grammar(partial(_indices, most=8), "one or more module ids from 0 to 7, each once: '0,1'"),
    "mlu": _Grammar(_mlu, "indices, or whole UUIDs, of one kind: '0,1'"),
    "level-zero": _Grammar(_level_zero, "one or more devices, or device.tile: '0,1' or '0.0,0.1'", True),
    "indices": _Grammar(lambda v: _indices(v) if v.strip() else Mask(()), "indices, each once: '0,1'"),
}


def _grammar(name: str) -> _Grammar:
    try:
        return _TABLE[name]
    except KeyError:
        raise SettingError(
            f"unknown visible-devices grammar {name!r}, expected one of {', '.join(GRAMMARS)}"
        ) from None
