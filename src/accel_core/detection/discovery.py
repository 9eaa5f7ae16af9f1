"""Entry points to candidates: plugins are loaded, checked and ordered here.

A plugin that fails to import, declares nothing or declares nonsense is `Unloaded` with its outcome, never an
exception, so that one broken distribution cannot hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from accel_core import __version__
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.detection import builtin, plugins
from accel_core.detection.plugins import EntryPoint, find_entry_points, name_of
from accel_core.detection.records import Candidate, Found, Outcome, Status, Unloaded
from accel_core.errors import clean
from accel_core.settings import Pin, Settings, normalize_distribution, read

__all__ = ["Load", "builtin_candidates", "declarers", "discover", "find", "installed_names", "loader", "rank"]


#: Reads the declarations of plugins; gives what each entry point declares, in their order.
Load = Callable[[Sequence[EntryPoint]], "list[tuple[Candidate | Unloaded, ...]]"]


def discover(*, isolated: bool = False) -> tuple[Candidate | Unloaded, ...]:
    """Every backend that is built in or installed, in rank order; imports each plugin's inert module.

    A plugin that `ACCEL_ALLOW` or `ACCEL_BLOCK` refuses is not imported: it comes back unloaded, under its
    entry point's name. `isolated`, or `ACCEL_PROBE=isolated`: a child process imports the modules, and this
    one imports a plugin when a hook of it is called. Raises `SettingError` for a malformed setting.
    """
    settings = read()
    return Found(find(None, settings, loader(settings, isolated=isolated)))


def find(pin: Pin | None, settings: Settings, load: Load) -> tuple[Candidate | Unloaded, ...]:
    """The candidates that `pin` means, or all of them; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise.
    """
    installed = find_entry_points(ENTRY_POINT_GROUP)
    if pin is None:
        return rank([*builtin_candidates(), *_loaded(installed, settings, load)])
    own = tuple(c for c in builtin_candidates() if c.matches([pin]))
    if own:
        return own
    named = [e for e in installed if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(map(_claim, named))
    candidates = [c for c in _loaded(named, settings, load) if c.matches([pin])]
    if not candidates:
        others = [e for e in installed if e not in named]
        candidates = [c for c in _loaded(others, settings, load) if c.matches([pin])]
    return rank(candidates)


def _loaded(entry_points: Iterable[EntryPoint], settings: Settings, load: Load) -> list[Candidate | Unloaded]:
    """Load the plugins' declarations; one that is blocked by policy is listed without being imported."""
    given = list(entry_points)
    left = [e for e in given if _may_be_loaded(e, settings)]
    refused = [_refused(e) for e in given if e not in left]
    return [*refused, *(candidate for candidates in load(left) for candidate in candidates)]


def loader(settings: Settings, *, isolated: bool = False) -> Load:
    """Return the reader of declarations: in child processes if settings or the caller ask, else here."""
    if isolated or settings.isolated:
        from accel_core.detection.isolated import IsolatedLoader  # here, as most processes start no child

        return IsolatedLoader(settings.probe_timeout)
    return lambda entry_points: [plugins.load(e) for e in entry_points]


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
    blocked = Outcome(Status.BLOCKED, "blocked by policy; the plugin was not loaded")
    return plugins.unloaded(entry_point, blocked)


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
    return tuple(Candidate(backend._declared_by(ours), None) for backend in (builtin.CPU, builtin.GENERIC))


def _claim(entry_point: EntryPoint) -> Unloaded:
    """Describe a plugin by its entry point alone."""
    return plugins.unloaded(entry_point, Outcome(Status.NOT_PROBED, "its plugin was not loaded"))


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


def _impersonated(candidate: Candidate, items: Iterable[Candidate | Unloaded]) -> list[Candidate]:
    target = candidate.backend.impersonates
    others = (other for other in items if isinstance(other, Candidate) and other is not candidate)
    return [other for other in others if target and other.backend.device_type == target]
