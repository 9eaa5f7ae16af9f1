"""Read the environment variables that control a choice: `read()` turns an environment
into `Settings`.

Values are stripped and compared without regard to case. An empty variable counts as
unset. Operators, launchers and integrations define their variables elsewhere, as
`Variable` objects.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Generic, NamedTuple, TypeVar

from accel_core import packages
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.errors import SettingError
from accel_core.packages import normalize_distribution

T = TypeVar("T")

_CORE = ("core", "train", "tools", "testing", "simulated")
_VENDORS = (
    "cuda", "hpu", "klxpu", "mlu", "mps", "musa", "neuron", "npu", "rbln", "sdaa", "supa", "tpu",
    "xpu",
)  # fmt: skip
#: The distributions of accel itself.
OWN_DISTRIBUTIONS = frozenset(f"accel-{name}" for name in (*_CORE, *_VENDORS))


class Pin(NamedTuple):
    """A reference to a backend by name, and optionally by distribution: `name` or
    `name@distribution`.

    In `ACCEL_ALLOW` and `ACCEL_BLOCK`, `@distribution` means every backend of that
    distribution.
    """

    name: str
    distribution: str = ""

    def __str__(self) -> str:
        if not self.distribution:
            return self.name
        return f"{self.name}@{self.distribution}"

    def matches(self, name: str, distribution: str) -> bool:
        """Return whether this pin selects a backend called `name` from `distribution`."""
        normalized = normalize_distribution(distribution)
        return self.name in ("", name) and self.distribution in ("", normalized)


# --- Parsers --------------------------------------------------------------------------
# Each parser returns the value of a string, or raises a ValueError whose message
# describes the accepted values.


def parse_pin(text: str, *, allow_distribution_only: bool = False) -> Pin:
    """Parse a pin such as `"npu"` or `"npu@accel-npu"`. With `allow_distribution_only`,
    accept `"@accel-npu"` too.

    Raises `ValueError`, which lists the accepted forms, for any other text.
    """
    name, at, distribution = text.lower().partition("@")
    pin = Pin(name.strip(), normalize_distribution(distribution.strip()))
    lacks_name = not pin.name and not allow_distribution_only
    lacks_distribution = at == "@" and not pin.distribution
    if lacks_name or lacks_distribution:
        if allow_distribution_only:
            expected = "a backend name, name@distribution, or @distribution"
        else:
            expected = "a backend name, or name@distribution"
        raise ValueError(expected)
    return pin


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list."""
    names = [part.strip() for part in text.split(",")]
    return tuple(name for name in names if name)


def parse_pins(text: str) -> tuple[Pin, ...]:
    """Parse a comma-separated list of pins."""
    return tuple(parse_pin(name) for name in parse_names(text))


def parse_rules(text: str) -> tuple[Pin, ...]:
    """Parse a comma-separated list of pins, which may have the form `@distribution`."""
    names = parse_names(text)
    return tuple(parse_pin(name, allow_distribution_only=True) for name in names)


_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def parse_flag(text: str) -> bool:
    """Parse a yes-or-no value, such as `"1"` or `"off"`."""
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    expected = "1 or 0"
    raise ValueError(expected)


def parse_strict(text: str) -> str:
    """Parse `ACCEL_STRICT`: return `"always"`, `"1"` for yes, or `""` for no."""
    if text.lower() == "always":
        return "always"
    try:
        is_strict = parse_flag(text)
    except ValueError:
        expected = "1, 0 or always"
        raise ValueError(expected) from None
    if is_strict:
        return "1"
    return ""


def parse_probe(text: str) -> str:
    """Parse `ACCEL_PROBE`: `"inline"` or `"isolated"`."""
    if text.lower() not in ("inline", "isolated"):
        expected = "inline or isolated"
        raise ValueError(expected)
    return text.lower()


