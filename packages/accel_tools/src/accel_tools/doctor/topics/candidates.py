"""Each backend: whether it is usable, the evidence for and against, the root cause and the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from accel_core import Status, Verdict
from accel_core.checks import can_be_broken
from accel_core.explain import messages
from accel_core.explain.reasons import words_of
from accel_core.hardware import bus, vendors
from accel_core.plugins import installed_names
from accel_core.survey import Survey
from accel_core.text import did_you_mean
from accel_core.verdict import How
from accel_tools.doctor.evidence import (
    hardware_facts,
    lying_about,
    toolkit,
)
from accel_tools.doctor.installed_package import VendorPackage, vendor_package
from accel_tools.doctor.libraries import NOT_FOUND, Unmet, why_unknown
from accel_tools.doctor.records import Finding, Level, Topic, Visit
from accel_tools.doctor.torch_itself import torch_finding
from accel_tools.doctor.vendor_package import (
    misfits,
    missing_libraries,
    unmet_libraries,
)

__all__ = ["COMPUTES_OTHERWISE", "TOPIC"]

#: The code of what the chosen device is known to compute otherwise, which the visit's first lines say.
COMPUTES_OTHERWISE = "candidates.computes-otherwise"


def _examine(visit: Visit) -> Iterator[Finding]:
    surveyed = visit.survey()
    looker = _Looker(visit)
    found: list[Finding] = []
    for verdict in surveyed.verdicts:
        if visit.concerns(verdict.name, verdict.provenance.distribution):
            found += looker.findings(verdict, verdict)
    proven = any(
        verdict.usable and not verdict.builtin and verdict.ms
        for verdict in surveyed.verdicts
    )
    torch = torch_finding(visit.environ, visit.settings.probe_timeout, proven=proven)
    # Where torch fails, that is why the others do.
    yield from (*found, torch) if torch.level is Level.OK else (torch, *found)
    yield from _unknown(surveyed, visit)
    yield from _choice(
        surveyed, told=any(finding.level is Level.ERROR for finding in (*found, torch))
    )


def _unknown(surveyed: Survey, visit: Visit) -> Iterator[Finding]:
    """The names that were asked for and that nobody declares."""
    for pin in visit.names:
        if not any(
            pin.matches(v.name, v.provenance.distribution) for v in surveyed.verdicts
        ):
            unknown = messages.not_declared_verdict(pin)
            step = did_you_mean(pin.name, installed_names()).strip() or unknown.hint
            yield Finding(
                Level.ERROR, "candidates.not-declared", unknown.reason, step, str(pin)
            )


def _choice(surveyed: Survey, *, told: bool) -> Iterator[Finding]:
    """Yield that nothing can be chosen, unless a finding has `told` why, and faults in the settings."""
    if surveyed.selection is None:
        return
    selection = surveyed.selection
    if selection.name is None and not (told or selection.is_unknown):
        problem = selection.problem.partition("\n")[0].rstrip(".")
        yield Finding(Level.ERROR, "candidates.nothing-chosen", problem, "accel why")
    chosen = surveyed.selection.chosen
    for _, words in chosen.declaration.known_differences if chosen else ():
        yield Finding(
            Level.OK, COMPUTES_OTHERWISE, words, about=chosen.name if chosen else ""
        )
    for note in selection.notes:
        what, _, step = note.rstrip(".").partition(". Next step: ")
        about = selection.name or "" if step else ""
        yield Finding(Level.WARNING, "candidates.settings", what, step, about)


class _Looker:
    """Looks at one backend after the other; what several have in common is looked at once."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._packages: dict[str, VendorPackage | None] = {}
        self._unmet: dict[str, tuple[Unmet, ...]] = {}
        self._told: set[object] = set()

    def findings(self, candidate: Verdict, verdict: Verdict) -> Iterator[Finding]:
        """Yield the findings on one candidate: its verdict with all facts, and other faults."""
        packages = list(self._packages_of(verdict))
        unmet = (
            [need for package in packages for need in self._needs(package)]
            if _fails(verdict)
            else []
        )
        level = _level(verdict, self._visit)
        facts = dict(self._facts(candidate, verdict, packages, unmet))
        yield Finding(
            level,
            f"candidates.{verdict.status.value.replace('_', '-')}",
            _in_words(verdict, unmet),
            _step(verdict, unmet) if level is not Level.OK else "",
            verdict.name,
            {name: value for name, value in facts.items() if value},
        )
        yield from self._misfits(verdict, packages)

    # --- what is looked at once ---

    def _packages_of(self, verdict: Verdict) -> Iterator[VendorPackage]:
        for module in verdict.vendor_import:
            if module not in self._packages:
                self._packages[module] = vendor_package(module)
            if package := self._packages[module]:
                yield package

    def _needs(self, package: VendorPackage) -> tuple[Unmet, ...]:
        if package.folder not in self._unmet:
            self._unmet[package.folder] = unmet_libraries(package, self._visit.environ)
        return self._unmet[package.folder]

    # --- the parts of a finding ---

    def _facts(
        self,
        candidate: Verdict,
        verdict: Verdict,
        packages: list[VendorPackage],
        unmet: list[Unmet],
    ) -> Iterator[tuple[str, str]]:
        environ = self._visit.environ
        yield "distribution", str(verdict.provenance)
        yield "vendor's package", ", ".join(map(_installed, packages))
        yield (
            "reason",
            verdict.reason if verdict.reason not in _in_words(verdict, []) else "",
        )
        yield "root cause", verdict.cause
        yield "raised by", verdict.where
        yield "symbol", _demangled(verdict.cause)
        yield (
            "missing libraries",
            missing_libraries(unmet) if packages and _fails(verdict) else "",
        )
        if candidate.backend is not None:
            named = [
                value
                for value in toolkit(candidate.declaration, environ).values()
                if value
            ]
            lying = lying_about({need.name for need in unmet}, named) if unmet else {}
            yield (
                "found elsewhere",
                ", ".join(f"{folder}/{name}" for name, folder in lying.items()),
            )
            yield from hardware_facts(candidate.declaration, environ)
        yield "probed in", f"{verdict.ms / 1e3:.1f} s" if verdict.ms else ""

    def _once(self, key: object) -> bool:
        """Whether this was not said before; several backends share a package."""
        new = key not in self._told
        self._told.add(key)
        return new

    def _misfits(
        self, verdict: Verdict, packages: list[VendorPackage]
    ) -> Iterator[Finding]:
        if verdict.status is Status.INCOMPATIBLE:  # that is what it says
            return
        for package in packages:
            for what, step in misfits(package):
                if self._once(what):
                    ours = verdict.name in vendors.FIRST_PARTY
                    fitting = f"accel setup {verdict.name}" if ours else step
                    yield Finding(
                        Level.WARNING, "candidates.misfit", what, fitting, verdict.name
                    )


