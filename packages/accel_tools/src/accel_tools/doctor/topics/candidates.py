"""Report whether each backend is usable, with evidence, the root cause of a failure, and a next step."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from accel_core import Selection, Status, Verdict, torch_build
from accel_core.checks import may_have_broken_package
from accel_core.explain import messages
from accel_core.explain.reasons import words_of
from accel_core.hardware import bus, vendors
from accel_core.plugins import installed_names
from accel_core.sandbox.guard import CodeOwner
from accel_core.survey import Survey
from accel_core.text import did_you_mean, strip_period
from accel_core.verdict import How, Reason, Words
from accel_tools.doctor.damage import Damage, find_damage_of_import
from accel_tools.doctor.defects import find_stale_metadata
from accel_tools.doctor.evidence import (
    describe_hardware,
    find_libraries,
    toolkit_variables,
)
from accel_tools.doctor.installed_package import VendorPackage, find_vendor_package
from accel_tools.doctor.libraries import NOT_FOUND, UnmetDependency, why_not_examined
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.torch_itself import torch_import_finding
from accel_tools.doctor.vendor_package import (
    Misfit,
    describe_unmet,
    find_misfits,
    package_unmet_dependencies,
)

__all__ = ["KNOWN_DIFFERENCES", "TOPIC"]

#: The code of a finding about a known numerical difference of the chosen device. The summary uses it.
KNOWN_DIFFERENCES = "candidates.known-differences"


def _examine_backends(context: DiagnosticContext) -> Iterator[Finding]:
    survey = context.survey()
    examiner = _BackendExaminer(context)
    torch_finding = torch_import_finding(
        context.environ,
        context.settings.probe_timeout,
        is_known_to_work=_has_probe_imported_torch(survey),
    )
    findings: list[Finding] = []
    for verdict in survey.verdicts:
        if not context.is_requested(verdict.name, verdict.distribution):
            continue
        for finding in examiner.findings(verdict):
            if _crashed_in_torch_import(verdict):
                findings.append(_add_root_cause_of_torch(finding, torch_finding))
            else:
                findings.append(finding)
    if torch_finding.level is Level.OK:
        findings.append(torch_finding)
    else:
        # If torch fails, its finding comes first, because it explains the failures of backends.
        findings.insert(0, torch_finding)
    yield from findings
    yield from _unknown_name_findings(survey, context)
    if survey.selection is not None:
        has_error = any(finding.level is Level.ERROR for finding in findings)
        yield from _selection_findings(survey.selection, is_explained=has_error)


def _has_probe_imported_torch(survey: Survey) -> bool:
    """Return whether the probe of a plugin's backend has used torch successfully."""
    for verdict in survey.verdicts:
        was_probed = verdict.ms != 0
        # A probe imports torch, so a usable backend shows that torch can be imported.
        if verdict.usable and was_probed and not verdict.builtin:
            return True
    return False


def _crashed_in_torch_import(verdict: Verdict) -> bool:
    """Return whether the process of the backend's probe ended while it imported torch."""
    return verdict.why is not None and verdict.why.get("owner") == CodeOwner.TORCH


def _add_root_cause_of_torch(finding: Finding, torch_finding: Finding) -> Finding:
    """Return `finding` with the root cause in `torch_finding`, if torch cannot be imported.

    Findings with the same root cause are merged later.
    """
    if torch_finding.level is Level.OK or not torch_finding.cause:
        return finding
    # The text keeps the cause that it already shows, so the new cause is not shown.
    what = finding.text
    return finding._replace(
        what=what, details="", cause=torch_finding.cause, shows_cause=False
    )


