"""The configuration files and the environment as one environment: who wins, and what nobody may loosen.

A level wins over those below it, key by key: the machine's file, the Python environment's, the user's, the
project's, the environment variables. Below a lock, and for a file that is not trusted, it may only be
stricter than what is so without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accel_core.configuration import Found
from accel_core.configuration.file import Key, Value, read
from accel_core.errors import SettingError

__all__ = ["Layered", "layered"]


class Layered(NamedTuple):
    """An environment in which the files have had their say."""

    environ: Mapping[str, str]
    #: Where values come from, by variable; none for what the environment alone says.
    sources: Mapping[str, str]
    #: What was said and is not obeyed.
    notes: tuple[str, ...]
    #: Who blocks what, by the rule, where more than one does.
    blocking: Mapping[str, str]


def layered(found: Sequence[Found], environ: Mapping[str, str], table: Sequence[Key]) -> Layered:
    """`environ` with what the files say put under it; raises `SettingError`."""
    keys = {key.key: key for key in table}
    files = [(each, read(each, keys)) for each in found]
    merged, sources, blocking = dict(environ), {}, {}
    notes = [f"{file.path} is not obeyed: {file.distrust}." for _, file in files if file.unread]
    loosened: dict[str, list[str]] = {}
    for key in table:
        state = _State(key)
        for each, file in files:
            if key.key in file.values and not (each.locks_only and key.key not in file.locks):
                said = file.values[key.key]
                if file.distrust:
                    if not state.take_if_stricter(said):
                        loosened.setdefault(file.path, []).append(key.key)
                else:
                    notes += state.take(said)
            if key.key in file.locks and not file.distrust:
                state.lock = state.lock or file.locks[key.key]
        files_say = state.where
        if text := environ.get(key.name, "").strip():
            key.of(environ)  # one that is not valid is told here, by the variable's name
            notes += state.take(Value(text, f"{key.name}={environ[key.name]!r}"))
        if files_say and (not text or state.where != f"{key.name}={environ[key.name]!r}"):
            merged[key.name], sources[key.name] = state.text, state.where
            if key.key == "block":
                blocking = state.rules
    whys = {file.path: file.distrust for _, file in files}
    notes += [
        f"{path} is not obeyed in what it says of {', '.join(names)}: {whys[path]}."
        for path, names in loosened.items()
    ]
    return Layered(merged, sources, tuple(notes), blocking)


class _State:
    """What holds for one key, level by level."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.text = self.where = self.lock = ""
        #: Of a list, who said each part of it.
        self.rules: dict[str, str] = {}

    def take(self, said: Value) -> list[str]:
        """Let `said` win, as far as a lock leaves it to; sentences say what is not obeyed.

        Raises `SettingError` where nothing would be left to choose: no pin is ever silently ignored.
        """
        if not self.lock:
            self.text, self.where = said
            self.rules = dict.fromkeys(_names(self._normal(said.text)), said.where)
            return []
        text, obeyed = self._stricter(said)
        if text is None:
            raise SettingError(
                f"{said.where} asks for what {self.where} excludes, and {self.key.key} is locked by "
                f"{self.lock}. Ask for what that leaves."
            )
        self._hold(text, said)
        return [] if obeyed else [f"{said.where} is not obeyed: {self.key.key} is locked by {self.lock}."]

    def take_if_stricter(self, said: Value) -> bool:
        """Take of `said` what makes it stricter; whether that is all of it."""
        text, obeyed = self._stricter(said)
        if text is not None:
            self._hold(text, said)
        return obeyed and text is not None

    def _hold(self, text: str, said: Value) -> None:
        """Hold `text`, which comes from what was held and from `said`."""
        if text == self._normal(self.text):
            return
        self.rules = {rule: self.rules.get(rule, said.where) for rule in _names(text)}
        both = self.text and text != self._normal(said.text)
        self.where = f"{self.where} and {said.where}" if both else said.where
        self.text = text

    def _stricter(self, said: Value) -> tuple[str | None, bool]:
        """What `said` leaves of what is held, and whether it is obeyed; `None` where that is nothing."""
        return _STRICTER.get(self.key.key, _unchanged)(self._normal(self.text), self._normal(said.text))

    def _normal(self, text: str) -> str:
        """The text as the parser understands it: names in lower case, numbers as Python writes them."""
        parsed = self.key.parse(text) if text else ""
        if isinstance(parsed, tuple):
            return ",".join(map(str, parsed))
        return str(int(parsed)) if isinstance(parsed, bool) else str(parsed)


def _unchanged(held: str, new: str) -> tuple[str | None, bool]:
    return held, held == new


def _union(held: str, new: str) -> tuple[str | None, bool]:
    """A list of what is blocked: it may grow. An empty one is an attempt to shorten it."""
    return ",".join(dict.fromkeys([*_names(held), *_names(new)])), bool(new or not held)


def _intersection(held: str, new: str) -> tuple[str | None, bool]:
    """A list of what is allowed: it may shrink, but not to nothing."""
    if not held or not new:
        return new or held, not held
    both = [common for a in _names(held) for b in _names(new) if (common := _common(a, b))]
    obeyed = all(any(_common(a, b) == b for a in _names(held)) for b in _names(new))
    kept = [rule for rule in dict.fromkeys(both) if not any(_is_within(rule, wider) for wider in both)]
    return ",".join(kept) or None, obeyed


def _pinned(held: str, new: str) -> tuple[str | None, bool]:
    """Pins: the new ones where each is among those held, in their own order."""
    if not held or not new:
        return held, held == new
    left = [b for b in _names(new) if any(_common(a, b) == b for a in _names(held))]
    return (new, True) if left == _names(new) else (None, False)


def _at_least(*order: str) -> Callable[[str, str], tuple[str | None, bool]]:
    """The later of both in `order`."""

    def later(held: str, new: str) -> tuple[str | None, bool]:
        return (new, True) if order.index(new) >= order.index(held) else (held, False)

    return later


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _common(one: str, other: str) -> str:
    """What both rules mean, each `name`, `name@distribution` or `@distribution`; empty where that is none."""
    (name, _, distribution), (also, _, as_well) = one.partition("@"), other.partition("@")
    if (name and also and name != also) or (distribution and as_well and distribution != as_well):
        return ""
    owner = distribution or as_well
    return f"{name or also}@{owner}" if owner else name or also


def _is_within(rule: str, wider: str) -> bool:
    return rule != wider and _common(rule, wider) == rule


#: What is stricter, by key; what has no order may not change at all.
_STRICTER: Mapping[str, Callable[[str, str], tuple[str | None, bool]]] = {
    "accelerator": _pinned,
    "allow": _intersection,
    "block": _union,
    "strict": _at_least("", "1", "always"),
    "probe": _at_least("", "inline", "isolated"),
}