def _level(verdict: Verdict, visit: Visit) -> Level:
    """Absent and blocked backends are fine; a present or requested one that fails is an error."""
    if not verdict.needs_attention:
        return Level.WARNING if _is_idle(verdict, visit) else Level.OK
    if verdict.status is Status.TIMED_OUT:  # which may be the machine's
        return Level.WARNING
    if _is_replaced(verdict, visit):
        return Level.OK
    pins = visit.settings.pins
    if verdict.status is Status.CONFLICT and any(
        pin.distribution for pin in pins if pin.name == verdict.name
    ):
        return Level.OK  # the user says which of them is meant
    asked = any(
        pin.matches(verdict.name, verdict.provenance.distribution) for pin in pins
    )
    return Level.ERROR if verdict.evidence or asked else Level.WARNING


def _is_replaced(verdict: Verdict, visit: Visit) -> bool:
    """Whether its package is missing, and what is installed declares the same backend.

    IPEX is not needed where torch itself is built for Intel's GPUs.
    """
    if verdict.status is not Status.NOT_INSTALLED:
        return False
    return any(
        other.name == verdict.name and other.devices is not None
        for other in visit.survey().verdicts
    )


def _is_idle(verdict: Verdict, visit: Visit) -> bool:
    """Whether a vendor's package is installed without a device, and nothing else is chosen.

    It was installed to be used.
    """
    selection = visit.survey().selection
    is_cpu = selection is not None and selection.how is How.FALLBACK
    is_installed = verdict.builtin or can_be_broken(verdict)
    is_without_device = verdict.status is Status.NO_DEVICE and is_installed
    return is_cpu and is_without_device and bool(verdict.hint)


def _fails(verdict: Verdict) -> bool:
    return verdict.status.is_failure or verdict.also is not None


def _step(verdict: Verdict, unmet: list[Unmet]) -> str:
    if verdict.hint or not unmet:
        return verdict.hint
    return f"install the package with {unmet[0].name}, or add its folder to LD_LIBRARY_PATH"


def _in_words(verdict: Verdict, unmet: list[Unmet]) -> str:
    """The verdict as a clause: what fails comes before what is merely absent."""
    if verdict.usable:
        counted = (
            f", {verdict.devices} device{'' if verdict.devices == 1 else 's'} counted"
            if verdict.devices
            else ""
        )
        return f"usable{counted}" + (f": {verdict.reason}" if verdict.reason else "")
    if verdict.also is None:
        reason = words_of(verdict, plain=True).text
        return f"{verdict.status.label}: {reason}{_also_missing(verdict, unmet)}"
    absence = words_of(replace(verdict, also=None), plain=True).text
    return f"{verdict.also.reason}{_also_missing(verdict, unmet)}; and {absence}"


def _also_missing(verdict: Verdict, unmet: list[Unmet]) -> str:
    """Return which other libraries are missing: the loader's message names the first alone."""
    if not _fails(verdict):
        return ""
    if "shared object file" in verdict.cause and (without := why_unknown()):
        return f"; what else is missing is {without}"
    missing = dict.fromkeys(need.name for need in unmet if need.why == NOT_FOUND)
    others = tuple(name for name in missing if name not in verdict.reason)
    clauses = (
        [f"{bus.enumerated(others)} {'is' if len(others) == 1 else 'are'} missing too"]
        if others
        else []
    )
    unfit = dict.fromkeys(need.why for need in unmet if need.why != NOT_FOUND)
    clauses += [bus.enumerated(tuple(unfit), 2)] if unfit else []
    return "".join(f"; {clause}" for clause in clauses)


def _installed(package: VendorPackage) -> str:
    requires = [text for text in package.requires if re.match(r"torch\b(?!-)", text)]
    built = ", ".join([*requires, *package.tags])
    return f"{package} in {package.folder}" + (f" (for {built})" if built else "")


def _demangled(cause: str) -> str:
    """The symbol that a library lacks, as it is written in C++ where this system can tell."""
    match = re.search(r"undefined symbol: (\w+)", cause)
    if match is None:
        return ""
    import shutil
    import subprocess

    program = shutil.which("c++filt")
    if program is None:
        return match[1]
    try:
        done = subprocess.run(
            [program],
            input=match[1],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return match[1]
    return done.stdout.strip() or match[1]


TOPIC = Topic("candidates", "Backends", _examine)
