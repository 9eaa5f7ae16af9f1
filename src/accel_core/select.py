"""The one decision: which backend is chosen.

Nothing here looks at the machine: a `Prober` probes when it is asked. Ranked choice goes
down the order and stops at the first usable backend, so nothing below it is imported. A pin
looks at what it names and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from accel_core import builtin, errors
from accel_core.backend import Backend
from accel_core.build import Group
from accel_core.hardware.vendors import missing_plugins
from accel_core.isolation import IsolatedLoader
from accel_core.log import LOGGER
from accel_core.packages import normalize_distribution
from accel_core.plugins import Load, find_backends, load_here, with_error
from accel_core.probe import Prober
from accel_core.settings import VARIABLES, Pin, Settings, read
from accel_core.torch_import import FREE_SLOT
from accel_core.verdict import How, Reason, Selection, Status, Verdict, Why

if TYPE_CHECKING:
    from accel_core.interface import Accelerator

#: Returns the backends that a pin means, not probed; `None` for all of them.
Find = Callable[[Pin | None], "tuple[Verdict, ...]"]


def discover(*, isolated: bool = False) -> tuple[Verdict, ...]:
    """Return every built-in or installed backend, not probed, in rank order.

    This imports each plugin's module. A plugin that `ACCEL_ALLOW` or `ACCEL_BLOCK` excludes
    is not imported: its verdict has no declaration, and its entry point's name. With
    `isolated`, or `ACCEL_PROBE=isolated`, a child process imports the modules; this process
    imports a plugin only when one of its hooks is called. Raises `SettingError` for an
    invalid setting.
    """
    settings = read()
    return find_backends(None, settings, loader(settings, isolated=isolated))


def loader(settings: Settings, *, isolated: bool = False) -> Load:
    """Return the reader of declarations: in child processes if asked for, else here."""
    if isolated or settings.isolated:
        return IsolatedLoader(settings.probe_timeout)
    return load_here


def select(
    settings: Settings,
    *,
    isolated: bool = False,
    find: Find | None = None,
    prober: Prober | None = None,
    built: Mapping[Backend, Accelerator] = MappingProxyType({}),
) -> Selection:
    """Choose as `settings` say; a choice that fails has its error, and still its record.

    Without `find` and `prober` it looks for itself; `isolated`: plugins and vendors in
    child processes only. Else the chosen verdict has the accelerator: one of `built`, or
    built now.
    """
    start = time.perf_counter()
    if find is None:
        load = loader(settings, isolated=isolated)
        find = partial(find_backends, settings=settings, load=load)
    if prober is None:
        prober = Prober(settings, isolated=isolated, built=built)
    choose = _choose_pinned if settings.pins else _choose_ranked
    selection = choose(settings, find, prober)
    if prober.isolated:
        selection = _unless_unknown(selection, settings)
    selection = replace(
        selection,
        notes=_notes(settings, selection),
        pid=os.getpid(),
        environ=_environ(selection.verdicts),
        ms=(time.perf_counter() - start) * 1e3,
    )
    chosen = selection.name or "nothing"
    LOGGER.info("choose %s, after %.1f ms", chosen, selection.ms)
    return selection


def _unless_unknown(selection: Selection, settings: Settings) -> Selection:
    """Return a failed choice if a command cannot know what a program would choose.

    A program goes on without a backend that does not answer in time, or waits for it. What
    comes after a backend that ends the program is not chosen.
    """
    if len(settings.pins) == 1:
        return selection
    late = [v for v in selection.verdicts if v.status is Status.TIMED_OUT]
    fatal = [v for v in selection.verdicts if v.fatal and not settings.isolated]
    if not (late or fatal):
        return selection
    from accel_core.explain import messages

    message = messages.unknown_choice([*late, *fatal])
    error = errors.BackendUnavailableError(message)
    return replace(selection, chosen=None, error=error)


def _notes(settings: Settings, selection: Selection) -> tuple[str, ...]:
    """Return what a user should know of the settings."""
    chosen = selection.chosen
    is_without_device = chosen is not None and chosen.devices == 0
    has_rules = bool(settings.misspelt or settings.allow or settings.block)
    if not (has_rules or is_without_device):
        return ()
    from accel_core.explain.notes import setting_notes

    return setting_notes(settings, selection)


def _environ(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the variables that mattered, as they are."""
    names = {variable.name for variable in VARIABLES}
    for verdict in verdicts:
        if verdict.backend is not None:
            visibility = verdict.backend.visibility
            names.update(visibility.filters, visibility.variables)
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith("ACCEL_")
    }