def parse_seconds(text: str) -> float:
    """Parse a finite number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan  # which fails the next check too
    if not 0 < seconds < math.inf:
        expected = "a number of seconds above 0, such as 10 or 2.5"
        raise ValueError(expected)
    return seconds


def parse_whole_number(text: str) -> int:
    """Parse a whole number of at most nine digits."""
    if not re.fullmatch(r"\d{1,9}", text):
        expected = "a whole number, 0 or more"
        raise ValueError(expected)
    return int(text)


# --- Variables ------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable(Generic[T]):
    """An environment variable to read, with its parser and its description."""

    name: str
    #: Parses a string; raises a ValueError whose message describes the accepted values.
    parse: Callable[[str], T]
    default: T
    #: The description in `accel help variables`.
    help: str = ""

    def read(self, environ: Mapping[str, str]) -> T:
        """Return the variable's parsed value from `environ`, or the default if the
        variable is unset or empty.

        Raises `SettingError` if the value is invalid. The message names the variable,
        its value and the accepted values.
        """
        text = environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise SettingError(
                f"{self.name}={environ[self.name]!r} is not valid, expected {error}. "
                f"Correct it, or unset {self.name}."
            ) from None


DS_ACCELERATOR: Variable[tuple[Pin, ...]] = Variable(
    "DS_ACCELERATOR",
    parse_pins,
    (),
    "Pin a backend: name, name@distribution, or a comma-separated list in order of preference.",
)
ACCEL_ALLOW: Variable[tuple[Pin, ...]] = Variable(
    "ACCEL_ALLOW",
    parse_rules,
    (),
    "Only these backends may be chosen. Add cpu to the list to allow the CPU.",
)
ACCEL_BLOCK: Variable[tuple[Pin, ...]] = Variable(
    "ACCEL_BLOCK",
    parse_rules,
    (),
    "These backends are never chosen: name, name@distribution, or @distribution.",
)
ACCEL_STRICT = Variable(
    "ACCEL_STRICT",
    parse_strict,
    "",
    "1: raise an error instead of using the CPU if hardware is present or a plugin is broken; "
    "always: raise an error whenever no accelerator is usable.",
)
ACCEL_PROBE = Variable(
    "ACCEL_PROBE",
    parse_probe,
    "inline",
    "isolated: import each vendor's package in a child process first.",
)
ACCEL_PROBE_TIMEOUT = Variable(
    "ACCEL_PROBE_TIMEOUT", parse_seconds, 60.0, "Seconds until a probe is stopped."
)
ACCEL_IMPORT: Variable[tuple[str, ...]] = Variable(
    "ACCEL_IMPORT",
    parse_names,
    (),
    "Comma-separated packages to import after torch, for devices that torch does not discover itself.",
)
ACCEL_LOG = Variable(
    "ACCEL_LOG",
    parse_flag,
    False,
    "1: log each step of the choice to stderr, as `accel -v` does for a command.",
)

#: The variables that control a choice, in the order of the documentation.
VARIABLES: tuple[Variable[Any], ...] = (
    DS_ACCELERATOR,
    ACCEL_ALLOW,
    ACCEL_BLOCK,
    ACCEL_STRICT,
    ACCEL_PROBE,
    ACCEL_PROBE_TIMEOUT,
    ACCEL_IMPORT,
    ACCEL_LOG,
)
#: Variables that other modules read, listed so that their misspellings are reported.
_READ_ELSEWHERE = (
    "ACCEL_INTEGRATIONS",
    "ACCEL_COMMUNICATION_BACKEND",
    "ACCEL_UNUSED",
    "ACCEL_VENDOR_DEFAULTS",
)


def _misspelt(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return each unknown variable that resembles a variable of accel, paired with that
    variable.
    """
    known = [variable.name for variable in VARIABLES]
    known += _READ_ELSEWHERE
    pairs = []
    for name in environ:
        if not name.startswith("ACCEL_") or name in known:
            continue
        most_similar = get_close_matches(name, known, n=1, cutoff=0.8)
        for suggestion in most_similar:  # at most one
            pairs.append((name, suggestion))
    return tuple(pairs)


