"""Choose one backend.

This module does not look at the machine itself: a `Prober` probes backends on request.
A ranked choice probes the backends in rank order and stops at the first usable one, so
no lower-ranking backend is imported. A pinned choice probes only the pinned backends.
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
from accel_core.plugins import (
    Load,
    find_backends,
    load_plugins,
    verdict_with_error,
)
from accel_core.probe import Prober
from accel_core.settings import VARIABLES, Pin, Settings, read
from accel_core.torch_import import FREE_SLOT
from accel_core.verdict import How, Note, Reason, Selection, Status, Verdict, Why

if TYPE_CHECKING:
    from accel_core.interface import Accelerator

#: A function that returns the unprobed backends that a pin selects, or all backends for
#: the pin `None`.
Find = Callable[[Pin | None], "tuple[Verdict, ...]"]


def discover(*, isolated: bool = False) -> tuple[Verdict, ...]:
    """Return all built-in and installed backends in rank order, without probing them.

    This imports each plugin's module. A plugin that `ACCEL_ALLOW` or `ACCEL_BLOCK`
    excludes is not imported: its verdict has the entry point's name and no declaration.
    With `isolated`, or `ACCEL_PROBE=isolated`, a child process imports the modules.
    This process then imports a plugin only to call one of its hooks. Raises
    `SettingError` for an invalid setting.
    """
    settings = read()
    return find_backends(None, settings, loader(settings, isolated=isolated))


def loader(settings: Settings, *, isolated: bool = False) -> Load:
    """Return the function that loads plugins' declarations. It uses child processes
    with `isolated` or `ACCEL_PROBE=isolated`.
    """
    if isolated or settings.isolated:
        return IsolatedLoader(settings.probe_timeout)
    return load_plugins


def select(
    settings: Settings,
    *,
    isolated: bool = False,
    find: Find | None = None,
    prober: Prober | None = None,
    built: Mapping[Backend, Accelerator] = MappingProxyType({}),
) -> Selection:
    """Choose a backend according to `settings`, and return a record of the choice. The
    record has an error if the choice failed.

    `find` and `prober` replace the default discovery and probing. With `isolated`,
    plugins and vendors' packages are imported in child processes only. Otherwise the
    chosen verdict contains the accelerator, which is one of `built` or a new one.
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
        selection = _fail_if_unknown(selection, settings)
    selection = replace(
        selection,
        notes=_setting_notes(settings, selection),
        pid=os.getpid(),
        environ=_relevant_variables(selection.verdicts),
        ms=(time.perf_counter() - start) * 1e3,
    )
    chosen = selection.name or "nothing"
    LOGGER.info("choose %s, after %.1f ms", chosen, selection.ms)
    return selection


def _fail_if_unknown(selection: Selection, settings: Settings) -> Selection:
    """Turn the selection into a failed choice if a command cannot predict what a
    program would choose.

    A backend that timed out may respond in time in a program. A backend that crashes
    would end the program before the next backend is probed.
    """
    if len(settings.pins) == 1:
        return selection
    timed_out = [v for v in selection.verdicts if v.status is Status.TIMED_OUT]
    fatal = []
    if not settings.isolated:  # Otherwise the program probes in child processes too.
        fatal = [v for v in selection.verdicts if v.fatal]
    if not timed_out and not fatal:
        return selection
    from accel_core.explain import messages

    message = messages.unknown_choice_message([*timed_out, *fatal])
    error = errors.BackendUnavailableError(message)
    return replace(selection, chosen=None, error=error)


def _setting_notes(settings: Settings, selection: Selection) -> tuple[Note, ...]:
    """Return notes for the user about settings that are probably mistakes."""
    chosen = selection.chosen
    lacks_device = chosen is not None and chosen.devices == 0
    may_have_misspelling = settings.misspelt or settings.allow or settings.block
    if not may_have_misspelling and not lacks_device:
        return ()
    from accel_core.explain.notes import setting_notes

    return setting_notes(settings, selection)