# --- By rank ----------------------------------------------------------------------------


def _choose_ranked(settings: Settings, find: Find, prober: Prober) -> Selection:
    backends = find(None)
    verdicts: list[Verdict] = []
    chosen: Verdict | None = None
    for backend in backends:
        rivals = rivals_of(backend, backends, settings)
        if rivals:
            verdicts.append(_conflicting(backend, rivals))
        elif chosen is not None:
            why = Why(Reason.OUTRANKED, {"by": chosen.name})
            verdicts.append(prober.check(backend, why))
        else:
            found = prober.probe(backend, backends)
            verdicts.append(as_in_one_process(found, verdicts, backends))
            if verdicts[-1].usable:
                chosen = verdicts[-1]
    is_fallback = chosen is not None and chosen.name == builtin.CPU.name
    selection = Selection(
        chosen, How.FALLBACK if is_fallback else How.RANKED, tuple(verdicts)
    )
    if chosen is None:
        return _nothing_usable(selection)
    if is_fallback:
        missing = missing_plugins(backend.name for backend in backends)
        selection = replace(selection, missing_plugins=missing)
        return _unless_refused(selection, settings)
    return selection


def _nothing_usable(selection: Selection) -> Selection:
    from accel_core.explain import messages

    message = messages.nothing_usable(selection.verdicts)
    return replace(selection, error=errors.BackendUnavailableError(message))


def _unless_refused(selection: Selection, settings: Settings) -> Selection:
    """Return a failed choice if `ACCEL_STRICT` does not let the CPU be the fallback."""
    verdicts, missing = selection.verdicts, selection.missing_plugins
    must_act = bool(missing) or any(v.needs_attention for v in verdicts)
    is_refused = settings.strict == "always" or (settings.strict and must_act)
    if not is_refused:
        return selection
    from accel_core.explain import messages

    message = messages.refused_cpu(settings, verdicts, missing)
    error = errors.BackendUnavailableError(message)
    return replace(selection, chosen=None, error=error)


def rivals_of(
    verdict: Verdict, among: Sequence[Verdict], settings: Settings
) -> list[str]:
    """Return other distributions that declare the backend and that the policy permits.

    They serve none of them. A built-in name stays built in.
    """
    if verdict.builtin or verdict.backend is None:
        return []
    if not settings.permits(verdict.name, verdict.distribution):
        return []
    own = normalize_distribution(verdict.distribution)
    rivals = {
        str(other.provenance)
        for other in among
        if other.name == verdict.name
        and other.backend is not None
        and normalize_distribution(other.distribution) != own
        and settings.permits(other.name, other.distribution)
    }
    return sorted(rivals)


def _conflicting(verdict: Verdict, rivals: list[str]) -> Verdict:
    why = Why(Reason.CONFLICT, {"rivals": rivals})
    return replace(verdict, status=Status.CONFLICT, why=why)


def as_in_one_process(
    verdict: Verdict, earlier: Sequence[Verdict], among: Sequence[Verdict]
) -> Verdict:
    """Return the verdict that a program comes to, which probes in one process.

    A command probes each backend in a process of its own. The packages that a program has
    imported keep torch's PrivateUse1 slot, though their device cannot be used.
    """
    backend = verdict.backend
    if not verdict.slot or backend is None or not builtin.needs_slot(backend):
        return verdict
    free = ("", FREE_SLOT, backend.device_type)
    holders = [other.slot for other in earlier if other.slot not in free]
    if not holders:
        return verdict
    others = Group(tuple(among)).others_than(verdict)
    error = builtin.slot_is_held(backend, others, holders[0])
    why = Why(Reason.UNAVAILABLE, {"text": str(error), "step": error.hint})
    held = replace(verdict, status=Status.BROKEN, why=why, devices=None)
    return with_error(held, error)


