"""Entry points to candidates: plugins are loaded, checked and ordered here.

A plugin that fails to import, declares nothing or declares nonsense becomes a candidate with a fault,
never an exception, so that one broken distribution cannot hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from accel_core._support.quiet import stdout_to_stderr
from accel_core.backend import ENTRY_POINT_GROUP, Backend, Provenance
from accel_core.detection import builtin
from accel_core.detection.entry_points import EntryPoint, find_entry_points
from accel_core.detection.plugin import Plugin
from accel_core.errors import InvalidBackendError
from accel_core.settings import Pin, normalize_distribution

__all__ = ["Candidate", "Fault", "builtin_candidates", "discover", "find", "rank"]

#: What a plugin may throw at us; `KeyboardInterrupt` passes.
CAUGHT = (Exception, SystemExit)


class Fault(NamedTuple):
    """Why a plugin could not be loaded."""

    reason: str
    hint: str = ""
    error: BaseException | None = None


class Candidate(NamedTuple):
    """A backend with its provenance; `backend` is `None` where the plugin has a `fault`."""

    name: str
    provenance: Provenance
    backend: Backend | None = None
    fault: Fault | None = None
    plugin: Plugin | None = None

    @property
    def distribution(self) -> str:
        """Name of the distribution; `accel-core` for what is built in."""
        return self.provenance.distribution

    @property
    def builtin(self) -> bool:
        """Whether accel_core itself brings this backend."""
        return self.provenance.entry_point == ""

    @property
    def priority(self) -> int:
        """The declared priority; 0 where nothing could be read."""
        return self.backend.priority if self.backend else 0

    def matches(self, pins: Iterable[Pin]) -> bool:
        """Whether one of `pins` means this candidate."""
        return any(pin.matches(self.name, self.distribution) for pin in pins)

    def __str__(self) -> str:
        return f"{self.name} ({self.provenance})"


def discover() -> tuple[Candidate, ...]:
    """Every backend that is built in or installed, in rank order; imports each plugin's inert module."""
    loaded = [
        candidate for entry_point in find_entry_points(ENTRY_POINT_GROUP) for candidate in load(entry_point)
    ]
    return rank([*builtin_candidates(), *loaded])


def find(pin: Pin) -> tuple[Candidate, ...]:
    """The candidates that `pin` means; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise.
    """
    own = tuple(c for c in builtin_candidates() if c.matches([pin]))
    if own:
        return own
    installed = find_entry_points(ENTRY_POINT_GROUP)
    named = [e for e in installed if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(map(_claim, named))
    found = _matching(named, pin)
    if not found:
        found = _matching([e for e in installed if e not in named], pin)
    return rank(found)


def _matching(entry_points: Iterable[EntryPoint], pin: Pin) -> list[Candidate]:
    return [c for e in entry_points for c in load(e) if c.matches([pin])]


def builtin_candidates() -> tuple[Candidate, ...]:
    """The backends that accel_core brings itself: the CPU, and any accelerator torch reports."""
    from accel_core import __version__

    provenance = Provenance("accel-core", __version__)
    plugin = Plugin(builtin, builtin=True)
    return tuple(
        Candidate(b.name, provenance, replace(b, provenance=provenance), plugin=plugin)
        for b in plugin.backends()
    )


def load(entry_point: EntryPoint) -> tuple[Candidate, ...]:
    """Import one plugin's module and read its declarations; faults come back as candidates.

    What the plugin prints goes to stderr: stdout belongs to the program that is running.
    """
    provenance = _provenance(entry_point)
    try:
        with stdout_to_stderr():
            if not entry_point.module:
                raise InvalidBackendError(
                    "the entry point's value names no module, expected e.g. 'accel_npu'"
                )
            plugin = Plugin(entry_point.load())
            backends = plugin.backends()
    except CAUGHT as error:
        return (Candidate(entry_point.name.lower(), provenance, fault=_fault(entry_point, error)),)
    unique = {(b.name, b.priority): replace(b, provenance=provenance) for b in backends}
    return tuple(Candidate(b.name, provenance, b, plugin=plugin) for b in unique.values())


def _claim(entry_point: EntryPoint) -> Candidate:
    """A candidate known by its entry point alone."""
    return Candidate(entry_point.name.lower(), _provenance(entry_point))


def _provenance(entry_point: EntryPoint) -> Provenance:
    return Provenance(entry_point.distribution, entry_point.version, entry_point.name, entry_point.value)


def _fault(entry_point: EntryPoint, error: BaseException) -> Fault:
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    if isinstance(error, InvalidBackendError):
        hint = error.hint or f"report this to the maintainers of {entry_point.distribution}"
        return Fault(f"{error} ({at})", hint, error)
    return Fault(
        f"the plugin failed to load: {root_cause(error)} ({at})",
        f"pip install --force-reinstall {entry_point.distribution}, or pip uninstall it",
        error,
    )


def root_cause(error: BaseException) -> str:
    """The first exception of a chain as `Type: message`; the outer ones mostly say "failed to load"."""
    seen = {id(error)}
    while (
        inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        if id(inner) in seen:
            break
        seen.add(id(inner))
        error = inner
    if isinstance(error, SystemExit):
        return f"SystemExit: it tried to end the process with {error.code!r}"
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except CAUGHT:  # an exception whose own message fails must not be what the user gets to see
        return "(its message cannot be read)"


def rank(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """A total order: priority descending, then name, then distribution.

    A backend that impersonates a device namespace stands before every backend of that device type,
    whatever the numbers say: what it impersonates looks usable when it is not.
    """
    items = list(candidates)
    places = {id(c): _place(c, items, ()) for c in items}

    def key(candidate: Candidate) -> tuple[object, ...]:
        priority, depth = places[id(candidate)]
        return (
            -priority,
            -depth,
            -candidate.priority,
            candidate.builtin and candidate.name == "cpu",
            candidate.name,
            normalize_distribution(candidate.distribution),
            candidate.provenance.version,
            candidate.provenance.value,
        )

    return tuple(sorted(items, key=key))


def _place(candidate: Candidate, items: Sequence[Candidate], above: tuple[int, ...]) -> tuple[int, int]:
    """The effective priority, and how many impersonations lie below (a circle ends at its start)."""
    priority, depth = candidate.priority, 0
    for target in _impersonated(candidate, items):
        if id(target) not in above:
            p, d = _place(target, items, (*above, id(candidate)))
            priority, depth = max(priority, p), max(depth, d + 1)
    return priority, depth


def _impersonated(candidate: Candidate, items: Iterable[Candidate]) -> Iterator[Candidate]:
    if candidate.backend and candidate.backend.impersonates:
        for other in items:
            if (
                other is not candidate
                and other.backend
                and other.backend.device_type == candidate.backend.impersonates
            ):
                yield other
