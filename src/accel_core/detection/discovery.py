"""Entry points to candidates: plugins are loaded, checked and ordered here, and their hooks called.

A plugin that fails to import, declares nothing or declares nonsense is `Unloaded` with its outcome, never an
exception, so that one broken distribution cannot hide the others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from accel_core import __version__
from accel_core._support.packages import entry_points
from accel_core._support.torch_import import TORCH_GROUP
from accel_core.backend import ENTRY_POINT_GROUP, PROJECT, Backend, Provenance, is_unknown_field
from accel_core.detection import Candidate, Candidates, Found, Judged, Outcome, Status, Unloaded
from accel_core.detection.guard import announce, quiet, restoring
from accel_core.errors import CAUGHT, InvalidBackendError, clean, raise_if_users, root, root_cause, shown
from accel_core.settings import OURS, Pin, Settings, normalize_distribution

#: Reads the declarations of plugins; gives what each entry point declares, in their order.
Load = Callable[[Sequence[Provenance]], "list[Candidates]"]

CPU = Backend(
    name="cpu",
    priority=0,
    device_type="cpu",
    accelerator="accel_core.accelerators.cpu:CPUAccelerator",
    description="the processor, through torch.cpu",
    install_hint="accel setup cpu",
    communication_backend="gloo",
)

GENERIC = Backend(
    name="generic",
    priority=100,
    device_type="privateuseone",  # a placeholder: torch says what it is when the accelerator is built
    accelerator="accel_core.accelerators.torch_device:GenericAccelerator",
    description="an accelerator that torch reports and no installed plugin knows",
    install_hint="accel setup",
)


# --- Candidates ----------------------------------------------------------------------------------------


def find_candidates(pin: Pin | None, settings: Settings, load: Load) -> Candidates:
    """The candidates that `pin` means, or all of them; imports as few plugin modules as can be.

    An entry point is named as its backend, so one import is the rule. Only when no entry point of that
    name declares the backend are the others loaded. Where two distributions claim the name and the pin
    does not say which, both come back and neither is imported. A built-in name means the built-in one
    unless the pin says otherwise. `musa`, where torch loads `torch_musa` and no plugin declares it, is
    `generic`.
    """
    every = entry_points(ENTRY_POINT_GROUP)
    if pin is None:
        return rank([*builtin_candidates(), *_loaded(every, settings, load)])
    if own := tuple(c for c in builtin_candidates() if c.matches([pin])):
        return own
    named = [e for e in every if pin.matches(e.name.lower(), e.distribution)]
    if len({normalize_distribution(e.distribution) for e in named}) > 1:
        return tuple(unloaded(e, Outcome(Status.NOT_PROBED, "its plugin was not loaded")) for e in named)
    for plugins in (named, [e for e in every if e not in named]):
        if candidates := [c for c in _loaded(plugins, settings, load) if c.matches([pin])]:
            return rank(candidates)
    named = [e for e in entry_points(TORCH_GROUP) if e.module.partition(".")[0] == f"torch_{pin.name}"]
    is_torchs = named and not pin.distribution and f"accel-{pin.name}" not in OURS
    return tuple(c for c in builtin_candidates() if is_torchs and c.name == GENERIC.name)


def _loaded(plugins: Sequence[Provenance], settings: Settings, load: Load) -> list[Judged]:
    """Load the plugins' declarations; one that is blocked by policy is listed without being imported."""
    left = [e for e in plugins if _may_be_loaded(e, settings)]
    blocked = Outcome(Status.BLOCKED, "blocked by policy; the plugin was not loaded")
    refused = [unloaded(e, blocked) for e in plugins if e not in left]
    return [*refused, *(candidate for candidates in load(left) for candidate in candidates)]


def _may_be_loaded(entry_point: Provenance, settings: Settings) -> bool:
    """Whether the policy leaves the plugin, as far as its entry point and its distribution tell.

    A name with a distribution in `ACCEL_ALLOW` allows that distribution to be imported, whatever its entry
    points are called; what it declares is judged by the policy again.
    """
    name, distribution = name_of(entry_point), normalize_distribution(entry_point.distribution)
    blocked = any(pin.matches(name, distribution) for pin in settings.block)
    named = any(pin.matches(name, distribution) or pin.distribution == distribution for pin in settings.allow)
    return not blocked and (named or not settings.allow)


def installed_names() -> list[str]:
    """Return the names of all installed backends, from metadata only."""
    names = [clean(e.name.lower()) for e in entry_points(ENTRY_POINT_GROUP) if e.name]
    return [*dict.fromkeys(sorted(names)), GENERIC.name, CPU.name]


def declarers(name: str) -> set[str]:
    """The distributions whose entry point has that name, read from metadata alone."""
    return {e.distribution for e in entry_points(ENTRY_POINT_GROUP) if e.name.lower() == name}


def builtin_candidates() -> tuple[Candidate, ...]:
    """The backends that accel_core brings itself: the CPU, and any accelerator torch reports."""
    ours = Provenance("accel-core", __version__)
    return tuple(Candidate(backend._declared_by(ours)) for backend in (CPU, GENERIC))


def rank(candidates: Iterable[Judged]) -> Candidates:
    """Return the sort key of a backend: priority, highest first, then name, then distribution.

    A backend that takes over another device's torch namespace comes before all backends of that device type,
    whatever their priority: otherwise the other backend would look usable.
    """
    items = list(candidates)
    declared = [(c, c.backend.device_type) for c in items if isinstance(c, Candidate)]

    def key(candidate: Judged) -> tuple[object, ...]:
        taken = candidate.backend.in_torch.impersonates if isinstance(candidate, Candidate) else ""
        behind = [c.priority for c, kind in declared if taken and kind == taken and c is not candidate]
        return (
            -max([candidate.priority, *behind]),
            not behind,
            -candidate.priority,
            candidate.builtin and candidate.name == CPU.name,
            candidate.name,
            normalize_distribution(candidate.distribution),
            candidate.provenance,
        )

    return Found(sorted(items, key=key))


