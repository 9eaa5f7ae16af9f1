"""Entry points to candidates: plugins are loaded, checked and ordered here.

A plugin that fails to import, declares nothing or declares nonsense is `Unloaded` with its outcome, never an
exception, so that one broken distribution cannot hide the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accel_core._support import log
from accel_core._support.quiet import stdout_to_stderr
from accel_core._text import clean
from accel_core._version import __version__
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.detection import builtin
from accel_core.detection.entry_points import EntryPoint, Unread, find_entry_points, scan
from accel_core.detection.plugin import declarations
from accel_core.detection.records import CAUGHT, Candidate, Outcome, Status, Unloaded, root_cause
from accel_core.errors import InvalidBackendError
from accel_core.settings import Pin, normalize_distribution

__all__ = ["builtin_candidates", "declarers", "discover", "find", "installed_names", "rank"]


def discover() -> tuple[Candidate | Unloaded, ...]:
    """Every backend that is built in or installed, in rank order; imports each plugin's inert module.

    So is what may be a plugin whose `entry_points.txt` is not read, under its distribution's name.
    """
    found = scan(ENTRY_POINT_GROUP)
    loaded = [candidate for entry_point in found.entry_points for candidate in load(entry_point)]
    return rank([*builtin_candidates(), *loaded, *map(_unread, found.unread)])


def find(pin: Pin | None) -> tuple[Candidate | Unloaded, ...]:
    """The candidates that `pin` means, or all of them; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise.
    """
    if pin is None:
        return discover()
    own = tuple(c for c in builtin_candidates() if c.matches([pin]))
    if own:
        return own
    installed = find_entry_points(ENTRY_POINT_GROUP)
    named = [e for e in installed if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(map(_claim, named))
    candidates = _matching(named, pin)
    if not candidates:
        candidates = _matching([e for e in installed if e not in named], pin)
    if not candidates:
        unread = map(_unread, scan(ENTRY_POINT_GROUP).unread)
        candidates = [c for c in unread if c.matches([pin])]
    return rank(candidates)


def installed_names() -> list[str]:
    """Names that a pin can have, read from metadata alone."""
    names = [clean(e.name.lower()) for e in find_entry_points(ENTRY_POINT_GROUP) if e.name]
    return [*dict.fromkeys(sorted(names)), builtin.GENERIC.name, builtin.CPU.name]


def declarers(name: str) -> set[str]:
    """The distributions whose entry point has that name, read from metadata alone."""
    return {clean(e.distribution) for e in find_entry_points(ENTRY_POINT_GROUP) if e.name.lower() == name}


def _matching(entry_points: Iterable[EntryPoint], pin: Pin) -> list[Candidate | Unloaded]:
    return [c for e in entry_points for c in load(e) if c.matches([pin])]


def builtin_candidates() -> tuple[Candidate, ...]:
    """The backends that accel_core brings itself: the CPU, and any accelerator torch reports."""
    provenance = Provenance("accel-core", __version__)
    return tuple(
        Candidate(backend._declared_by(provenance), builtin) for backend in (builtin.CPU, builtin.GENERIC)
    )


def load(entry_point: EntryPoint) -> tuple[Candidate | Unloaded, ...]:
    """Import one plugin's module and read its declarations.

    What the plugin prints goes to stderr: stdout belongs to the program that is running.
    """
    provenance = _provenance(entry_point)
    log.say(f"load the plugin {entry_point.value} of {provenance}")
    try:
        with stdout_to_stderr():
            if not entry_point.name:
                raise InvalidBackendError("the entry point has no name, expected that of its backend")
            if not entry_point.module:
                raise InvalidBackendError(
                    "the entry point's value names no module, expected e.g. 'accel_npu'"
                )
            plugin = entry_point.load()
            backends = declarations(plugin)
    except CAUGHT as error:
        return (Unloaded(_name_of(entry_point), provenance, _failure(entry_point, error)),)
    unique = {(b.name, b.priority): b._declared_by(provenance) for b in backends}
    return tuple(Candidate(backend, plugin) for backend in unique.values())


def _claim(entry_point: EntryPoint) -> Unloaded:
    """What is known of a plugin by its entry point alone."""
    outcome = Outcome(Status.NOT_PROBED, "its plugin was not loaded")
    return Unloaded(_name_of(entry_point), _provenance(entry_point), outcome)


def _name_of(entry_point: EntryPoint) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return clean(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def _unread(unread: Unread) -> Unloaded:
    """A distribution that may be a plugin, and whose entry points nobody reads."""
    outcome = Outcome(
        Status.INVALID,
        f"whether it is a plugin cannot be read: {unread.reason}",
        f"pip install --force-reinstall {unread.distribution}, or delete that folder",
    )
    provenance = Provenance(unread.distribution, unread.version)
    return Unloaded(normalize_distribution(unread.distribution), provenance, outcome)


def _provenance(entry_point: EntryPoint) -> Provenance:
    # Folder names and metadata may hold anything, and these go into every message.
    distribution, version = clean(entry_point.distribution), clean(entry_point.version)
    return Provenance(distribution, version, entry_point.name, entry_point.value)


def _failure(entry_point: EntryPoint, error: BaseException) -> Outcome:
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    if isinstance(error, InvalidBackendError):
        hint = error.hint or f"report this to the maintainers of {entry_point.distribution}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    return Outcome(
        Status.BROKEN,
        f"the plugin failed to load: {root_cause(error)} ({at})",
        f"pip install --force-reinstall {entry_point.distribution}, or pip uninstall it",
        error=error,
    )


def rank(candidates: Iterable[Candidate | Unloaded]) -> tuple[Candidate | Unloaded, ...]:
    """A total order: priority descending, then name, then distribution.

    A backend that impersonates a device namespace stands before every backend of that device type,
    whatever the numbers say: what it impersonates looks usable when it is not.
    """
    items = list(candidates)
    impersonators = [c for c in items if isinstance(c, Candidate) and c.backend.impersonates]
    places = {id(c): _place(c, items, ()) for c in impersonators}

    def key(candidate: Candidate | Unloaded) -> tuple[object, ...]:
        priority, depth = places.get(id(candidate), (candidate.priority, 0))
        return (
            -priority,
            -depth,
            -candidate.priority,
            candidate.builtin and candidate.name == builtin.CPU.name,
            candidate.name,
            normalize_distribution(candidate.distribution),
            candidate.provenance.version,
            candidate.provenance.value,
        )

    return tuple(sorted(items, key=key))


def _place(
    candidate: Candidate, items: Sequence[Candidate | Unloaded], above: tuple[int, ...]
) -> tuple[int, int]:
    """The effective priority, and how many impersonations lie below (a circle ends at its start)."""
    priority, depth = candidate.priority, 0
    for target in _impersonated(candidate, items):
        if id(target) not in above:
            p, d = _place(target, items, (*above, id(candidate)))
            priority, depth = max(priority, p), max(depth, d + 1)
    return priority, depth


def _impersonated(candidate: Candidate, items: Iterable[Candidate | Unloaded]) -> Iterator[Candidate]:
    if candidate.backend.impersonates:
        for other in items:
            if (
                other is not candidate
                and isinstance(other, Candidate)
                and other.backend.device_type == candidate.backend.impersonates
            ):
                yield other
