"""Report for each backend whether it is usable, the evidence, the root cause and the next step."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from accel_core import Selection, Status, Verdict
from accel_core.checks import may_have_broken_package
from accel_core.explain import messages
from accel_core.explain.reasons import words_of
from accel_core.hardware import bus, vendors
from accel_core.plugins import installed_names
from accel_core.sandbox.guard import CodeOwner
from accel_core.survey import Survey
from accel_core.text import did_you_mean, strip_period
from accel_core.verdict import How
from accel_tools.doctor.damage import Damage, damage_of
from accel_tools.doctor.evidence import (
    find_libraries,
    hardware_facts,
    toolkit_variables,
)
from accel_tools.doctor.installed_package import VendorPackage, vendor_package
from accel_tools.doctor.libraries import NOT_FOUND, UnmetNeed, why_unknown
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.torch_itself import torch_finding
from accel_tools.doctor.vendor_package import (
    misfits,
    missing_libraries,
    unmet_libraries,
)

__all__ = ["KNOWN_DIFFERENCES", "TOPIC"]

#: The code of a finding on a known numerical difference of the chosen device. The summary uses it.
KNOWN_DIFFERENCES = "candidates.known-differences"


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    survey = context.survey()
    examiner = _Examiner(context)
    findings: list[Finding] = []
    timeout = context.settings.probe_timeout
    torch = torch_finding(context.environ, timeout, proven=_has_working_device(survey))
    for verdict in survey.verdicts:
        if context.is_requested(verdict.name, verdict.distribution):
            of_verdict = examiner.findings(verdict)
            if _is_crash_of_torch(verdict):
                of_verdict = (_with_cause_of(torch, each) for each in of_verdict)
            findings += of_verdict
    # If torch fails, its finding comes first, because it explains the failures of backends.
    findings.insert(len(findings) if torch.level is Level.OK else 0, torch)
    yield from findings
    yield from _unknown_names(survey, context)
    if survey.selection is not None:
        is_explained = any(finding.level is Level.ERROR for finding in findings)
        yield from _selection(survey.selection, is_explained=is_explained)


def _has_working_device(survey: Survey) -> bool:
    """Return whether the probe of a plugin's backend has used torch successfully."""
    return any(
        verdict.usable and not verdict.builtin and verdict.ms
        for verdict in survey.verdicts
    )


def _is_crash_of_torch(verdict: Verdict) -> bool:
    """Return whether the probe's process ended while it imported torch."""
    return verdict.why is not None and verdict.why.get("owner") == CodeOwner.TORCH


def _with_cause_of(torch: Finding, finding: Finding) -> Finding:
    """Return the finding; if torch fails, with torch's root cause, so that the two are merged."""
    cause = torch.facts.get("root cause", "")
    if torch.level is Level.OK or not cause:
        return finding
    return finding._replace(facts={**finding.facts, "root cause": cause})