def _unknown_name_findings(
    survey: Survey, context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield a finding about each requested name that no plugin declares."""
    for pin in context.requested:
        is_declared = any(
            pin.matches(verdict.name, verdict.distribution)
            for verdict in survey.verdicts
        )
        if is_declared:
            continue
        missing = messages.not_declared_verdict(pin)
        suggestion = did_you_mean(pin.name, installed_names()).strip()
        step = suggestion or missing.hint
        code = "candidates.not-declared"
        yield Finding(Level.ERROR, code, missing.reason, step, about=str(pin))


def _selection_findings(
    selection: Selection, *, is_explained: bool
) -> Iterator[Finding]:
    """Yield findings about the choice: no backend can be chosen, wrong settings, known differences.

    `is_explained` means that an error on a backend already explains why no backend can be chosen.
    """
    is_nothing_chosen = selection.name is None and not selection.is_unknown
    if is_nothing_chosen and not is_explained:  # No other finding has the reason.
        problem = strip_period(selection.problem_summary)
        yield Finding(Level.ERROR, "candidates.nothing-chosen", problem, "accel why")
    chosen = selection.chosen
    if chosen is not None:
        for _check, difference in chosen.declaration.known_differences:
            yield Finding(Level.OK, KNOWN_DIFFERENCES, difference, about=chosen.name)
    for note in selection.notes:
        code = "candidates.settings"
        yield Finding(Level.WARNING, code, note.text, note.step, note.about)


class _BackendExaminer:
    """An examiner of backends; a package that several backends use is examined only once."""

    def __init__(self, context: DiagnosticContext) -> None:
        self._context = context
        self._packages_by_module: dict[str, VendorPackage | None] = {}
        self._unmet_by_folder: dict[str, tuple[UnmetDependency, ...]] = {}
        self._reported_misfits: set[Misfit] = set()

    def findings(self, verdict: Verdict) -> Iterator[Finding]:
        """Yield the finding about a backend, and findings about those of its packages that do not fit."""
        packages = self._vendor_packages(verdict)
        unmet: list[UnmetDependency] = []
        if _is_failure(verdict):
            for package in packages:
                unmet += self._unmet_dependencies(package)
        facts = dict(self._facts(verdict, packages, unmet))
        known_facts = {name: value for name, value in facts.items() if value}
        level = _finding_level(verdict, self._context)
        step = ""
        if level is not Level.OK:
            step = _next_step(verdict, unmet)
        words = _main_words(verdict)
        finding = Finding(
            level=level,
            code=f"candidates.{verdict.status.value.replace('_', '-')}",
            what=_describe_verdict(verdict, words),
            step=step,
            about=verdict.name,
            facts=known_facts,
            cause=verdict.cause,
            shows_cause=words.cause != "",
            details="; ".join(_detail_clauses(verdict, unmet)),
        )
        damage = _damage_of_failing_backend(verdict, packages)
        if damage is not None:
            finding = finding._replace(step=damage.step, proof=damage.what)
        yield finding
        # The verdict `incompatible` already reports the misfit.
        if verdict.status is not Status.INCOMPATIBLE:
            yield from self._misfit_findings(verdict, packages)

    # --- Packages, each examined once ---

    def _vendor_packages(self, verdict: Verdict) -> list[VendorPackage]:
        """Return the installed vendor packages that the backend imports."""
        packages = []
        for module in verdict.vendor_import:
            if module not in self._packages_by_module:
                self._packages_by_module[module] = find_vendor_package(module)
            package = self._packages_by_module[module]
            if package is not None:
                packages.append(package)
        return packages

    def _unmet_dependencies(
        self, package: VendorPackage
    ) -> tuple[UnmetDependency, ...]:
        """Return the missing libraries of the package."""
        folder = package.folder
        if folder not in self._unmet_by_folder:
            unmet = package_unmet_dependencies(package, self._context.environ)
            self._unmet_by_folder[folder] = unmet
        return self._unmet_by_folder[folder]

    # --- The parts of a finding ---

    def _facts(
        self,
        verdict: Verdict,
        packages: Sequence[VendorPackage],
        unmet: Sequence[UnmetDependency],
    ) -> Iterator[tuple[str, str]]:
        """Yield the names and values of facts about the backend.

        A value is an empty string if it is unknown.
        """
        plain_reason = words_of(verdict, plain=True).text
        is_reason_shown = (
            verdict.package_failure is None and plain_reason == verdict.reason
        )
        package_texts = [_describe_package(package) for package in packages]
        yield "distribution", str(verdict.provenance)
        if verdict.status is Status.CONFLICT:
            yield "pin", f"{verdict.name}@{verdict.distribution}"
        if verdict.package_failure is not None:
            yield "missing device", verdict.hardware
        yield "vendor's package", ", ".join(package_texts)
        yield "reason", "" if is_reason_shown else verdict.reason
        yield "raised by", verdict.where
        yield "symbol", _demangled_symbol(verdict.cause)
        if packages and _is_failure(verdict):
            yield "missing libraries", describe_unmet(unmet)
        if verdict.backend is not None:
            environ = self._context.environ
            yield "found elsewhere", _paths_outside_search_path(verdict, unmet, environ)
            yield from describe_hardware(verdict.declaration, environ)
        yield "probed in", f"{verdict.ms / 1e3:.1f} s" if verdict.ms else ""

    def _misfit_findings(
        self, verdict: Verdict, packages: Sequence[VendorPackage]
    ) -> Iterator[Finding]:
        """Yield a finding about each package that does not fit torch or Python, once per package."""
        backend = verdict.name
        for package in packages:
            for misfit in find_misfits(package):
                # Several backends may use the same package.
                if misfit in self._reported_misfits:
                    continue
                self._reported_misfits.add(misfit)
                step = misfit.step
                if backend in vendors.FIRST_PARTY:
                    step = f"accel setup {backend}"
                code = "candidates.misfit"
                yield Finding(Level.WARNING, code, misfit.reason, step, backend)


def _damage_of_failing_backend(
    verdict: Verdict, packages: Sequence[VendorPackage]
) -> Damage | None:
    """Return the first damage of a failing backend's packages.

    Returns `None` if no damage is found.
    """
    if not _is_failure(verdict):
        return None
    for package in packages:
        # Another finding reports damaged files of torch.
        if package.distribution not in ("", "torch"):
            damage = find_damage_of_import(package.distribution, verdict.cause)
            if damage is not None:
                return damage
    return None


# --- The level -----------------------------------------------------------------------


def _finding_level(verdict: Verdict, context: DiagnosticContext) -> Level:
    """Return the level of the finding about a backend.

    The level is `OK` for absent and blocked backends. It is `ERROR` for a backend that fails although its
    hardware is present or a setting pins the backend.
    """
    if not verdict.needs_attention:
        is_unexpected = _is_installed_without_device(verdict, context)
        return Level.WARNING if is_unexpected else Level.OK
    if verdict.status is Status.TIMED_OUT:  # The machine may only be slow.
        return Level.WARNING
    if _is_replaced(verdict, context) or _is_resolved_conflict(verdict, context):
        return Level.OK
    is_hardware_present = bool(verdict.evidence)
    if is_hardware_present or _is_pinned(verdict, context):
        return Level.ERROR
    return Level.WARNING


def _is_pinned(verdict: Verdict, context: DiagnosticContext) -> bool:
    pins = context.settings.pins
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


def _is_resolved_conflict(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether several distributions declare the backend, and a pin selects one of them."""
    if verdict.status is not Status.CONFLICT:
        return False
    # A pin such as cuda@accel-cuda chooses one of the distributions that declare the backend.
    pins = [pin for pin in context.settings.pins if pin.name == verdict.name]
    return any(pin.distribution for pin in pins)


def _is_replaced(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether the backend's package is missing, but a different package provides the backend.

    For example, IPEX is not needed if torch is built for Intel GPUs.
    """
    if verdict.status is not Status.NOT_INSTALLED:
        return False
    # A different distribution may declare the same backend.
    for other in context.survey().verdicts:
        could_count_devices = other.devices is not None
        if other.name == verdict.name and could_count_devices:
            return True
    return False


def _is_installed_without_device(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether a vendor package is installed, but has no device, and the CPU is the fallback.

    This deserves a warning, because the user has probably installed the package for a device.
    """
    selection = context.survey().selection
    is_cpu_fallback = selection is not None and selection.how is How.FALLBACK
    if not is_cpu_fallback or not verdict.hint:
        return False
    is_installed = verdict.builtin or may_have_broken_package(verdict)
    return is_installed and verdict.status is Status.NO_DEVICE


def _is_failure(verdict: Verdict) -> bool:
    """Return whether the backend fails, even if its device is missing too."""
    return verdict.status.is_failure or verdict.package_failure is not None


# --- The texts -----------------------------------------------------------------------


def _next_step(verdict: Verdict, unmet: Sequence[UnmetDependency]) -> str:
    """Return the verdict's next step, or otherwise the step that provides a missing library."""
    if _is_crash_of_vendor(verdict):
        return ""  # Experiments look for the cause.
    if verdict.status is Status.INCOMPATIBLE and _has_stale_metadata():
        return ""  # The finding about torch has the step.
    if verdict.hint or not unmet:
        return verdict.hint
    library = unmet[0].name
    return f"install the package that contains {library}, or add the library's folder to LD_LIBRARY_PATH"


def _has_stale_metadata() -> bool:
    """Return whether metadata of another torch version remains, so that a backend may seem incompatible."""
    build = torch_build()
    return build is not None and bool(find_stale_metadata("torch", build.version))


def _is_crash_of_vendor(verdict: Verdict) -> bool:
    """Return whether torch or the vendor's package ended the process of the probe."""
    why = verdict.why
    if why is None or why.reason is not Reason.CRASHED:
        return False
    return bool(why["owner"] != CodeOwner.PLUGIN)


def _main_words(verdict: Verdict) -> Words:
    """Return the words for the failure of the backend's package, or otherwise for the verdict."""
    if verdict.package_failure is not None:
        return words_of(verdict.package_failure)
    return words_of(verdict, plain=True)


def _describe_verdict(verdict: Verdict, words: Words) -> str:
    """Return a clause about the backend, without the cause of its failure."""
    if verdict.usable:
        return _describe_usable(verdict)
    if verdict.package_failure is not None:
        return words.text_without_cause
    return f"{verdict.status.label}: {words.text_without_cause}"


def _detail_clauses(
    verdict: Verdict, unmet: Sequence[UnmetDependency]
) -> Iterator[str]:
    """Yield clauses about missing libraries, and a device that is missing in addition to the failure."""
    yield from _missing_library_clauses(verdict, unmet)
    if verdict.package_failure is not None:
        without_failure = replace(verdict, package_failure=None)
        yield f"and {words_of(without_failure, plain=True).text}"


def _describe_usable(verdict: Verdict) -> str:
    """Return a clause such as `"usable, 2 devices"`."""
    clause = "usable"
    if verdict.devices:
        clause += f", {verdict.devices} device{'' if verdict.devices == 1 else 's'}"
    if verdict.reason:
        clause += f": {verdict.reason}"
    return clause


def _missing_library_clauses(
    verdict: Verdict, unmet: Sequence[UnmetDependency]
) -> Iterator[str]:
    """Yield clauses about the missing libraries that the verdict's reason does not name.

    The loader's error, which the reason contains, names only the first missing library.
    """
    if not _is_failure(verdict):
        return
    is_loader_error = "shared object file" in verdict.cause
    why_unknown = why_not_examined()
    if why_unknown and is_loader_error:
        yield f"other missing libraries are {why_unknown}"
        return
    yield from _library_clauses(verdict.reason, unmet)


def _library_clauses(reason: str, unmet: Sequence[UnmetDependency]) -> Iterator[str]:
    """Yield a clause about libraries that are not found, and one about libraries that do not fit.

    Libraries that are not found, and that `reason` names, are left out.
    """
    not_found_names = []
    unfit_reasons = []
    for dependency in unmet:
        is_in_reason = dependency.name in reason
        if dependency.reason != NOT_FOUND:
            unfit_reasons.append(dependency.reason)
        elif not is_in_reason:
            not_found_names.append(dependency.name)
    if not_found_names:
        names = _unique(not_found_names)
        verb = "is" if len(names) == 1 else "are"
        yield f"{bus.enumerated(names)} {verb} missing too"
    if unfit_reasons:
        yield bus.enumerated(_unique(unfit_reasons), most=2)


def _unique(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without repetitions, in the same order."""
    return tuple(dict.fromkeys(texts))


def _paths_outside_search_path(
    verdict: Verdict, unmet: Sequence[UnmetDependency], environ: Mapping[str, str]
) -> str:
    """Return the paths of missing libraries that exist outside the loader's search path."""
    if not unmet:
        return ""
    variables = toolkit_variables(verdict.declaration, environ)
    folders = [folder for folder in variables.values() if folder]
    names = {dependency.name for dependency in unmet}
    folder_by_name = find_libraries(names, folders)
    paths = [f"{folder}/{name}" for name, folder in folder_by_name.items()]
    return ", ".join(paths)


def _describe_package(package: VendorPackage) -> str:
    """Return a package's name, version and folder, with its requirement for torch and wheel tags."""
    text = f"{package} in {package.folder}"
    # A requirement for torch-npu begins with "torch" too.
    torch_alone = re.compile(r"torch\b(?!-)")
    requirements = [
        requirement
        for requirement in package.requires
        if torch_alone.match(requirement)
    ]
    built_for = [*requirements, *package.tags]
    if built_for:
        text += f" (for {', '.join(built_for)})"
    return text


def _demangled_symbol(error: str) -> str:
    """Return the undefined C++ symbol in an error, in readable form if `c++filt` is installed."""
    match = re.search(r"undefined symbol: (\w+)", error)
    if match is None:
        return ""
    symbol = match[1]
    cxxfilt = shutil.which("c++filt")
    if cxxfilt is None:
        return symbol
    try:
        completed = subprocess.run(
            [cxxfilt],
            input=symbol,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return symbol
    return completed.stdout.strip() or symbol


TOPIC = Topic("candidates", "Backends", _examine_backends)
