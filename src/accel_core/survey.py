"""Every verdict at once, as commands show them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from accel_core import hardware
from accel_core.checks import can_be_broken
from accel_core.hardware.vendors import missing_plugins
from accel_core.plugins import Load, find_backends
from accel_core.probe import Prober
from accel_core.sandbox import child
from accel_core.select import backends_of_pin, loader, rivals_of, select
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Selection, Status, Verdict, Why


@dataclass(frozen=True)
class Survey:
    """Every backend with its verdict, and the choice."""

    #: In rank order; they do not depend on `DS_ACCELERATOR`.
    verdicts: tuple[Verdict, ...]
    #: What `get_accelerator()` comes to; `None` if nothing was probed.
    selection: Selection | None
    #: Hardware without an installed plugin, each with the command to run.
    missing_plugins: tuple[str, ...]
    #: What the one pin of the settings means; empty if there is none, or several.
    pinned: tuple[Verdict, ...]


def survey(
    settings: Settings, *, probing: bool = True, load: Load | None = None
) -> Survey:
    """Probe every backend, as many in parallel as there are cores.

    Each probe runs in a child process within the settings' timeout, so this process
    imports neither torch nor a vendor's package. Without `probing`, only the plugins'
    declarations are read: a backend that passes the checks is `not_probed`, and the
    choice is unknown. `load` is a loader that may have read declarations before.
    """
    load = load or loader(settings, isolated=True)
    prober = Prober(settings, isolated=True)
    backends = find_backends(None, settings, load)
    find = partial(_find_or_reuse, backends=backends, settings=settings, load=load)
    verdicts = [_verdict_without_probe(v, backends, settings, prober) for v in backends]
    missing = missing_plugins(v.name for v in backends)
    is_single_pin = len(settings.pins) == 1
    pinned = backends_of_pin(settings.pins[0], settings, find) if is_single_pin else ()
    if not probing:
        return Survey(tuple(verdicts), None, missing, pinned)
    _probe_undecided(verdicts, backends, prober)
    selection = select(settings, find=find, prober=prober)
    return Survey(tuple(verdicts), selection, missing, pinned)


def _find_or_reuse(
    pin: Pin | None, *, backends: tuple[Verdict, ...], settings: Settings, load: Load
) -> tuple[Verdict, ...]:
    return backends if pin is None else find_backends(pin, settings, load)


def _verdict_without_probe(
    verdict: Verdict,
    backends: tuple[Verdict, ...],
    settings: Settings,
    prober: Prober,
) -> Verdict:
    """Return the verdict that needs no probe."""
    rivals = rivals_of(verdict, backends, settings)
    if rivals:
        why = Why(Reason.CONFLICT, {"rivals": rivals})
        return replace(verdict, status=Status.CONFLICT, why=why)
    return prober.check(verdict, Why(Reason.NOT_ASKED))


def _probe_undecided(
    verdicts: list[Verdict], backends: tuple[Verdict, ...], prober: Prober
) -> None:
    """Probe the backends whose verdict is not final, and replace those verdicts."""
    indices = [
        index
        for index, verdict in enumerate(verdicts)
        if verdict.status is Status.NOT_PROBED or can_be_broken(verdict)
    ]
    if not indices:
        return

    def probe(index: int) -> Verdict:
        return prober.probe(backends[index], backends)

    probed = child.run_in_parallel(probe, indices, hardware.usable_cores())
    for index, verdict in zip(indices, probed, strict=True):
        verdicts[index] = verdict
