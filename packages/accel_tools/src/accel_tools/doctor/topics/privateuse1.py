"""torch's one PrivateUse1 slot: which packages want it, which gets it, and which cannot work then.

The first package that renames the slot has it for the life of the process; PyTorch rejects a second one. So
this topic predicts it without importing anything: from declarations, installed packages, and what torch's
autoload loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_core import Provenance, Verdict, builtin
from accel_core.checks import installed_imports
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor import unannounced
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC"]


def _examine(visit: Visit) -> Iterator[Finding]:
    yield from _unannounced(visit)
    wanting = [
        c
        for c in visit.declared()
        if c.declaration.torch_integration.private_use1
        and installed_imports(c.declaration)
    ]
    loaded = builtin.autoload_packages()
    names = list(dict.fromkeys(c.name for c in wanting))
    facts = {f"{c.name} ({c.provenance})": f"through {_vendor(c)}" for c in wanting}
    facts |= {
        f"{e.distribution} {e.version}": f"torch loads it: {e.value}"
        for e in loaded
        if not _owner(e, wanting)
    }
    if not names:
        yield Finding(
            Level.OK,
            "privateuse1.unwanted",
            "no installed backend wants the slot",
            facts=facts,
        )
        return
    chosen = _chosen(visit)
    winner = next((c for c in wanting if c.name == chosen), None)
    if winner is None:
        gets = f"{chosen or 'nothing'} is chosen, so the slot stays free"
    else:
        gets = f"{winner.name} ({winner.provenance}), which is chosen, gets it"
    if len(names) == 1:
        yield Finding(
            Level.OK,
            "privateuse1.one",
            f"{names[0]} alone wants the slot; {gets}",
            about=names[0],
            facts=facts,
        )
    else:
        left_out = [name for name in names if winner is None or name != winner.name]
        yield Finding(
            Level.WARNING,
            "privateuse1.several",
            f"{_and(names)} want torch's one slot; {gets}; a process can use only one of them",
            f"DS_ACCELERATOR={left_out[0]} chooses the other one, in another process; or uninstall the one "
            "that you do not use",
            facts=facts,
        )
    if visit.environ.get(AUTOLOAD, "1") == "1":  # as torch reads it
        yield from _first_of_torch(winner, wanting, loaded)


def _unannounced(visit: Visit) -> Iterator[Finding]:
    """Packages that register a device when they are imported, of which neither torch nor a plugin tells."""
    claimed = {
        m.partition(".")[0]
        for c in visit.declared()
        for m in c.declaration.vendor_imports
    }
    for package in unannounced.found(claimed):
        what = f"{package.told} ({package.file}), but neither torch nor a plugin imports it"
        step = (
            f"import {package.module} before the accelerator is chosen, try `accel --import {package.module} "
            "list`, or write its plugin: accel new"
        )
        if package.device_type:
            what = package.told
            step = (
                f"write its plugin: accel new {package.device_type} --no-private-use1"
            )
        yield Finding(
            Level.WARNING, "privateuse1.unannounced", what, step, package.module
        )


def _first_of_torch(
    winner: Verdict | None, wanting: Sequence[Verdict], loaded: Sequence[Provenance]
) -> Iterator[Finding]:
    """Yield which package takes the slot in a program that imports torch first, if a plugin claims it."""
    first = next((e for e in loaded if _owner(e, wanting)), None)
    if winner is None or first is None or _owner(first, wanting) is winner:
        return
    yield Finding(
        Level.WARNING,
        "privateuse1.autoload",
        f"if a program imports torch before accel_core, {first.distribution} {first.version}, which torch "
        f"loads first, takes the slot, and {winner.name} fails",
        f"export {AUTOLOAD}=0, or pip uninstall {first.distribution}",
        winner.name,
    )


def _owner(package: Provenance, wanting: Sequence[Verdict]) -> Verdict | None:
    """The candidate whose vendor's package torch loads so."""
    top = package.module.partition(".")[0]
    tops = (
        (c, [m.partition(".")[0] for m in c.declaration.vendor_imports])
        for c in wanting
    )
    return next((candidate for candidate, modules in tops if top in modules), None)


def _vendor(candidate: Verdict) -> str:
    return ", ".join(installed_imports(candidate.declaration))


def _chosen(visit: Visit) -> str:
    selection = visit.survey().selection
    return (selection.name if selection else "") or ""


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


TOPIC = Topic("privateuse1", "PrivateUse1", _examine)