# --- By pin -----------------------------------------------------------------------------


@dataclass
class _Search:
    """The state of a choice among pins."""

    verdicts: list[Verdict] = field(default_factory=list)
    chosen: Verdict | None = None
    error: errors.AccelError | None = None


def _choose_pinned(settings: Settings, find: Find, prober: Prober) -> Selection:
    """Honour one pin, or take the first usable one of several."""
    is_single = len(settings.pins) == 1
    search = _Search()
    for pin in settings.pins:
        _try_pin(search, pin, settings, find, prober)
        if search.chosen is not None or search.error is not None:
            break
    if search.chosen is None and search.error is None:
        search.error = _no_pin_honoured(search.verdicts, settings, find, prober)
    how = How.PINNED if is_single else How.PREFERRED
    return Selection(search.chosen, how, tuple(search.verdicts), search.error)


def _try_pin(
    search: _Search, pin: Pin, settings: Settings, find: Find, prober: Prober
) -> None:
    """Probe what one pin means, and note what comes of it."""
    meant = meant_by(pin, settings, find)
    if not meant:
        _note_unknown_pin(search, pin, settings, find, prober)
        return
    if len({normalize_distribution(v.distribution) for v in meant}) > 1:
        from accel_core.explain import messages

        message = messages.conflict(settings.asked, pin, meant)
        search.error = errors.BackendConflictError(message)
        return
    is_single = len(settings.pins) == 1
    for backend in meant:
        found = prober.probe(backend, meant, pinned=is_single)
        found = as_in_one_process(found, search.verdicts, search.verdicts)
        search.verdicts.append(found)
        if found.usable:
            search.chosen = found
            return


def _note_unknown_pin(
    search: _Search, pin: Pin, settings: Settings, find: Find, prober: Prober
) -> None:
    """Note that nothing is what the pin means; it is an error if it is the only one."""
    from accel_core.explain import messages

    search.verdicts.append(messages.unknown(pin))
    if len(settings.pins) == 1:
        cpu = _is_cpu_usable(find, prober)
        message = messages.not_found(settings.asked, pin, cpu=cpu)
        search.error = errors.BackendNotFoundError(message)


def meant_by(pin: Pin, settings: Settings, find: Find) -> tuple[Verdict, ...]:
    """Return the backends that a pin means, without those that the policy blocks.

    If the policy blocks all of them, they are returned: their verdicts say so.
    """
    meant = find(pin)
    kept = tuple(v for v in meant if settings.permits(v.name, v.distribution))
    if kept == meant or not kept:
        return meant
    if len(kept) > 1:
        return kept
    # Found by its distribution, its declaration is read.
    return find(Pin(kept[0].name, normalize_distribution(kept[0].distribution)))


def _no_pin_honoured(
    verdicts: Sequence[Verdict], settings: Settings, find: Find, prober: Prober
) -> errors.AccelError:
    from accel_core.explain import messages

    cpu = _is_cpu_usable(find, prober)
    message = messages.pin_not_honoured(settings, verdicts, cpu=cpu)
    error = errors.BackendUnavailableError(message)
    for verdict in verdicts:
        if verdict.error is not None:
            error.__cause__ = verdict.error
            break
    return error


def _is_cpu_usable(find: Find, prober: Prober) -> bool:
    """Whether the CPU can be pinned instead of what cannot be used."""
    cpus = find(Pin(builtin.CPU.name))
    checked = [prober.check(cpu, Why(Reason.NOT_ASKED)) for cpu in cpus]
    return any(v.status is Status.NOT_PROBED for v in checked)
