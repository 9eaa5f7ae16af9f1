"""Collect the verdicts on all backends for commands to show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from accel_core import hardware
from accel_core.checks import may_have_broken_package
from accel_core.hardware.vendors import missing_plugins
from accel_core.plugins import Load, find_backends
from accel_core.probe import Prober
from accel_core.sandbox import child
from accel_core.select import backends_of_pin, loader, rivals_of, select
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Selection, Status, Verdict, Why


@dataclass(frozen=True)
class Survey:
    """The verdicts on all backends, and the choice among them."""

    #: The verdicts in rank order. They do not depend on `DS_ACCELERATOR`.
    verdicts: tuple[Verdict, ...]
    #: The choice that `get_accelerator()` would make, or `None` if nothing was probed.
    selection: Selection | None
    #: A line for each device without an installed plugin, with the command to install
    #: the plugin.
    missing_plugins: tuple[str, ...]
    #: The backends that the only pin of the settings selects, or an empty tuple if the
    #: settings have no pin or several pins.
    pinned: tuple[Verdict, ...]


def survey(
    settings: Settings, *, probing: bool = True, load: Load | None = None
) -> Survey:
    """Probe every backend, with as many probes in parallel as there are usable CPU cores.

    Each probe runs in a child process within the timeout in `settings`, so this process
    imports neither torch nor a vendor's package. Without `probing`, only the plugins'
    declarations are read: a backend that passes the checks is `not_probed`, and the
    choice is unknown. `load` replaces the default loader; pass a loader that has read
    the declarations before to save time.
    """
    if load is None:
        load = loader(settings, isolated=True)
    prober = Prober(settings, isolated=True)
    backends = find_backends(None, settings, load)
    find = partial(_find_or_reuse, backends=backends, settings=settings, load=load)
    verdicts = [_verdict_without_probe(v, backends, settings, prober) for v in backends]
    missing = missing_plugins(v.name for v in backends)
    pinned: tuple[Verdict, ...] = ()
    if len(settings.pins) == 1:
        pinned = backends_of_pin(settings.pins[0], settings, find)
    if not probing:
        return Survey(tuple(verdicts), None, missing, pinned)
    _probe_undecided(verdicts, backends, prober)
    selection = select(settings, find=find, prober=prober)
    return Survey(tuple(verdicts), selection, missing, pinned)


def _find_or_reuse(
    pin: Pin | None, *, backends: tuple[Verdict, ...], settings: Settings, load: Load
) -> tuple[Verdict, ...]:
    """Return `backends` if there is no pin, because they are found already."""
    if pin is None:
        return backends
    return find_backends(pin, settings, load)


def _verdict_without_probe(
    verdict: Verdict,
    backends: tuple[Verdict, ...],
    settings: Settings,
    prober: Prober,
) -> Verdict:
    """Return the verdict that the backend has before it is probed."""
    rivals = rivals_of(verdict, backends, settings)
    if rivals:
        why = Why(Reason.CONFLICT, {"rivals": rivals})
        return replace(verdict, status=Status.CONFLICT, why=why)
    return prober.check(verdict, Why(Reason.NOT_ASKED))


def _probe_undecided(
    verdicts: list[Verdict], backends: tuple[Verdict, ...], prober: Prober
) -> None:
    """Probe the backends whose verdict is not final, and replace those verdicts."""
    indices = []
    for index, verdict in enumerate(verdicts):
        is_unprobed = verdict.status is Status.NOT_PROBED
        if is_unprobed or may_have_broken_package(verdict):
            indices.append(index)
    if not indices:
        return

    def probe(index: int) -> Verdict:
        return prober.probe(backends[index], backends)

    probed = child.run_in_parallel(probe, indices, hardware.usable_cores())
    for index, verdict in zip(indices, probed, strict=True):
        verdicts[index] = verdict