def _relevant_variables(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the environment variables that can affect the choice."""
    names = {variable.name for variable in VARIABLES}
    for verdict in verdicts:
        if verdict.backend is not None:
            visibility = verdict.backend.visibility
            names.update(visibility.filters, visibility.variables)
    names.update(name for name in os.environ if name.startswith("ACCEL_"))
    return {name: value for name, value in os.environ.items() if name in names}


# --- By rank ----------------------------------------------------------------------------


def _choose_ranked(settings: Settings, find: Find, prober: Prober) -> Selection:
    backends = find(None)  # Without a pin, these are all backends.
    verdicts: list[Verdict] = []
    chosen: Verdict | None = None
    for backend in backends:
        rivals = rivals_of(backend, backends, settings)
        if rivals:
            verdicts.append(_conflict_verdict(backend, rivals))
        elif chosen is not None:
            why = Why(Reason.OUTRANKED, {"by": chosen.name})
            verdicts.append(prober.check(backend, why))
        else:
            result = prober.probe(backend, backends)
            result = with_slot_conflict(result, verdicts, backends)
            verdicts.append(result)
            if result.usable:
                chosen = result
    is_fallback = chosen is not None and chosen.name == builtin.CPU.name
    how = How.FALLBACK if is_fallback else How.RANKED
    selection = Selection(chosen, how, tuple(verdicts))
    if chosen is None:
        return _fail_without_backend(selection)
    if is_fallback:
        missing = missing_plugins(backend.name for backend in backends)
        selection = replace(selection, missing_plugins=missing)
        return _fail_if_cpu_is_refused(selection, settings)
    return selection


def _fail_without_backend(selection: Selection) -> Selection:
    from accel_core.explain import messages

    message = messages.nothing_usable_message(selection.verdicts)
    return replace(selection, error=errors.BackendUnavailableError(message))


def _fail_if_cpu_is_refused(selection: Selection, settings: Settings) -> Selection:
    """Turn the selection into a failed choice if `ACCEL_STRICT` forbids the CPU
    fallback.
    """
    verdicts, missing = selection.verdicts, selection.missing_plugins
    needs_attention = bool(missing) or any(v.needs_attention for v in verdicts)
    if settings.strict == "always":
        is_refused = True
    else:
        is_refused = bool(settings.strict) and needs_attention
    if not is_refused:
        return selection
    from accel_core.explain import messages

    message = messages.cpu_refused_message(settings, verdicts, missing)
    error = errors.BackendUnavailableError(message)
    return replace(selection, chosen=None, error=error)


def rivals_of(
    verdict: Verdict, among: Sequence[Verdict], settings: Settings
) -> list[str]:
    """Return the other permitted distributions that declare the backend of `verdict`.

    If there are rivals, none of the distributions is used. Built-in backends have no
    rivals.
    """
    if verdict.builtin or verdict.backend is None:
        return []
    if not settings.permits(verdict.name, verdict.distribution):
        return []
    own_distribution = normalize_distribution(verdict.distribution)
    rivals = set()
    for other in among:
        if other.name != verdict.name or other.backend is None:
            continue
        distribution = normalize_distribution(other.distribution)
        is_permitted = settings.permits(other.name, distribution)
        if is_permitted and distribution != own_distribution:
            rivals.add(str(other.provenance))
    return sorted(rivals)


def _conflict_verdict(verdict: Verdict, rivals: list[str]) -> Verdict:
    why = Why(Reason.CONFLICT, {"rivals": rivals})
    return replace(verdict, status=Status.CONFLICT, why=why)


def with_slot_conflict(
    verdict: Verdict, earlier: Sequence[Verdict], among: Sequence[Verdict]
) -> Verdict:
    """Return the verdict on a backend, corrected for a conflict over torch's PrivateUse1 slot.

    A command probes each backend in a separate process, but a program probes all of
    them in one. There, the package of a backend that was probed `earlier` keeps the
    slot, even if its device cannot be used.
    """
    backend = verdict.backend
    if not verdict.slot or backend is None or not builtin.may_use_private_use1(backend):
        return verdict
    # With these values of `slot`, this backend can still use the slot.
    not_taken = ("", FREE_SLOT, backend.device_type)
    holders = [other.slot for other in earlier if other.slot not in not_taken]
    if not holders:
        return verdict
    first_holder = holders[0]
    other_backends = Group(tuple(among)).others_than(verdict)
    error = builtin.slot_taken_error(backend, other_backends, first_holder)
    why = Why(Reason.UNAVAILABLE, {"text": str(error), "step": error.hint})
    broken = replace(verdict, status=Status.BROKEN, why=why, devices=None)
    return verdict_with_error(broken, error)


# --- By pin -----------------------------------------------------------------------------


@dataclass
class _Search:
    """The state of a choice among pins."""

    verdicts: list[Verdict] = field(default_factory=list)
    chosen: Verdict | None = None
    error: errors.AccelError | None = None


def _choose_pinned(settings: Settings, find: Find, prober: Prober) -> Selection:
    """Choose the pinned backend or, of several pins, the first usable backend."""
    is_single = len(settings.pins) == 1
    search = _Search()
    for pin in settings.pins:
        _try_pin(search, pin, settings, find, prober)
        if search.chosen is not None or search.error is not None:
            break
    if search.chosen is None and search.error is None:
        search.error = _no_pin_usable_error(search.verdicts, settings, find, prober)
    how = How.PINNED if is_single else How.PREFERRED
    return Selection(search.chosen, how, tuple(search.verdicts), search.error)


def _try_pin(
    search: _Search, pin: Pin, settings: Settings, find: Find, prober: Prober
) -> None:
    """Probe the backends that one pin selects, and record the result in `search`."""
    matching = backends_of_pin(pin, settings, find)
    if not matching:
        _record_unknown_pin(search, pin, settings, find, prober)
        return
    distributions = {normalize_distribution(v.distribution) for v in matching}
    if len(distributions) > 1:
        from accel_core.explain import messages

        message = messages.conflict_message(settings.request, pin, matching)
        search.error = errors.BackendConflictError(message)
        return
    is_single = len(settings.pins) == 1
    for backend in matching:
        result = prober.probe(backend, matching, pinned=is_single)
        result = with_slot_conflict(result, search.verdicts, search.verdicts)
        search.verdicts.append(result)
        if result.usable:
            search.chosen = result
            return


def _record_unknown_pin(
    search: _Search, pin: Pin, settings: Settings, find: Find, prober: Prober
) -> None:
    """Record that no backend matches the pin, which is an error if there is no other pin."""
    from accel_core.explain import messages

    search.verdicts.append(messages.not_declared_verdict(pin))
    if len(settings.pins) == 1:
        can_pin_cpu = _can_pin_cpu(settings, find, prober)
        message = messages.not_found_message(
            settings.request, pin, can_pin_cpu=can_pin_cpu
        )
        search.error = errors.BackendNotFoundError(message)


def backends_of_pin(pin: Pin, settings: Settings, find: Find) -> tuple[Verdict, ...]:
    """Return the backends that a pin selects, without the blocked backends.

    If all of them are blocked, all are returned, and their verdicts report that they
    are blocked.
    """
    matching = find(pin)
    permitted = tuple(v for v in matching if settings.permits(v.name, v.distribution))
    if permitted == matching or not permitted:
        return matching
    if len(permitted) > 1:
        return permitted
    # For a name that two distributions declare, `find` imports neither plugin. With the
    # distribution in the pin, it imports the plugin and reads the declaration.
    only = permitted[0]
    return find(Pin(only.name, normalize_distribution(only.distribution)))


def _no_pin_usable_error(
    verdicts: Sequence[Verdict], settings: Settings, find: Find, prober: Prober
) -> errors.AccelError:
    from accel_core.explain import messages

    can_pin_cpu = _can_pin_cpu(settings, find, prober)
    message = messages.no_pin_usable_message(
        settings, verdicts, can_pin_cpu=can_pin_cpu
    )
    error = errors.BackendUnavailableError(message)
    for verdict in verdicts:
        if verdict.error is not None:
            error.__cause__ = verdict.error
            break
    return error


def _can_pin_cpu(settings: Settings, find: Find, prober: Prober) -> bool:
    """Return whether the user could set `DS_ACCELERATOR` to the CPU instead.

    A call or command with a backend's name ignores that variable.
    """
    if not settings.is_pinned_by_variable:
        return False
    for cpu in find(Pin(builtin.CPU.name)):
        checked = prober.check(cpu, Why(Reason.NOT_ASKED))
        if checked.status is Status.NOT_PROBED:  # No check excludes the CPU.
            return True
    return False
