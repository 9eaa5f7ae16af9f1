"""The variables that steer a choice, with one parser each; `read()` turns an environment into `Settings`.

Values are stripped and case is forgiven; an empty variable counts as unset. What only operators, launchers or
an integration read is a `Variable` there.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from accel_core.backend import Provenance
from accel_core.errors import SettingError

T = TypeVar("T")


class Pin(NamedTuple):
    """A backend by name, and optionally by distribution: `name` or `name@distribution`.

    In `ACCEL_ALLOW` and `ACCEL_BLOCK`, `@distribution` means every backend of that distribution.
    """

    name: str
    distribution: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.distribution}" if self.distribution else self.name

    def matches(self, name: str, distribution: str) -> bool:
        """Whether this pin means a backend with that name, from that distribution."""
        return self.name in ("", name) and self.distribution in (
            "",
            normalize_distribution(distribution),
        )


def normalize_distribution(name: str) -> str:
    """Return a distribution's name in lower case, with each run of `-_.` as one `-`, as packaging compares
    names.
    """
    low = (
        name.lower()
    )  # the expression for the few that need it, as to compile it takes long
    return (
        re.sub(r"[-_.]+", "-", low) if "_" in low or "." in low or "--" in low else low
    )


def parse_pin(text: str, *, nameless: bool = False) -> Pin:
    """Parse `"npu"` or `"npu@accel-npu"`; with `nameless`, also `"@accel-npu"`. Raises `ValueError`."""
    name, at, distribution = (
        part.strip() for part in text.strip().lower().partition("@")
    )
    if not (name or nameless) or bool(at) != bool(distribution):
        other = (
            ", name@distribution, or @distribution"
            if nameless
            else ", or name@distribution"
        )
        raise ValueError(f"a backend name{other}")
    return Pin(name, normalize_distribution(distribution))


def _listed(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A parser of a list by comma."""
    return lambda text: tuple(
        parse(part) for part in map(str.strip, text.split(",")) if part
    )


def _one_of(values: Mapping[str, T], expected: str) -> Callable[[str], T]:
    """A parser of words, whatever their case."""

    def parse(text: str) -> T:
        if text.lower() not in values:
            raise ValueError(expected)
        return values[text.lower()]

    return parse


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
#: Yes or no.
flag = _one_of({**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}, "1 or 0")
_STRICT = {**dict.fromkeys(_YES, "1"), **dict.fromkeys(_NO, ""), "always": "always"}


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise ValueError("a number of seconds above 0, such as 10 or 2.5")


