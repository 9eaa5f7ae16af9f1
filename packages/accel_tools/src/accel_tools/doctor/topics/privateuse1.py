"""Report which packages claim torch's only PrivateUse1 slot, and which package gets the slot.

The first package that renames the slot keeps it until the process ends; PyTorch rejects a
second package. This topic predicts the result without imports, from declarations, installed
packages, and the packages that torch's autoload loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_core import Provenance, Verdict, builtin
from accel_core.checks import installed_imports
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor import unregistered
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.unregistered import UnregisteredPackage

__all__ = ["TOPIC"]


def _examine_slot(context: DiagnosticContext) -> Iterator[Finding]:
    yield from _unregistered_package_findings(context)
    claimants = [
        verdict for verdict in context.examined_candidates() if _claims_slot(verdict)
    ]
    autoloaded = builtin.autoload_packages()
    facts = _describe_claimants(claimants, autoloaded)
    if not claimants:
        what = "no installed backend claims the slot"
        yield Finding(Level.OK, "privateuse1.unwanted", what, facts=facts)
        return
    chosen = _chosen_name(context)
    yield _claimants_finding(chosen, claimants)._replace(facts=facts)
    if context.environ.get(AUTOLOAD, "1") == "1":
        for winner in claimants:
            if winner.name == chosen:
                yield from _autoload_conflict_findings(winner, claimants, autoloaded)
                return


def _claimants_finding(chosen: str, claimants: Sequence[Verdict]) -> Finding:
    """Return the finding on the backends that claim the slot, and on the backend that gets it."""
    outcome = f"{chosen or 'nothing'} is chosen, so the slot stays free"
    for verdict in claimants:
        if verdict.name == chosen:
            outcome = f"{chosen} ({verdict.provenance}) gets the slot, because {chosen} is chosen"
            break
    names = list(dict.fromkeys(verdict.name for verdict in claimants))
    if len(names) == 1:
        what = f"only {names[0]} claims the slot; {outcome}"
        return Finding(Level.OK, "privateuse1.one", what, about=names[0])
    what = (
        f"{_join_names(names)} claim torch's only slot; {outcome}; "
        "a process can use only one of these backends"
    )
    others = [name for name in names if name != chosen]
    step = (
        f"DS_ACCELERATOR={others[0]} selects {others[0]} in a separate process; "
        "or uninstall the package that you do not use"
    )
    return Finding(Level.WARNING, "privateuse1.several", what, step)


def _claims_slot(verdict: Verdict) -> bool:
    """Return whether the backend needs the slot and its vendor's package is installed."""
    if not verdict.declaration.torch_integration.private_use1:
        return False
    return bool(installed_imports(verdict.declaration))


def _describe_claimants(
    claimants: Sequence[Verdict], autoloaded: Sequence[Provenance]
) -> dict[str, str]:
    """Return the modules of each backend that claims the slot, and other packages that torch loads."""
    facts = {}
    for verdict in claimants:
        modules = ", ".join(installed_imports(verdict.declaration))
        facts[f"{verdict.name} ({verdict.provenance})"] = f"through {modules}"
    for package in autoloaded:
        if _claimant_of(package, claimants) is None:
            facts[f"{package.distribution} {package.version}"] = (
                f"torch loads it: {package.value}"
            )
    return facts


def _claimant_of(package: Provenance, claimants: Sequence[Verdict]) -> Verdict | None:
    """Return the backend whose vendor's package is `package`, or `None`."""
    top = package.module.partition(".")[0]
    for verdict in claimants:
        modules = verdict.declaration.vendor_imports
        if top in [module.partition(".")[0] for module in modules]:
            return verdict
    return None


def _chosen_name(context: DiagnosticContext) -> str:
    selection = context.survey().selection
    return (selection.name or "") if selection else ""


def _autoload_conflict_findings(
    winner: Verdict, claimants: Sequence[Verdict], autoloaded: Sequence[Provenance]
) -> Iterator[Finding]:
    """Yield a finding if a different package takes the slot in a program that imports torch first."""
    for package in autoloaded:
        claimant = _claimant_of(package, claimants)
        if claimant is winner:
            return
        if claimant is not None:
            what = (
                "if a program imports torch before accel_core, "
                f"{package.distribution} {package.version}, which torch loads first, "
                f"takes the slot, and {winner.name} fails"
            )
            step = f"export {AUTOLOAD}=0, or pip uninstall {package.distribution}"
            code = "privateuse1.autoload"
            yield Finding(Level.WARNING, code, what, step, winner.name)
            return


def _unregistered_package_findings(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding on each package that registers a device, but is not imported by torch or a plugin."""
    claimed = set()
    for verdict in context.examined_candidates():
        for module in verdict.declaration.vendor_imports:
            claimed.add(module.partition(".")[0])
    for package in unregistered.find_unregistered_packages(claimed):
        what, step = _describe_unregistered(package)
        code = "privateuse1.no-entry-point"
        yield Finding(Level.WARNING, code, what, step, package.module)


def _describe_unregistered(package: UnregisteredPackage) -> tuple[str, str]:
    """Return the problem with a package that is not imported, and the next step."""
    if package.device_type:
        step = f"write its plugin: accel new {package.device_type} --no-private-use1"
        return package.description, step
    what = f"{package.description} ({package.file}), but neither torch nor a plugin imports it"
    step = (
        f"import {package.module} before the accelerator is chosen, try "
        f"`accel --import {package.module} list`, or write its plugin: accel new"
    )
    return what, step


def _join_names(names: Sequence[str]) -> str:
    """Return the names as text, such as `"a, b and c"`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


TOPIC = Topic("privateuse1", "PrivateUse1", _examine_slot)
