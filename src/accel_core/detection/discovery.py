"""Entry points to candidates: plugins are loaded, checked and ordered here.

A plugin that fails to import, declares nothing or declares nonsense is `Unloaded` with its outcome, never an
exception, so that one broken distribution cannot hide the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from accel_core._text import clean
from accel_core._version import __version__
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.detection import builtin
from accel_core.detection.entry_points import (
    EntryPoint,
    Unread,
    find_entry_points,
    name_of,
    provenance,
    scan,
)
from accel_core.detection.records import ENDED, Candidate, Outcome, Status, Unloaded, after
from accel_core.detection.trying import LOADING, Note
from accel_core.settings import Pin, Settings, normalize_distribution, read

if TYPE_CHECKING:
    from accel_core._support.guest import Guest
    from accel_core.detection.loading import Load
    from accel_core.detection.notes import Death

__all__ = [
    "builtin_candidates",
    "declarers",
    "discover",
    "find",
    "installed_names",
    "load_apart",
    "loader",
    "rank",
]


def discover(settings: Settings | None = None, load: Load | None = None) -> tuple[Candidate | Unloaded, ...]:
    """Every backend that is built in or installed, in rank order; imports each plugin's inert module.

    Not that of a plugin that the policy refuses, in `settings` or else the environment: it comes back
    unloaded, under its entry point's name. So does what may be a plugin whose `entry_points.txt` is not
    read, under its distribution's name. With `ACCEL_PROBE=isolated` a child process imports the modules; its
    plugins are imported here when a hook of theirs is called. Raises `SettingError` as `read` does.
    """
    wanted = read() if settings is None else settings
    found = scan(ENTRY_POINT_GROUP)
    loaded = _loaded(found.entry_points, wanted, load)
    return rank([*builtin_candidates(), *loaded, *map(_unread, found.unread)])


def find(
    pin: Pin | None, settings: Settings | None = None, load: Load | None = None
) -> tuple[Candidate | Unloaded, ...]:
    """The candidates that `pin` means, or all of them; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise. `settings`, `load` and errors as for `discover`.
    """
    wanted = read() if settings is None else settings
    if pin is None:
        return discover(wanted, load)
    own = tuple(c for c in builtin_candidates() if c.matches([pin]))
    if own:
        return own
    installed = find_entry_points(ENTRY_POINT_GROUP)
    named = [e for e in installed if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(map(_claim, named))
    candidates = [c for c in _loaded(named, wanted, load) if c.matches([pin])]
    if not candidates:
        others = [e for e in installed if e not in named]
        candidates = [c for c in _loaded(others, wanted, load) if c.matches([pin])]
    if not candidates:
        unread = map(_unread, scan(ENTRY_POINT_GROUP).unread)
        candidates = [c for c in unread if c.matches([pin])]
    return rank(candidates)


def _loaded(
    entry_points: Iterable[EntryPoint], settings: Settings, wanted: Load | None
) -> list[Candidate | Unloaded]:
    """What the plugins declare; one that the policy refuses is not imported by anybody, to say so."""
    given = list(entry_points)
    left = [e for e in given if _may_be_loaded(e, settings)]
    refused = [_refused(e) for e in given if e not in left]
    with Note(settings.probe_timeout) as note:
        loaded = (wanted or loader(settings, note))(left)
    return [*refused, *(candidate for candidates in loaded for candidate in candidates)]


#: Whether plugins are loaded in child processes only, whatever the settings say.
_always_apart = False


def load_apart() -> None:
    """Load plugins in child processes only from now on: one that is installed kills its process."""
    global _always_apart
    _always_apart = True


def loader(settings: Settings, note: Note, *, isolated: bool = False) -> Load:
    """What loads plugins: child processes where the settings or the caller say so, else this process."""
    if isolated or settings.isolated or _always_apart:
        from accel_core.detection.apart import Apart  # here, as most processes have no use for it

        return Apart(settings.probe_timeout)
    return _Here(note, settings.probe_timeout)


class _Here:
    """Loads plugins in this process, each step noted before it begins.

    One that an earlier process did not survive is loaded in a child process first.
    """

    def __init__(self, note: Note, timeout: float) -> None:
        self._note = note
        self._timeout = timeout
        self._guest: Guest | None = None

    def __call__(self, entry_points: Sequence[EntryPoint]) -> list[tuple[Candidate | Unloaded, ...]]:
        """What each of them declares."""
        return list(map(self._load, entry_points))

    def _load(self, entry_point: EntryPoint) -> tuple[Candidate | Unloaded, ...]:
        from accel_core._support.guest import Guest  # these here, as without a plugin nothing is loaded
        from accel_core.detection.loading import load, tried_apart

        note, source, name = self._note, provenance(entry_point), name_of(entry_point)
        death = note.earlier(source, LOADING)
        note.installed(source)
        if death is not None:
            note.said.append(tried_apart(name, source, death))
            from accel_core.detection.apart import Apart  # here, as nearly no process comes here

            (found,) = Apart(self._timeout)([entry_point])
            if all(isinstance(c, Unloaded) and c.outcome.status in ENDED for c in found):
                return tuple(map(functools.partial(_again, death=death), found))
        self._guest = self._guest or Guest()
        loaded = load(entry_point, lambda what: note.step(source, name, LOADING, what), self._guest)
        note.survived(source, LOADING)
        return loaded


def _again(candidate: Candidate | Unloaded, death: Death) -> Candidate | Unloaded:
    if isinstance(candidate, Candidate):
        return candidate
    return candidate._replace(outcome=after(candidate.outcome, death))


def _may_be_loaded(entry_point: EntryPoint, settings: Settings) -> bool:
    """Whether the policy leaves the plugin, as far as its entry point and its distribution tell.

    A name with a distribution in `ACCEL_ALLOW` allows that distribution to be imported, whatever its entry
    points are called; what it declares is judged by the policy again.
    """
    name, distribution = name_of(entry_point), entry_point.distribution
    if settings.permits(name, distribution):
        return True
    blocked = any(pin.matches(name, distribution) for pin in settings.block)
    normalized = normalize_distribution(distribution)
    return not blocked and any(pin.distribution == normalized for pin in settings.allow)


def _refused(entry_point: EntryPoint) -> Unloaded:
    outcome = Outcome(Status.BLOCKED, "the policy does not leave it, and its plugin was not loaded")
    return Unloaded(name_of(entry_point), provenance(entry_point), outcome)


def installed_names() -> list[str]:
    """Names that a pin can have, read from metadata alone."""
    names = [clean(e.name.lower()) for e in find_entry_points(ENTRY_POINT_GROUP) if e.name]
    return [*dict.fromkeys(sorted(names)), *(c.name for c in reversed(builtin_candidates()))]


def declarers(name: str) -> set[str]:
    """The distributions whose entry point has that name, read from metadata alone."""
    return {clean(e.distribution) for e in find_entry_points(ENTRY_POINT_GROUP) if e.name.lower() == name}


def builtin_candidates() -> tuple[Candidate, ...]:
    """The backends that accel_core brings itself: the CPU, and any accelerator torch reports."""
    ours = Provenance("accel-core", __version__)
    brought = (builtin.CPU, builtin.GENERIC)
    return tuple(Candidate(backend._declared_by(ours), builtin) for backend in brought)


def _claim(entry_point: EntryPoint) -> Unloaded:
    """What is known of a plugin by its entry point alone."""
    outcome = Outcome(Status.NOT_PROBED, "its plugin was not loaded")
    return Unloaded(name_of(entry_point), provenance(entry_point), outcome)


def _unread(unread: Unread) -> Unloaded:
    """A distribution that may be a plugin, and whose entry points nobody reads."""
    outcome = Outcome(
        Status.INVALID,
        f"whether it is a plugin cannot be read: {unread.reason}",
        f"pip install --force-reinstall {unread.distribution}, or delete that folder",
    )
    source = Provenance(unread.distribution, unread.version)
    return Unloaded(normalize_distribution(unread.distribution), source, outcome)


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