# --- Declarations --------------------------------------------------------------------------------------


def load_plugin(entry_point: Provenance) -> Candidates:
    """Import one plugin's module and read its declarations; a failure comes back as `Unloaded`."""
    try:
        with quiet(), restoring(entry_point):
            if not entry_point.module:
                raise InvalidBackendError("the entry point's value names no module, expected 'accel_npu'")
            plugin = imported(entry_point)
            announce(f"accel_backends() of {entry_point}")
            unique = {(b.name, b.priority): b._declared_by(entry_point) for b in declarations(plugin)}
            return tuple(map(Candidate, unique.values()))
    except CAUGHT as error:
        return (unloaded(entry_point, failure(entry_point, error)),)


def imported(entry_point: Provenance) -> Any:
    """The plugin's module, imported now unless it was; raises whatever its import raises."""
    if entry_point.module not in sys.modules:
        announce(f"importing {clean(entry_point.value)}, the plugin of {entry_point}")
    with quiet():
        return entry_point.load()


def name_of(entry_point: Provenance) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return clean(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def declarations(plugin: object) -> list[Backend]:
    """The backends that `plugin` declares; raises `InvalidBackendError` for none, or for anything else."""
    import pluggy

    # Without our hooks' specifications, by which pluggy takes all hooks of a plugin or none.
    reader = pluggy.PluginManager(PROJECT)
    reader.register(plugin)
    hook = getattr(reader.hook, "accel_backends", None)
    declared = [each for found in hook.get_hookimpls() for each in _checked(found.function())] if hook else []
    if not declared:
        raise InvalidBackendError(
            "the plugin declares no backend: expected a function accel_backends() with @accel_core.hookimpl "
            "that returns one, or several"
        )
    return declared


def _checked(declared: object) -> list[Backend]:
    several = isinstance(declared, Sequence) and not isinstance(declared, str)
    items: list[Any] = list(declared) if several else [declared]  # type: ignore[call-overload]
    if others := [item for item in items if not isinstance(item, Backend)]:
        raise InvalidBackendError(
            f"accel_backends() returned {shown(others[0])} ({type(others[0]).__name__}), "
            "expected accel_core.Backend or a sequence of them"
        )
    return items


# --- Failures ------------------------------------------------------------------------------------------


def unloaded(entry_point: Provenance, outcome: Outcome) -> Unloaded:
    """The plugin whose declarations cannot be read, and why."""
    return Unloaded(name_of(entry_point), entry_point, outcome)


def failure(entry_point: Provenance, error: BaseException) -> Outcome:
    """Return the outcome for an `error` that loading the plugin raised.

    An exception of the program's own signal handler is raised again.
    """
    raise_if_users(error)
    at = f"entry point {entry_point.name} = {entry_point.value!r}"
    name, hint = entry_point.distribution, getattr(error, "hint", "")
    if isinstance(error, InvalidBackendError):
        hint = hint or f"report this to the maintainers of {name}"
        return Outcome(Status.INVALID, f"{error} ({at})", hint, error=error)
    hint = hint or f"pip install --force-reinstall {name}, or pip uninstall it"
    reason = f"the plugin failed to load: {root_cause(error)} ({at})"
    return unfit(name, error, at) or Outcome(Status.BROKEN, reason, hint, error=error)


def unfit(distribution: str, error: BaseException, at: str) -> Outcome | None:
    """Return the outcome for a plugin that was written for another accel-core; `None` for any other error.

    Such a plugin uses a name, a hook or a hook's argument that this accel_core does not have.
    """
    first: Any = root(error)
    module = str(first.name).partition(".")[0] if isinstance(first, ImportError) else ""
    attribute = isinstance(first, AttributeError) and first.obj is sys.modules["accel_core"]
    if module == "accel_core" or attribute or is_unknown_field(first):
        reason = f"it needs another accel-core than {__version__}: {root_cause(error)} ({at})"
        return Outcome(Status.INCOMPATIBLE, reason, "pip install --upgrade accel-core", error=error)
    from pluggy import PluginValidationError

    if not isinstance(error, PluginValidationError):
        return None
    hint = f"pip install --upgrade {distribution} accel-core"
    return Outcome(Status.INVALID, f"a hook does not fit: {root_cause(error)}", hint, error=error)


# --- Hooks ---------------------------------------------------------------------------------------------


@functools.cache
def _hooks(plugin: object) -> Any:
    """The hooks of one plugin: a manager each, so that a plugin that raises does not end the others' turn.

    Raises pluggy's `PluginValidationError` for a plugin that does not fit our hooks.
    """
    import pluggy

    from accel_core import hookspecs

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    manager.check_pending()
    return manager.hook


def caller(plugin: Provenance, hook: str) -> Any:
    """The caller of `hook` for this plugin alone; imports the plugin, which may raise anything."""
    return getattr(_hooks(imported(plugin)), hook)


def ask(plugin: Provenance, hook: str, **arguments: object) -> Any:
    """Return what one plugin answers: of a `firstresult` hook its answer or `None`, else a list.

    Raises what the plugin's import and its hook raise.
    """
    return caller(plugin, hook)(**arguments)
