"""Parse and write visible-devices variables, each in the grammar of its vendor.

Such a variable selects the devices that a process sees. `parse_visible_devices`
interprets a value exactly as the vendor's runtime does, including special cases: where
the runtime stops reading, the parser stops too. `format_visible_devices` is stricter
than the runtimes: it writes only values that select exactly the requested devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from accel_core import hardware
from accel_core.backend import GRAMMARS, Backend
from accel_core.errors import SettingError
from accel_core.hardware.bus import Evidence, device_nodes, evidence

#: A device's index, or the vendor's identifier of the device: a UUID, or a tile such as
#: `"0.1"`.
DeviceId: TypeAlias = "int | str"


@dataclass(frozen=True)
class Inventory:
    """The devices of a backend on this machine, as far as they are known without the
    vendor's package.
    """

    #: The number of devices, or `None` if unknown.
    count: int | None = None
    #: The numbers in the names of the device nodes, such as 3 for `/dev/nvidia3`.
    node_numbers: tuple[int, ...] = ()
    #: The UUIDs of the devices, or an empty tuple if unknown.
    uuids: tuple[str, ...] = ()


#: The inventory of unknown devices.
UNKNOWN = Inventory()


@dataclass(frozen=True)
class Mask:
    """The devices that the value of one visible-devices variable selects."""

    #: Indices or identifiers in the order of the value, or `None` for every device.
    ids: tuple[DeviceId, ...] | None = None
    #: The reason why the value, or a part of it, has no effect, such as "'-1' ends the
    #: list".
    note: str = ""


_EVERY_DEVICE = Mask(ids=None)
_NO_DEVICE = Mask(ids=())


@dataclass(frozen=True)
class Effect:
    """The effect of one visible-devices variable.

    Several variables may apply one after another. Each selects among the devices that
    the earlier variables left visible.
    """

    #: The name of the variable.
    variable: str
    #: The variable's value.
    value: str
    #: A clause on the entries that have no effect, with the reason, or an empty string
    #: if every entry has an effect.
    ignored: str = ""
    #: The reason why the value is invalid, or an empty string if it is valid. The
    #: effect of an invalid value depends on the runtime.
    malformed: str = ""
    #: The name of the variable that the runtime reads instead of this variable.
    overruled_by: str = ""
    #: The value to set instead: the existing devices in the value, or otherwise all
    #: devices. Empty if the value is right, or no such value is known.
    suggestion: str = ""
    #: Whether no device is left after this variable.
    hides_all: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether the value of the visible-devices variable must be changed."""
        return bool(self.ignored or self.malformed or self.hides_all or self.suggestion)

    def __str__(self) -> str:
        setting = f"{self.variable}={self.value!r}"
        if self.malformed:
            return f"{setting} is not valid: {self.malformed}"
        if self.hides_all:
            setting = f"{setting} hides every device"
        if self.ignored:
            return f"{setting}: {self.ignored}"
        return setting


@dataclass(frozen=True)
class VisibleDevices:
    """The devices of a backend that remain visible after all visible-devices variables
    are applied.
    """

    #: The effect of each variable, in the order in which the variables apply.
    effects: tuple[Effect, ...] = ()
    #: The physical devices, as indices or identifiers, by logical number. `None` means
    #: every device, or that the devices are unknown because a value is malformed.
    devices: tuple[DeviceId, ...] | None = None

    @property
    def faulty(self) -> list[Effect]:
        """The visible-devices variables whose values must be changed."""
        return [effect for effect in self.effects if effect.is_faulty]

    @property
    def has_malformed(self) -> bool:
        """Whether the vendor's runtime rejects the value of a visible-devices variable."""
        return any(effect.malformed for effect in self.effects)

    @property
    def next_step(self) -> str:
        """The command that fixes the invalid visible-devices variables, if valid values
        are known.
        """
        faulty = self.faulty
        assignments = []
        for effect in faulty:
            if effect.suggestion:
                assignments.append(f"{effect.variable}={effect.suggestion}")
        if assignments:
            return f"export {' '.join(assignments)}"
        return f"unset {faulty[0].variable}, or set it to the devices to use"

    def __str__(self) -> str:
        if not self.faulty:
            return ""
        return str(self.faulty[0])


