"""Report which packages claim torch's only PrivateUse1 slot, and which package gets the slot.

The first package that renames the slot keeps the slot until the process ends; PyTorch rejects a
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
    claimants = []
    for candidate in context.examined_candidates():
        if _claims_slot(candidate):
            claimants.append(candidate)
    autoloaded = builtin.autoload_packages()
    facts = _describe_claimants(claimants, autoloaded)
    if not claimants:
        what = "no installed backend claims torch's PrivateUse1 slot"
        yield Finding(Level.OK, "privateuse1.unwanted", what, facts=facts)
        return
    winner = _chosen_claimant(context, claimants)
    yield _claimants_finding(context, claimants, winner)._replace(facts=facts)
    is_autoload_on = context.environ.get(AUTOLOAD, "1") == "1"
    if winner is not None and is_autoload_on:
        yield from _autoload_conflict_findings(winner, claimants, autoloaded)


def _chosen_claimant(
    context: DiagnosticContext, claimants: Sequence[Verdict]
) -> Verdict | None:
    """Return the claimant that is chosen, and so gets the slot.

    Returns `None` if no claimant is chosen.
    """
    chosen = _chosen_name(context)
    for claimant in claimants:
        if claimant.name == chosen:
            return claimant
    return None


def _claimants_finding(
    context: DiagnosticContext, claimants: Sequence[Verdict], winner: Verdict | None
) -> Finding:
    """Return the finding about the backends that claim the slot.

    `winner` is the backend that gets the slot, or `None` if the slot stays free.
    """
    chosen = _chosen_name(context)
    if winner is not None:
        outcome = f"{chosen} ({winner.provenance}) gets PrivateUse1, because {chosen} is chosen"
    else:
        outcome = f"{chosen or 'nothing'} is chosen, so PrivateUse1 stays free"
    names = list(dict.fromkeys(claimant.name for claimant in claimants))
    if len(names) == 1:
        what = f"only {names[0]} claims torch's PrivateUse1 slot; {outcome}"
        return Finding(Level.OK, "privateuse1.one", what, about=names[0])
    what = (
        f"{_join_names(names)} claim torch's only PrivateUse1 slot; {outcome}; "
        "a process can use only one of these backends"
    )
    other = names[0] if names[0] != chosen else names[1]
    step = (
        f"use {other} in a separate process (export DS_ACCELERATOR={other}), "
        "or uninstall the package that you do not use"
    )
    return Finding(Level.WARNING, "privateuse1.several", what, step)


def _claims_slot(candidate: Verdict) -> bool:
    """Return whether the backend needs the slot, and its vendor package is installed."""
    needs_slot = candidate.declaration.torch_integration.private_use1
    is_vendor_package_installed = bool(installed_imports(candidate.declaration))
    return needs_slot and is_vendor_package_installed


def _describe_claimants(
    claimants: Sequence[Verdict], autoloaded: Sequence[Provenance]
) -> dict[str, str]:
    """Return facts about each backend that claims the slot, and about other packages that torch loads.

    The facts are texts by the name of the backend or the distribution.
    """
    facts = {}
    for claimant in claimants:
        modules = ", ".join(installed_imports(claimant.declaration))
        facts[f"{claimant.name} ({claimant.provenance})"] = f"through {modules}"
    for package in autoloaded:
        if _claimant_of(package, claimants) is None:
            name = f"{package.distribution} {package.version}"
            facts[name] = f"torch loads it: {package.value}"
    return facts


def _claimant_of(package: Provenance, claimants: Sequence[Verdict]) -> Verdict | None:
    """Return the claimant whose vendor package is `package`, or `None` if there is none."""
    top_module = package.module.partition(".")[0]
    for claimant in claimants:
        for vendor_module in claimant.declaration.vendor_imports:
            if vendor_module.partition(".")[0] == top_module:
                return claimant
    return None


def _chosen_name(context: DiagnosticContext) -> str:
    """Return the name of the chosen backend.

    Returns an empty string if no backend is chosen.
    """
    selection = context.survey().selection
    if selection is None or selection.name is None:
        return ""
    return selection.name


def _autoload_conflict_findings(
    winner: Verdict, claimants: Sequence[Verdict], autoloaded: Sequence[Provenance]
) -> Iterator[Finding]:
    """Yield a finding if torch's autoload would give the slot to a different backend than `winner`.

    This affects programs that import torch before accel_core.
    """
    # Only the first autoloaded package that claims the slot gets it.
    for package in autoloaded:
        claimant = _claimant_of(package, claimants)
        if claimant is winner:
            return
        if claimant is not None:
            what = (
                "if a program imports torch before accel_core, "
                f"{package.distribution} {package.version}, which torch loads first, "
                f"takes the PrivateUse1 slot, and {winner.name} fails"
            )
            step = f"export {AUTOLOAD}=0, or pip uninstall {package.distribution}"
            code = "privateuse1.autoload"
            yield Finding(Level.WARNING, code, what, step, winner.name)
            return


def _unregistered_package_findings(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding about each package that registers a device but is not imported.

    Neither torch nor a plugin imports the package.
    """
    imported_modules = set()
    for candidate in context.examined_candidates():
        for module in candidate.declaration.vendor_imports:
            imported_modules.add(module.partition(".")[0])
    for package in unregistered.find_unregistered_packages(imported_modules):
        yield _unregistered_package_finding(package)


def _unregistered_package_finding(package: UnregisteredPackage) -> Finding:
    if package.device_type:
        what = package.description
        step = f"write a plugin for the device: accel new {package.device_type} --no-private-use1"
    else:
        what = f"{package.description} ({package.file}), but neither torch nor a plugin imports it"
        step = (
            f"import {package.module} before the accelerator is chosen, as in "
            f"`accel --import {package.module} list`, or write a plugin for the device: accel new"
        )
    code = "privateuse1.no-entry-point"
    return Finding(Level.WARNING, code, what, step, package.module)


def _join_names(names: Sequence[str]) -> str:
    """Return the names as text, such as `"a, b and c"`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


TOPIC = Topic("privateuse1", "PrivateUse1", _examine_slot)