def whole_number(text: str) -> int:
    """Parse what launchers set."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError("a whole number, 0 or more")
    return int(text)


class Variable(Generic[T]):
    """An environment variable: its name, its parser, its default, and its line in `accel help variables`."""

    def __init__(
        self, name: str, parse: Callable[[str], T], default: T, help: str = ""
    ) -> None:
        self.name, self.parse, self.default, self.help = name, parse, default, help

    def read(self, environ: Mapping[str, str]) -> T:
        """Return the parsed value from `environ`; the default if it is unset or empty.

        Raises `SettingError` with the variable, the value and what is accepted.
        """
        if not (text := environ.get(self.name, "").strip()):
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise SettingError(
                f"{self.name}={environ[self.name]!r} is not valid, expected {error}. "
                f"Correct it, or unset {self.name}."
            ) from None


_pins = _listed(parse_pin)
#: Pins, and `@distribution` for all that a distribution brings.
_rules = _listed(partial(parse_pin, nameless=True))

DS_ACCELERATOR: Variable[tuple[Pin, ...]] = Variable(
    "DS_ACCELERATOR",
    _pins,
    (),
    "Pin a backend: name, name@distribution, or a preference list by comma.",
)
ACCEL_ALLOW: Variable[tuple[Pin, ...]] = Variable(
    "ACCEL_ALLOW",
    _rules,
    (),
    "Only these backends may be chosen (the CPU too must be named).",
)
ACCEL_BLOCK: Variable[tuple[Pin, ...]] = Variable(
    "ACCEL_BLOCK",
    _rules,
    (),
    "These backends are never chosen: name, name@distribution, or @distribution.",
)
ACCEL_STRICT = Variable(
    "ACCEL_STRICT",
    _one_of(_STRICT, "1, 0 or always"),
    "",
    "1: an error instead of the CPU when hardware is there or a plugin is broken; always: in any case.",
)
_WAYS = _one_of({"inline": "inline", "isolated": "isolated"}, "inline or isolated")
ACCEL_PROBE = Variable(
    "ACCEL_PROBE",
    _WAYS,
    "inline",
    "isolated: import each vendor in a child process first.",
)
ACCEL_PROBE_TIMEOUT = Variable(
    "ACCEL_PROBE_TIMEOUT", _seconds, 60.0, "Seconds until a probe is stopped."
)
ACCEL_IMPORT: Variable[tuple[str, ...]] = Variable(
    "ACCEL_IMPORT",
    _listed(str),
    (),
    "Packages, by comma, to import after torch, which misses their device.",
)
ACCEL_LOG = Variable(
    "ACCEL_LOG", flag, False, "1: log each step of the choice (accel -v: of a command)."
)

#: What steers a choice: the variables above, in the order in which the documentation lists them.
VARIABLES = tuple(
    value for value in [*globals().values()] if isinstance(value, Variable)
)
#: Names that others read, so that what is nearly one of them is told of as misspelt, and they are not.
_ELSEWHERE = (
    "ACCEL_CACHE", "ACCEL_COMPILE", "ACCEL_INTEGRATIONS", "ACCEL_COMMUNICATION_BACKEND",
    "ACCEL_UNUSED", "ACCEL_VENDOR_DEFAULTS",
)  # fmt: skip


class Settings(NamedTuple):
    """The settings that decide which accelerator is chosen, parsed from the environment."""

    pins: tuple[Pin, ...] = ()
    #: Where the pins come from, for messages: `"DS_ACCELERATOR='npu'"`.
    asked: str = ""
    allow: tuple[Pin, ...] = ()
    block: tuple[Pin, ...] = ()
    #: When the CPU is refused as the fall-back: `""` never, `"1"` over what is broken or present, `"always"`.
    strict: str = ""
    isolated: bool = False
    #: Seconds after which a child process that probes is stopped.
    probe_timeout: float = 60.0
    #: Variables that look like ours and are none, each with the one that may be meant.
    misspelt: tuple[tuple[str, str], ...] = ()

    def permits(self, name: str, distribution: str) -> bool:
        """Whether `allow` and `block` let a backend with that name, from that distribution, be chosen."""
        allowed = not self.allow or any(
            pin.matches(name, distribution) for pin in self.allow
        )
        return allowed and not any(
            pin.matches(name, distribution) for pin in self.block
        )


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in `environ`, by default the process's environment; raises `SettingError`."""
    env = os.environ if environ is None else environ
    return Settings(
        pins=DS_ACCELERATOR.read(env),
        asked=f"{DS_ACCELERATOR.name}={env.get(DS_ACCELERATOR.name, '')!r}",
        allow=ACCEL_ALLOW.read(env),
        block=ACCEL_BLOCK.read(env),
        strict=ACCEL_STRICT.read(env),
        isolated=ACCEL_PROBE.read(env) == "isolated",
        probe_timeout=ACCEL_PROBE_TIMEOUT.read(env),
        misspelt=_misspelt(env),
    )


#: Our own distributions.
OURS = frozenset(f"accel-{name}" for name in (
    "core", "train", "tools", "testing", "simulated",
    "cuda", "hpu", "klxpu", "mlu", "mps", "musa", "npu", "rbln", "sdaa", "supa", "tpu", "xpu",
))  # fmt: skip


def entry_points(group: str) -> list[Provenance]:
    """The entry points of `group` whose code the policy lets run, those of our own distributions first.

    `ACCEL_BLOCK=@NAME` rules out all of a distribution's. `ACCEL_ALLOW` rules out distributions that are not
    ours, unless it names one, or a backend of it; it says nothing of what torch loads by itself.
    """
    from accel_core import packages

    if not (found := packages.entry_points(group)):
        return []
    block, allow = ACCEL_BLOCK.read(os.environ), ACCEL_ALLOW.read(os.environ)

    def is_permitted(distribution: str) -> bool:
        if any(not rule.name and rule.matches("", distribution) for rule in block):
            return False
        if (
            not allow
            or not group.startswith("accel.")
            or normalize_distribution(distribution) in OURS
        ):
            return True
        backends = packages.entry_points("accel.backends")
        names = [e.name.lower() for e in backends if e.distribution == distribution]
        is_named = any(
            rule.distribution and rule.matches(rule.name, distribution)
            for rule in allow
        )
        return is_named or any(
            rule.matches(name, distribution) for rule in allow for name in names
        )

    permitted = [
        entry_point for entry_point in found if is_permitted(entry_point.distribution)
    ]
    return sorted(
        permitted, key=lambda e: normalize_distribution(e.distribution) not in OURS
    )


def _misspelt(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Variables that begin as ours do and nobody reads, where one of ours is spelled nearly so."""
    ours = [*(variable.name for variable in VARIABLES), *_ELSEWHERE]
    if not (
        unknown := [
            name for name in environ if name.startswith("ACCEL_") and name not in ours
        ]
    ):
        return ()
    from difflib import get_close_matches  # for the few who have one

    pairs = ((name, get_close_matches(name, ours, n=1, cutoff=0.8)) for name in unknown)
    return tuple((name, close[0]) for name, close in pairs if close)