# --- Policy ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """The policy from `ACCEL_ALLOW` and `ACCEL_BLOCK`: the backends that may be chosen,
    and the plugins that may be imported.

    A block takes precedence over an allowance. If `allow` is empty, everything is
    allowed.
    """

    allow: tuple[Pin, ...] = ()
    block: tuple[Pin, ...] = ()

    def permits(self, name: str, distribution: str) -> bool:
        """Return whether a backend called `name` from `distribution` may be chosen."""
        if _any_matches(self.block, name, distribution):
            return False
        return not self.allow or _any_matches(self.allow, name, distribution)

    def permits_plugin(self, name: str, distribution: str) -> bool:
        """Return whether the plugin that registers `name` in `accel.backends` may be
        imported.

        The names of a plugin's backends are known only after its import, and may differ
        from the entry point's name. Therefore, a rule `backend@distribution` in `allow`
        permits the import of each plugin of that distribution. Each backend that the
        plugin declares must then pass `permits`.
        """
        if _any_matches(self.block, name, distribution):
            return False
        return self._is_named_in_allow(distribution, [name])

    def permits_distribution(self, distribution: str, backends: Iterable[str]) -> bool:
        """Return whether other code of a distribution, such as its commands, may be
        imported.

        `backends` are the names that the distribution registers in `accel.backends`.
        `block` excludes such code only with a rule `@distribution`. accel's own
        distributions need no rule in `allow`.
        """
        if _any_matches(self.block, "", distribution):
            return False
        if normalize_distribution(distribution) in OWN_DISTRIBUTIONS:
            return True
        return self._is_named_in_allow(distribution, backends)

    def _is_named_in_allow(self, distribution: str, backends: Iterable[str]) -> bool:
        """Return whether `allow` is empty, or names the distribution or one of its
        backends.
        """
        if not self.allow:
            return True
        normalized = normalize_distribution(distribution)
        if any(rule.distribution == normalized for rule in self.allow):
            return True
        return any(_any_matches(self.allow, name, distribution) for name in backends)


def _any_matches(rules: Iterable[Pin], name: str, distribution: str) -> bool:
    return any(rule.matches(name, distribution) for rule in rules)


def permitted_entry_points(group: str) -> list[Provenance]:
    """Return the entry points of `group` whose code the policy permits. Entry points of
    accel's own distributions come first.

    `ACCEL_ALLOW` does not apply to groups of other projects, such as torch. Raises
    `SettingError` if a setting is invalid.
    """
    registered = packages.entry_points(group)
    if not registered:
        return []
    policy = Policy(ACCEL_ALLOW.read(os.environ), ACCEL_BLOCK.read(os.environ))
    is_group_of_accel = group.startswith("accel.")
    if not is_group_of_accel:
        policy = replace(policy, allow=())
    backends_by_distribution = _backends_by_distribution(policy)
    own_entry_points, other_entry_points = [], []
    for entry_point in registered:
        distribution = entry_point.distribution
        backends = backends_by_distribution[distribution]
        if not policy.permits_distribution(distribution, backends):
            continue
        if normalize_distribution(distribution) in OWN_DISTRIBUTIONS:
            own_entry_points.append(entry_point)
        else:
            other_entry_points.append(entry_point)
    return own_entry_points + other_entry_points


def _backends_by_distribution(policy: Policy) -> Mapping[str, list[str]]:
    """Return the names that each distribution registers in `accel.backends`, or an
    empty mapping if the policy does not depend on them.
    """
    backends: defaultdict[str, list[str]] = defaultdict(list)
    if policy.allow:
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            backends[entry_point.distribution].append(entry_point.name.lower())
    return backends


# --- Settings -------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The settings that decide which accelerator is chosen, parsed from the
    environment.
    """

    pins: tuple[Pin, ...] = ()
    #: The origin of the pins, for messages, such as `"DS_ACCELERATOR='npu'"`.
    request: str = ""
    #: Whether `pins` come from `DS_ACCELERATOR`, and not from a command or a call.
    is_pinned_by_variable: bool = True
    allow: tuple[Pin, ...] = ()
    block: tuple[Pin, ...] = ()
    #: When the CPU fallback is an error: `""` never, `"1"` if an accelerator is broken
    #: or present, `"always"` in every case.
    strict: str = ""
    #: Whether each vendor's package is first imported in a child process.
    isolated: bool = False
    #: Seconds after which a child process that probes a backend is stopped.
    probe_timeout: float = 60.0
    #: Unknown variables that resemble a variable of accel, each paired with that
    #: variable.
    misspelt: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> Policy:
        """The policy that the settings `allow` and `block` define."""
        return Policy(self.allow, self.block)

    def permits(self, name: str, distribution: str) -> bool:
        """Return whether a backend called `name` from `distribution` may be chosen."""
        return self.policy.permits(name, distribution)


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in `environ`, by default the process's environment.

    Raises `SettingError` if a variable is invalid.
    """
    if environ is None:
        environ = os.environ
    return Settings(
        pins=DS_ACCELERATOR.read(environ),
        request=f"{DS_ACCELERATOR.name}={environ.get(DS_ACCELERATOR.name, '')!r}",
        allow=ACCEL_ALLOW.read(environ),
        block=ACCEL_BLOCK.read(environ),
        strict=ACCEL_STRICT.read(environ),
        isolated=ACCEL_PROBE.read(environ) == "isolated",
        probe_timeout=ACCEL_PROBE_TIMEOUT.read(environ),
        misspelt=_misspelt(environ),
    )