# --- Variables and devices ----------------------------------------------------------


def read_visible_devices(
    backend: Backend, environ: Mapping[str, str], devices: Inventory = UNKNOWN
) -> VisibleDevices:
    """Return the devices that the backend's visible-devices variables in `environ`
    leave visible, and the effect of each variable.

    The variables are applied in the order that the vendor's runtime uses: first all
    variables in `Visibility.filters`, then the first variable in `Visibility.variables`
    that is set. The indices in a variable refer to the devices that the previous
    variable left visible. `devices` is `inventory(backend)`, if the caller knows it.
    """
    visibility = backend.visibility
    chain = _MaskChain(visibility.grammar, devices)
    for name in visibility.filters:
        if name in environ:
            chain.apply(name, environ[name])
    # The runtime reads only the first of these variables that is set.
    variable_in_use = ""
    overruled_effects = []
    for name in visibility.variables:
        if name not in environ:
            continue
        if not variable_in_use:
            variable_in_use = name
            chain.apply(name, environ[name])
        else:
            effect = Effect(name, environ[name], overruled_by=variable_in_use)
            overruled_effects.append(effect)
    effects = (*chain.effects, *overruled_effects)
    return VisibleDevices(effects, chain.visible_devices())


def visible_devices_variables(
    backend: Backend, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the backend's visible-devices variables that are set in `environ`."""
    visibility = backend.visibility
    names = (*visibility.filters, *visibility.variables)
    return {name: environ[name] for name in names if name in environ}


def hidden_by(backend: Backend, environ: Mapping[str, str]) -> str | None:
    """Return a sentence such as "CUDA_VISIBLE_DEVICES='' hides every device", or `None`
    if no visible-devices variable in `environ` hides every device or is invalid.

    For an invalid variable, the sentence explains why the value is invalid.
    """
    visible_devices = read_visible_devices(backend, environ)
    hides_every_device = visible_devices.devices == ()
    if hides_every_device or visible_devices.has_malformed:
        return str(visible_devices)
    return None


def inventory(backend: Backend, root: str = "/") -> Inventory:
    """Count the devices of `backend` by their device nodes, and read the devices' UUIDs.

    Devices can be counted if each device has a numbered node, or if all devices share
    one node (`/dev/kfd`) and each has a render node. Otherwise, all fields of the
    result are empty.
    """
    signs = evidence(backend, root)
    rules = _rules_of(backend.visibility.grammar)
    # Only the vendors with this rule have drivers with one numbered node for each device.
    if signs is None or not rules.ends_at_missing:
        return UNKNOWN
    numbers = _node_numbers(signs.nodes)
    count = len(numbers)
    if not numbers:
        count = _count_behind_shared_node(signs, root)
    uuids: tuple[str, ...] = ()
    if "cuda" in backend.torch_integration.builds:
        uuids = _nvidia_uuids(root)
    # Without any sign of a device, the number is unknown rather than 0.
    return Inventory(count or None, numbers, uuids)


def _node_numbers(nodes: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers at the end of the nodes' names."""
    numbers = []
    for node in nodes:
        digits_at_end = re.search("[0-9]+$", node)
        if digits_at_end:
            numbers.append(int(digits_at_end.group()))
    return tuple(numbers)


def _count_behind_shared_node(signs: Evidence, root: str) -> int:
    """Count the devices behind one node by their render nodes and PCI functions."""
    if not signs.nodes:
        return 0
    render_nodes = device_nodes(("/dev/dri/renderD[0-9]*",), root)
    if not render_nodes:
        return len(signs.pci)
    # Other GPUs have render nodes too, and a container shows every PCI function of the
    # host, so the smaller number is right.
    return min(len(signs.pci), len(render_nodes))


def _nvidia_uuids(root: str) -> tuple[str, ...]:
    """Read the UUIDs of the GPUs from the files that the NVIDIA driver documents."""
    folder = "/proc/driver/nvidia/gpus"
    uuids: list[str] = []
    for name in sorted(hardware.names_in(folder, root)):
        text = hardware.read_text(f"{folder}/{name}/information", root)
        # The file contains a line such as "GPU UUID:  GPU-1a2b3c4d-...".
        uuids += re.findall(r"GPU UUID:\s*(\S+)", text)
    return tuple(uuids)


class _MaskChain:
    """A state machine that applies visible-devices variables one after another and
    tracks the visible devices.

    Two sets of devices are tracked: the devices that the runtime sees, and the devices
    that it would see if the invalid variables had the suggested values.
    """

    def __init__(self, grammar: str, devices: Inventory) -> None:
        self.effects: list[Effect] = []
        self._grammar = grammar
        self._rules = _rules_of(grammar)
        self._has_malformed = False
        #: The devices among which the next variable would count if all earlier variables
        #: were repaired.
        self._repaired = devices
        #: The visible devices by logical number, or `None` if unknown.
        self._visible: list[DeviceId] | None = None
        if self._rules.has_slot_ids:
            # The ids do not follow from the number of devices.
            self._repaired = replace(devices, count=None)
        elif devices.count is not None:
            self._visible = list(range(devices.count))

    def apply(self, variable: str, value: str) -> None:
        """Restrict the devices to those in `value`, and record the effect of the
        variable.
        """
        mask = _EVERY_DEVICE
        malformed = ""
        try:
            mask = parse_visible_devices(self._grammar, value)
        except SettingError as error:
            malformed = str(error)
            self._has_malformed = True
        intended_ids = _intended_ids(self._rules, value, self._repaired)
        suggestion = ""
        if malformed or not self._selects_exactly(mask, intended_ids):
            suggestion = self._format_if_possible(intended_ids)
        ignored = self._keep_selected(mask)
        effect = Effect(
            variable,
            value,
            ignored=ignored,
            malformed=malformed,
            suggestion=suggestion,
            hides_all=mask.ids is not None and self._visible == [],
        )
        self.effects.append(effect)
        # The next variable counts among the devices that the suggested value selects.
        count = self._repaired.count
        is_restricted = malformed or mask.ids is not None
        if is_restricted and intended_ids:
            count = len(intended_ids)
        self._repaired = replace(self._repaired, count=count, node_numbers=())

    def visible_devices(self) -> tuple[DeviceId, ...] | None:
        """Return the visible physical devices, by logical number, or `None` if unknown."""
        if self._visible is None or self._has_malformed or not self.effects:
            return None
        return tuple(self._visible)

    def _selects_exactly(self, mask: Mask, intended_ids: list[DeviceId]) -> bool:
        """Return whether `mask` selects the intended devices, at least one, and has no
        ignored entry. A mask that selects every device is right too.
        """
        if mask.ids is None:
            return True
        ids, ignored_clause = _resolve_ids(self._rules, mask, self._repaired)
        return bool(ids) and ids == intended_ids and not ignored_clause

    def _format_if_possible(self, ids: Sequence[DeviceId]) -> str:
        """Return the value for `ids`, or for every device if `ids` is empty.

        The result is empty if the grammar cannot express the value.
        """
        if not ids:
            ids = range(self._repaired.count or 0)
        with suppress(SettingError):
            return format_visible_devices(self._grammar, ids)
        return ""

    def _keep_selected(self, mask: Mask) -> str:
        """Keep only the visible devices that `mask` selects, and return a clause on
        ignored entries.
        """
        selects_every_device = mask.ids is None
        if selects_every_device or self._visible == []:
            return ""
        visible = self._visible
        count = None if visible is None else len(visible)
        devices = replace(self._repaired, count=count)
        among = ""
        if self.effects:
            previous_variable = self.effects[-1].variable
            among = f" among the devices that {previous_variable} leaves visible"
        ids, ignored_clause = _resolve_ids(self._rules, mask, devices, among)
        self._visible = [_physical_id(item, visible) for item in ids]
        return ignored_clause


def _physical_id(item: DeviceId, visible: Sequence[DeviceId] | None) -> DeviceId:
    """Return the device with the logical number `item`. An identifier is physical
    already and is returned unchanged.
    """
    if visible is None or isinstance(item, str):
        return item  # A string identifies the physical device already.
    return visible[item]


def _resolve_ids(
    rules: _Rules, mask: Mask, devices: Inventory, among: str = ""
) -> tuple[list[DeviceId], str]:
    """Return the ids in `mask` that the runtime sees, and a clause on ignored ids."""
    ids = [_expand_uuid(item, devices.uuids) for item in mask.ids or ()]
    resolved: list[DeviceId] = []
    clauses: list[str] = []
    if mask.note:
        clauses.append(mask.note)
    for position, item in enumerate(ids):
        reason = _invalid_reason(item, devices)
        if reason and rules.ends_at_missing:
            clauses.append(f"{reason}{among}")
            clauses += _clause_on_unread_ids(item, ids[position + 1 :])
            break
        if reason:
            clauses.append(f"{reason}{among}")
        elif item in resolved:
            # The runtime then shows no device at all.
            return [], f"{item} is listed twice"
        else:
            resolved.append(item)
    if _has_several_mig_instances(resolved):
        clauses.append(
            "CUDA shows a process only the first MIG instance; start one process for "
            "each instance"
        )
        resolved = resolved[:1]
    return resolved, "; ".join(clauses)


def _clause_on_unread_ids(item: DeviceId, unread: Sequence[DeviceId]) -> list[str]:
    """Return a list with the clause on the entries after `item`, or an empty list."""
    if not unread:
        return []
    unread_list = ", ".join(map(str, unread))
    return [f"the entries after {item} are not read: {unread_list}"]


def _has_several_mig_instances(ids: Sequence[DeviceId]) -> bool:
    return len(ids) > 1 and _id_kind(ids[0]) == "MIG-"


def _invalid_reason(item: DeviceId, devices: Inventory) -> str:
    """Return the reason why `item` does not identify exactly one device, or an empty
    string if it does.

    CUDA accepts the beginning of a UUID if it matches exactly one GPU. MIG instances
    are not checked, because only the driver can list them.
    """
    if isinstance(item, int):
        # If the number of devices is unknown, an index cannot be checked.
        if devices.count is None or item < devices.count:
            return ""
        return f"there is no device {item}"
    # If the UUIDs are unknown, or the item is no GPU, an identifier cannot be checked.
    if not devices.uuids or not item.startswith("GPU-"):
        return ""
    matching = _uuids_with_prefix(item, devices.uuids)
    if not matching:
        return f"there is no device {item}"
    if len(matching) > 1:
        return f"{item} is the beginning of {len(matching)} UUIDs"
    return ""


def _expand_uuid(item: DeviceId, uuids: Sequence[str]) -> DeviceId:
    """Return the UUID that begins with `item` if there is exactly one, and otherwise
    return `item`.
    """
    matching = _uuids_with_prefix(str(item), uuids)
    if len(matching) == 1:
        return matching[0]
    return item


def _uuids_with_prefix(prefix: str, uuids: Sequence[str]) -> list[str]:
    return [uuid for uuid in uuids if uuid.lower().startswith(prefix.lower())]


def _intended_ids(rules: _Rules, value: str, devices: Inventory) -> list[DeviceId]:
    """Return the existing devices in `value`, each once, in the order that the runtime
    requires.

    A missing index may be the number of a device node: in a container with only
    `/dev/nvidia3`, that device has the index 0. Runtimes do not accept two kinds of ids
    in one value, so only ids of the first kind are returned.
    """
    listed_ids = _parse_intended_ids(rules, value, devices.uuids)
    if _are_node_numbers(listed_ids, devices):
        # The index of a device is the position of its node among all nodes.
        listed_ids = [devices.node_numbers.index(int(item)) for item in listed_ids]
    existing: list[DeviceId] = []
    for item in listed_ids:
        if item in existing or _invalid_reason(item, devices):
            continue
        if not existing or _id_kind(item) == _id_kind(existing[0]):
            existing.append(item)
    if rules.is_ordered:
        existing.sort(key=_numeric_order)
    ids, _ = _resolve_ids(rules, Mask(tuple(existing)), devices)
    return ids


def _parse_intended_ids(
    rules: _Rules, value: str, uuids: Sequence[str]
) -> list[DeviceId]:
    """Return the ids in `value` after correcting common mistakes in its form."""
    ids: list[DeviceId] = []
    # Each entry is parsed alone, so that one invalid entry does not invalidate the rest.
    for entry in _corrected_list(value).split(","):
        mask = rules.parse(entry.strip())
        if mask is not None and mask.ids is not None:
            ids += [_expand_uuid(item, uuids) for item in mask.ids]
    return ids


# Mistakes in lists that no runtime accepts.

_QUOTES_AND_BRACKETS = re.compile(r"""[\[\](){}'"]""")
#: The part before the number in a name of torch's, such as `cuda:` in `cuda:0`.
_DEVICE_NAME = re.compile(r"\b(?!GPU|MIG)[A-Za-z]+:(?=[0-9])")
#: Separators other than the comma between two numbers, as in `0 1` or `0;1`.
_SEPARATORS = re.compile(r"(?<=[0-9])[\s;|+]+(?=[0-9])")
#: A range: `0-3`, `0:3` or `0..3`.
_RANGE = re.compile(r"\s*([0-9]{1,3})\s*(?:-|:|\.\.)\s*([0-9]{1,3})\s*")


def _corrected_list(value: str) -> str:
    """Return a list of devices in the correct form, such as `"0,1,2"` for `"[0-2]"`."""
    text = _QUOTES_AND_BRACKETS.sub("", value)
    text = _DEVICE_NAME.sub("", text)
    text = _SEPARATORS.sub(",", text)
    entries: list[str] = []
    for entry in text.split(","):
        bounds = _RANGE.fullmatch(entry)
        if bounds is None:
            entries.append(entry)
            continue
        first, last = int(bounds[1]), int(bounds[2])
        for number in range(first, last + 1):
            entries.append(str(number))
    return ",".join(entries)


def _are_node_numbers(ids: Sequence[DeviceId], devices: Inventory) -> bool:
    """Return whether an id is missing, and every id is the number of a device node."""
    has_missing_device = any(_invalid_reason(item, devices) for item in ids)
    return has_missing_device and set(devices.node_numbers).issuperset(ids)


def _id_kind(item: DeviceId) -> str:
    """Return the kind of an id: index or tile, `"GPU-"`, `"MIG-"`, or another UUID."""
    text = str(item)
    if "-" not in text:
        return "index"
    for prefix in ("GPU-", "MIG-"):
        if text.startswith(prefix):
            return prefix
    return "uuid"


# --- Reading and writing values -----------------------------------------------------


def parse_visible_devices(grammar: str, value: str | None) -> Mask:
    """Return the devices that a visible-devices variable with this `value` selects.

    `grammar` is one of `accel_core.backend.GRAMMARS`. A `value` of `None` means that the
    variable is not set. A UUID is returned exactly as `value` spells it. Raises
    `SettingError`, a `ValueError`, for an unknown grammar or a value that the vendor's
    runtime rejects.
    """
    rules = _rules_of(grammar)
    if value is None:
        return _EVERY_DEVICE
    mask = rules.parse(value)
    if mask is None:  # The vendor's runtime rejects the value.
        raise SettingError(f"{value!r} is not valid, expected {rules.expected}")
    return mask


def format_visible_devices(grammar: str, ids: Sequence[int | str]) -> str:
    """Return the visible-devices value, in `grammar`, that makes exactly the devices `ids` visible.

    `ids` are indices, or identifiers such as UUIDs if the vendor has them. A string of
    digits is an index. If the order of the ids has no meaning or must ascend, the ids
    are sorted. Raises `SettingError`, a `ValueError`, for ids that the grammar cannot
    express.
    """
    rules = _rules_of(grammar)
    items = [_without_leading_zeros(item) for item in ids]
    for item in items:
        if not rules.can_express([item]):
            reason = f"{item!r} is not a device in the grammar {grammar!r}"
            raise SettingError(f"{reason}, expected {rules.expected}")
    if len(set(items)) < len(items):
        raise SettingError(
            f"{list(ids)!r} names a device twice, expected each device once"
        )
    if rules.is_ordered:
        items.sort(key=_numeric_order)
    # This fails for ids of different kinds, and for an empty list if the grammar has no
    # value for it.
    if not rules.can_express(items):
        reason = f"the grammar {grammar!r} cannot express the devices {list(ids)!r}"
        raise SettingError(f"{reason}, expected {rules.expected}")
    return ",".join(map(str, items))


def describe_grammar(grammar: str) -> str:
    """Describe the visible-devices values that a grammar accepts, with an example."""
    return _rules_of(grammar).expected


# --- The parser of each grammar -----------------------------------------------------

#: At most nine digits, because no machine has more devices, and `int()` is slow for
#: numbers of a thousand digits.
_DIGITS = "[0-9]{1,9}"
_HEX = "[0-9A-Fa-f][0-9A-Fa-f-]*"
_INDEX = re.compile(_DIGITS)
#: The largest number of indices in a range. A longer range is a mistake, and expanding it
#: would take seconds.
_LONGEST_RANGE = 4096
#: The number at the start of an entry, as C's strtoul reads it. CUDA reads `1gpu2` as 1.
_LEADING_INDEX = re.compile(rf"\s*([+]?{_DIGITS}|-0)(?![0-9])")
#: An entry that consists only of a number.
_NUMBER_ONLY = re.compile(rf"\s*[+-]?{_DIGITS}\s*")
#: The list of indices at the beginning of a value, which may be empty.
_LEADING_INDICES = re.compile(rf"(?:{_DIGITS}(?![0-9])(?:,(?={_DIGITS}(?![0-9])))?)*")
#: A device such as `0`, or a tile of a device such as `0.1`.
_TILE = re.compile(rf"{_DIGITS}(\.{_DIGITS})?")
#: A UUID of a GPU or of a MIG instance, or a MIG instance in the older form
#: `MIG-GPU-<uuid>/<number>/<number>`.
_CUDA_ID = re.compile(rf"GPU-{_HEX}|MIG-{_HEX}|MIG-GPU-{_HEX}/{_DIGITS}/{_DIGITS}")
#: Cambricon's runtime reads a value as UUIDs if the value contains a hyphen and is at
#: least as long as a UUID.
_MLU_UUID_LENGTH = 36
_MLU_UUID = re.compile(rf"(?=.{{{_MLU_UUID_LENGTH}}})[0-9A-Za-z]+(-[0-9A-Za-z]+)+")


def _parse_until_invalid(
    value: str, parse_entry: Callable[[str], DeviceId | None]
) -> Mask:
    """Parse a list as CUDA and Cambricon do.

    The first invalid entry ends the list. A repeated id makes the list empty.
    `parse_entry` returns an entry's id, or `None` if the entry is invalid.
    """
    ids: list[DeviceId] = []
    notes = []
    for entry in value.split(","):
        item = parse_entry(entry)
        if item is None:
            is_empty_list = not value  # An empty value is valid.
            if not is_empty_list:
                notes.append(f"{entry!r} ends the list")
            break
        if item in ids:
            return Mask(ids=(), note=f"{entry!r} is listed twice")
        if isinstance(item, int) and not _NUMBER_ONLY.fullmatch(entry):
            # CUDA, for example, reads "1gpu2" as 1.
            notes.append(f"{entry!r} is read as {item}")
        ids.append(item)
    return Mask(tuple(ids), "; ".join(notes))


def _parse_cuda(value: str) -> Mask:
    """Parse indices, or identifiers of the same kind as the first entry.

    A shortened UUID is not expanded, because only the driver can do that.
    """
    # The value begins with the first entry, so it has the same prefix.
    prefix = _id_kind(value)
    if prefix not in ("GPU-", "MIG-"):
        return _parse_until_invalid(value, _parse_leading_index)

    def parse_identifier(entry: str) -> str | None:
        if entry.startswith(prefix) and _CUDA_ID.fullmatch(entry):
            return entry
        return None

    return _parse_until_invalid(value, parse_identifier)


def _parse_mlu(value: str) -> Mask:
    if "-" in value and len(value) >= _MLU_UUID_LENGTH:
        return _parse_until_invalid(value, _parse_mlu_uuid)
    return _parse_until_invalid(value, _parse_index)


def _parse_ascending(value: str) -> Mask:
    """Parse indices as CANN does: any character other than digits and commas ends the
    list, even a space.

    torch_npu counts no device unless the ids ascend.
    """
    leading_list = _LEADING_INDICES.match(value)
    assert leading_list is not None  # The pattern matches the empty string too.
    ids = [int(digits) for digits in re.findall("[0-9]+", leading_list.group())]
    is_ascending = ids == sorted(set(ids))
    if not is_ascending:
        return Mask(ids=(), note="the ids must ascend")
    unread_text = value[leading_list.end() :]
    note = ""
    if unread_text:
        note = f"{unread_text.lstrip(',')!r} ends the list"
    return Mask(tuple(ids), note)


def _parse_indices(value: str) -> Mask | None:
    """Parse plain indices only. The runtimes of these vendors are not known to accept
    other values.
    """
    if not value.strip():
        return _NO_DEVICE
    return _distinct_indices(value)


def _parse_ranges(value: str) -> Mask | None:
    """Parse indices and inclusive ranges of indices, such as `"0-3,6"`."""
    if not value.strip():
        return _NO_DEVICE
    ids: list[int] = []
    for entry in value.split(","):
        indices = _expand_range(entry)
        is_index_repeated = indices is not None and not set(indices).isdisjoint(ids)
        if indices is None or is_index_repeated:
            return None
        ids += indices
    return Mask(tuple(ids))


def _expand_range(entry: str) -> range | None:
    """Return the indices in an entry such as `"3"` or `"0-3"`, or `None` if the entry
    is neither an index nor a range.
    """
    first_text, dash, last_text = entry.partition("-")
    first = _parse_index(first_text)
    last = _parse_index(last_text) if dash else first
    if first is None or last is None:
        return None
    if last < first or last - first >= _LONGEST_RANGE:
        return None
    return range(first, last + 1)


def _parse_modules(value: str) -> Mask | None:
    """Parse module ids, the positions of Gaudi devices in a server."""
    return _distinct_indices(value, limit=8)


def _distinct_indices(value: str, limit: int = 10**9) -> Mask | None:
    """Parse indices below `limit`, each listed once, or return `None` for any other value."""
    ids: list[int] = []
    for entry in value.split(","):
        index = _parse_index(entry)
        if index is None or index >= limit or index in ids:
            return None
        ids.append(index)
    return Mask(tuple(ids))


def _parse_level_zero(value: str) -> Mask | None:
    """Parse devices and tiles as Intel's driver does.

    An empty value selects every device. The order of the entries has no meaning, and
    negative numbers are skipped.
    """
    if value in ("", "default"):
        return _EVERY_DEVICE
    ids: set[DeviceId] = set()
    skipped = []
    for entry in value.split(","):
        text = entry.strip()
        if _TILE.fullmatch(text):
            ids.add(_without_leading_zeros(text))
        elif text.startswith("-") and _INDEX.fullmatch(text[1:]):
            skipped.append(repr(text))
        else:
            return None
    note = f"{', '.join(skipped)} is not a device" if skipped else ""
    return Mask(tuple(sorted(ids, key=_numeric_order)), note)


def _parse_index(entry: str) -> int | None:
    # These are the characters of C's isspace(), as in the vendors' runtimes. Python's
    # strip() and int() accept other characters too, such as U+001D.
    digits = entry.strip(" \t\n\v\f\r")
    return int(digits) if _INDEX.fullmatch(digits) else None


def _parse_leading_index(entry: str) -> int | None:
    number = _LEADING_INDEX.match(entry)
    return int(number[1]) if number else None


def _parse_mlu_uuid(entry: str) -> str | None:
    return entry if _MLU_UUID.fullmatch(entry) else None


def _without_leading_zeros(item: DeviceId) -> DeviceId:
    """Return one spelling for each device, such as 7 for `"07"` and `"0.1"` for
    `"0.01"`.
    """
    if not isinstance(item, str) or not _TILE.fullmatch(item):
        return item
    device, dot, tile = item.partition(".")
    if dot:
        return f"{int(device)}.{int(tile)}"
    return int(device)


def _numeric_order(item: DeviceId) -> list[int]:
    """Return a sort key that puts `"1.0"` after 1 and 10 after 2."""
    return [int(part) for part in str(item).split(".")]


# --- The grammars -------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    """How the values of one grammar are parsed and written."""

    #: Parses a value; returns `None` for a value that the runtime rejects.
    parse: Callable[[str], Mask | None]
    #: A description of the accepted values, with an example.
    expected: str
    #: Whether values are written in ascending order, because the runtime requires that
    #: order or the order has no meaning.
    is_ordered: bool = False
    #: Whether an id without a device ends the list. Each numbered device node is then a
    #: device.
    ends_at_missing: bool = False
    #: Whether ids are positions in the server, which do not follow from the number of
    #: devices.
    has_slot_ids: bool = False

    def can_express(self, items: Sequence[DeviceId]) -> bool:
        """Return whether the value that lists `items` selects exactly these devices."""
        mask = self.parse(",".join(map(str, items)))
        return mask is not None and mask.ids == tuple(items)


_RULES = {
    "cuda": _Rules(
        parse=_parse_cuda,
        expected="indices, GPU-<uuid> or MIG-<uuid>, all of one kind, such as '0,1'",
        ends_at_missing=True,
    ),
    "ascending": _Rules(
        parse=_parse_ascending,
        expected="ascending indices without spaces, such as '0,1'",
        is_ordered=True,
        ends_at_missing=True,
    ),
    "modules": _Rules(
        parse=_parse_modules,
        expected="module ids from 0 to 7, each once, such as '0,1'",
        has_slot_ids=True,
    ),
    "mlu": _Rules(
        parse=_parse_mlu,
        expected="indices or whole UUIDs, all of one kind, such as '0,1'",
        ends_at_missing=True,
    ),
    "level-zero": _Rules(
        parse=_parse_level_zero,
        expected="one or more entries 'device' or 'device.tile', such as '0,1' or '0.0,0.1'",
        is_ordered=True,
    ),
    "indices": _Rules(
        parse=_parse_indices, expected="indices, each once, such as '0,1'"
    ),
    "ranges": _Rules(
        parse=_parse_ranges,
        expected="indices or inclusive ranges, each index once, such as '0-3' or '0,1'",
    ),
}


def _rules_of(grammar: str) -> _Rules:
    if grammar not in _RULES:
        expected = f"one of {', '.join(GRAMMARS)}"
        raise SettingError(
            f"unknown visible-devices grammar {grammar!r}, expected {expected}"
        )
    return _RULES[grammar]