def _unknown_names(survey: Survey, context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding on each requested name that no plugin declares."""
    for pin in context.requested:
        verdicts = survey.verdicts
        if any(pin.matches(verdict.name, verdict.distribution) for verdict in verdicts):
            continue
        unknown = messages.not_declared_verdict(pin)
        step = did_you_mean(pin.name, installed_names()).strip() or unknown.hint
        code = "candidates.not-declared"
        yield Finding(Level.ERROR, code, unknown.reason, step, str(pin))


def _selection(selection: Selection, *, is_explained: bool) -> Iterator[Finding]:
    """Yield findings on the choice: no backend can be chosen, wrong settings, known differences.

    `is_explained` means that an error on a backend already explains why no backend can be chosen.
    """
    if selection.name is None and not is_explained and not selection.is_unknown:
        problem = strip_period(selection.problem_summary)
        yield Finding(Level.ERROR, "candidates.nothing-chosen", problem, "accel why")
    chosen = selection.chosen
    if chosen is not None:
        for _, what in chosen.declaration.known_differences:
            yield Finding(Level.OK, KNOWN_DIFFERENCES, what, about=chosen.name)
    for note in selection.notes:
        code = "candidates.settings"
        yield Finding(Level.WARNING, code, note.text, note.step, note.about)


class _Examiner:
    """Examine the backends one by one; a package of several backends is examined once."""

    def __init__(self, context: DiagnosticContext) -> None:
        self._context = context
        self._packages: dict[str, VendorPackage | None] = {}
        self._unmet: dict[str, tuple[UnmetNeed, ...]] = {}
        self._reported_misfits: set[str] = set()

    def findings(self, verdict: Verdict) -> Iterator[Finding]:
        """Yield the findings on one backend: its verdict with facts, and packages that do not fit."""
        packages = self._vendor_packages(verdict)
        unmet: list[UnmetNeed] = []
        if _is_failure(verdict):
            for package in packages:
                unmet += self._unmet_needs(package)
        facts = dict(self._facts(verdict, packages, unmet))
        level = _level(verdict, self._context)
        finding = Finding(
            level,
            f"candidates.{verdict.status.value.replace('_', '-')}",
            _description(verdict, unmet),
            _step(verdict, unmet) if level is not Level.OK else "",
            verdict.name,
            {name: value for name, value in facts.items() if value},
        )
        damage = _damage(verdict, packages)
        if damage is not None:
            finding = finding._replace(step=damage.step, proof=damage.what)
        yield finding
        # The verdict `incompatible` already reports the misfit.
        if verdict.status is not Status.INCOMPATIBLE:
            yield from self._misfits(verdict, packages)

    # --- Packages, each examined once ---

    def _vendor_packages(self, verdict: Verdict) -> list[VendorPackage]:
        packages = []
        for module in verdict.vendor_import:
            if module not in self._packages:
                self._packages[module] = vendor_package(module)
            package = self._packages[module]
            if package is not None:
                packages.append(package)
        return packages

    def _unmet_needs(self, package: VendorPackage) -> tuple[UnmetNeed, ...]:
        if package.folder not in self._unmet:
            unmet = unmet_libraries(package, self._context.environ)
            self._unmet[package.folder] = unmet
        return self._unmet[package.folder]

    # --- The parts of a finding ---

    def _facts(
        self,
        verdict: Verdict,
        packages: Sequence[VendorPackage],
        unmet: Sequence[UnmetNeed],
    ) -> Iterator[tuple[str, str]]:
        """Yield the names and values of facts; a value is empty if it is unknown."""
        is_reason_shown = verdict.reason in _description(verdict, [])
        yield "distribution", str(verdict.provenance)
        yield "vendor's package", ", ".join(map(_package_fact, packages))
        yield "reason", "" if is_reason_shown else verdict.reason
        yield "root cause", verdict.cause
        yield "raised by", verdict.where
        yield "symbol", _demangled_symbol(verdict.cause)
        if packages and _is_failure(verdict):
            yield "missing libraries", missing_libraries(unmet)
        if verdict.backend is not None:
            environ = self._context.environ
            yield "found elsewhere", _found_elsewhere(verdict, unmet, environ)
            yield from hardware_facts(verdict.declaration, environ)
        yield "probed in", f"{verdict.ms / 1e3:.1f} s" if verdict.ms else ""

    def _misfits(
        self, verdict: Verdict, packages: Sequence[VendorPackage]
    ) -> Iterator[Finding]:
        """Yield a finding on each package that does not fit torch or Python, once per package."""
        for package in packages:
            for what, package_step in misfits(package):
                if what in self._reported_misfits:
                    continue
                self._reported_misfits.add(what)
                step = package_step
                if verdict.name in vendors.FIRST_PARTY:
                    step = f"accel setup {verdict.name}"
                code = "candidates.misfit"
                yield Finding(Level.WARNING, code, what, step, verdict.name)


def _damage(verdict: Verdict, packages: Sequence[VendorPackage]) -> Damage | None:
    """Return which files of a failing backend's packages are damaged; `None` if none is known."""
    if not _is_failure(verdict):
        return None
    for package in packages:
        # torch has a finding of its own.
        if package.distribution not in ("", "torch"):
            damage = damage_of(package.distribution)
            if damage is not None:
                return damage
    return None


# --- The level -----------------------------------------------------------------------


def _level(verdict: Verdict, context: DiagnosticContext) -> Level:
    """Return the level of the finding on a verdict.

    The level is `OK` for absent and blocked backends. It is `ERROR` for a backend that fails
    although its hardware is present or a setting pins it.
    """
    if not verdict.needs_attention:
        return Level.WARNING if _is_idle(verdict, context) else Level.OK
    if verdict.status is Status.TIMED_OUT:  # The machine may only be slow.
        return Level.WARNING
    if _is_replaced(verdict, context) or _is_resolved_conflict(verdict, context):
        return Level.OK
    if verdict.evidence or _is_pinned(verdict, context):
        return Level.ERROR
    return Level.WARNING


def _is_pinned(verdict: Verdict, context: DiagnosticContext) -> bool:
    pins = context.settings.pins
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


def _is_resolved_conflict(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether a pin selects one of the distributions that declare the backend."""
    if verdict.status is not Status.CONFLICT:
        return False
    pins = context.settings.pins
    return any(pin.distribution and pin.name == verdict.name for pin in pins)


def _is_replaced(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether the backend's package is missing but not needed.

    A different declaration then provides the backend: IPEX is not needed if torch is built for
    Intel GPUs.
    """
    if verdict.status is not Status.NOT_INSTALLED:
        return False
    return any(
        other.name == verdict.name and other.devices is not None
        for other in context.survey().verdicts
    )


def _is_idle(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether a vendor package is installed, but has no device, and the CPU is the fallback.

    A warning is then useful, because the package was installed to be used.
    """
    selection = context.survey().selection
    if selection is None or selection.how is not How.FALLBACK or not verdict.hint:
        return False
    is_installed = verdict.builtin or may_have_broken_package(verdict)
    return is_installed and verdict.status is Status.NO_DEVICE


def _is_failure(verdict: Verdict) -> bool:
    return verdict.status.is_failure or verdict.also is not None


# --- The words -----------------------------------------------------------------------


def _step(verdict: Verdict, unmet: Sequence[UnmetNeed]) -> str:
    if verdict.hint or not unmet:
        return verdict.hint
    library = unmet[0].name
    return f"install the package with {library}, or add its folder to LD_LIBRARY_PATH"


def _description(verdict: Verdict, unmet: Sequence[UnmetNeed]) -> str:
    """Return the verdict as a clause, with a failure before an absence."""
    if verdict.usable:
        return _usable_description(verdict)
    libraries = _also_missing(verdict, unmet)
    if verdict.also is None:
        reason = words_of(verdict, plain=True).text
        return f"{verdict.status.label}: {reason}{libraries}"
    absence = words_of(replace(verdict, also=None), plain=True).text
    return f"{verdict.also.reason}{libraries}; and {absence}"


def _usable_description(verdict: Verdict) -> str:
    words = "usable"
    if verdict.devices:
        words += f", {verdict.devices} device{'' if verdict.devices == 1 else 's'}"
    if verdict.reason:
        words += f": {verdict.reason}"
    return words


def _also_missing(verdict: Verdict, unmet: Sequence[UnmetNeed]) -> str:
    """Return clauses on the missing libraries that the verdict's reason does not name.

    The loader's error, which the reason contains, names only the first missing library.
    """
    if not _is_failure(verdict):
        return ""
    unknown = why_unknown()
    if unknown and "shared object file" in verdict.cause:
        return f"; other missing libraries are {unknown}"
    clauses = _library_clauses(verdict.reason, unmet)
    return "".join(f"; {clause}" for clause in clauses)


def _library_clauses(reason: str, unmet: Sequence[UnmetNeed]) -> Iterator[str]:
    """Yield a clause on libraries that are not found, and a clause on libraries that do not fit."""
    not_found: dict[str, None] = {}
    unfit: dict[str, None] = {}
    for need in unmet:
        if need.why != NOT_FOUND:
            unfit[need.why] = None
        elif need.name not in reason:
            not_found[need.name] = None
    if not_found:
        are = "is" if len(not_found) == 1 else "are"
        yield f"{bus.enumerated(tuple(not_found))} {are} missing too"
    if unfit:
        yield bus.enumerated(tuple(unfit), 2)


def _found_elsewhere(
    verdict: Verdict, unmet: Sequence[UnmetNeed], environ: Mapping[str, str]
) -> str:
    """Return the paths of missing libraries that exist outside the loader's search path."""
    if not unmet:
        return ""
    variables = toolkit_variables(verdict.declaration, environ)
    folders = [folder for folder in variables.values() if folder]
    folder_of = find_libraries({need.name for need in unmet}, folders)
    return ", ".join(f"{folder}/{name}" for name, folder in folder_of.items())


def _package_fact(package: VendorPackage) -> str:
    """Describe a package with its folder, its requirement for torch, and its wheel's tags."""
    on_torch = [text for text in package.requires if re.match(r"torch\b(?!-)", text)]
    built_for = ", ".join([*on_torch, *package.tags])
    where = f"{package} in {package.folder}"
    return f"{where} (for {built_for})" if built_for else where


def _demangled_symbol(cause: str) -> str:
    """Return the undefined symbol in an error, demangled if `c++filt` is installed."""
    match = re.search(r"undefined symbol: (\w+)", cause)
    if match is None:
        return ""
    symbol = match[1]
    program = shutil.which("c++filt")
    if program is None:
        return symbol
    try:
        completed = subprocess.run(
            [program],
            input=symbol,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return symbol
    return completed.stdout.strip() or symbol


TOPIC = Topic("candidates", "Backends", _examine)
