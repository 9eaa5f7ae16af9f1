"""Find installed packages that break `import torch` or take over the chosen device.

While torch is imported, its autoload imports every package in torch's entry-point
group, even if another device is chosen. This also happens in a program that imports
torch first, and in every rank that a launcher starts. A child process therefore loads
the packages as torch does, one at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from accel_core import builtin, checks, torch_import
from accel_core.backend import Backend, Provenance, decode_backend
from accel_core.build import report_to
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_core.settings import Settings
from accel_core.text import one_line
from accel_core.verdict import Selection, Verdict


@dataclass(frozen=True)
class AutoloadConflict:
    """An installed package's harmful effect on `import torch`, and the user's next step."""

    #: A clause that names the package and its effect.
    what: str
    #: The user's next step.
    step: str
    #: How loading the package failed: an error, or the end of the process; may be empty.
    how: str = ""
    #: A clause on the effect on `import torch` in a program, or an empty string if it
    #: is not known.
    effect: str = ""
    #: Type and message of the first error of `how`, or an empty string if there was
    #: none.
    cause: str = ""
    #: The distribution of a package that does not work, or an empty string if the
    #: package works.
    distribution: str = ""
    #: Whether the effect was observed. This is False if the child did not respond in
    #: time.
    known: bool = True

    def text_with(self, verdicts: Sequence[Verdict]) -> str:
        """Return the conflict in words, without repeating what the displayed `verdicts`
        already contain.

        If a verdict has the same cause, the text refers to that verdict. If the verdict
        also has a next step, that step is not repeated.
        """
        for verdict in verdicts:
            has_same_cause = verdict.cause and verdict.cause == self.cause
            if not has_same_cause:
                continue
            # Advice to report the failure does not help the user.
            has_step = verdict.hint not in ("", report_to(verdict.distribution))
            if has_step and self.effect:
                hint = self.effect
            else:
                hint = self.hint
            return f"{self.what}, for the same reason as {verdict.name}. {hint}"
        return str(self)

    @property
    def reason(self) -> str:
        """The package's effect on `import torch` and how loading the package ended,
        without the next step.
        """
        return f"{self.what}: {self.how}" if self.how else self.what

    @property
    def hint(self) -> str:
        """The package's effect on `import torch`, and the user's next step."""
        return f"{self.effect}: {self.step}" if self.effect else self.step

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"


def with_autoload_conflicts(selection: Selection, settings: Settings) -> Selection:
    """Return the selection, with notes added on autoload conflicts that no verdict reports."""
    chosen = selection.chosen.backend if selection.chosen else None
    conflicts = autoload_conflicts(chosen, settings.probe_timeout)
    reported = {v.distribution for v in selection.verdicts if v.status.is_failure}
    notes = []
    for conflict in conflicts:
        # `distribution` is empty if the package works.
        is_reported = conflict.distribution and conflict.distribution in reported
        if not is_reported:
            notes.append(conflict.text_with(selection.verdicts))
    return replace(selection, autoload=tuple(notes))


def autoload_conflicts(
    chosen: Backend | None, timeout: float
) -> tuple[AutoloadConflict, ...]:
    """Return the packages that break `import torch`, or that take over the device of
    `chosen`.

    The result is empty if torch's autoload is off, if this process has imported torch
    with autoload on, or if torch would load only the package of the chosen backend. A
    child process imports torch and the packages, within `timeout` seconds. If a package
    crashes that child, another child continues without the package.
    """
    packages = builtin.autoload_packages()
    chosen_packages = _top_level_packages_of_device(chosen)
    others = [p for p in packages if p.top not in chosen_packages]
    if not others or not _would_autoload():
        return ()
    conflicts_by_package = _find_conflicts_in_children(packages, chosen, timeout)
    return _relevant_conflicts(conflicts_by_package, chosen_packages)


def _top_level_packages_of_device(chosen: Backend | None) -> set[str]:
    """Return the top-level packages that add the chosen device to torch."""
    if chosen is None:
        return set()
    packages = {module.partition(".")[0] for module in chosen.vendor_imports}
    package = builtin.package_of_generic(chosen)
    if package is not None:
        packages.add(package.top)
    return packages


def _relevant_conflicts(
    conflicts_by_package: Mapping[Provenance, AutoloadConflict],
    chosen_packages: set[str],
) -> tuple[AutoloadConflict, ...]:
    """Return the conflicts of packages outside `chosen_packages`, or all conflicts if
    there are none.

    The chosen backend's package may fail only because another package was loaded first.
    """
    conflicts_of_others = []
    for package, conflict in conflicts_by_package.items():
        if package.top not in chosen_packages:
            conflicts_of_others.append(conflict)
    return tuple(conflicts_of_others or conflicts_by_package.values())


def _would_autoload() -> bool:
    """Return whether a first `import torch` in a program would load the packages."""
    is_already_loaded = "torch" in sys.modules and not torch_import.imported_by_us
    if is_already_loaded:
        return False
    # A package that failed in this process may have turned autoload off, as torch_npu
    # does.
    return torch_import.autoload_is_on() or torch_import.has_failed_import()


def _find_conflicts_in_children(
    packages: Sequence[Provenance], chosen: Backend | None, timeout: float
) -> dict[Provenance, AutoloadConflict]:
    """Load the packages in a child process. After a crash, load the remaining ones in
    another child.
    """
    conflicts_by_package: dict[Provenance, AutoloadConflict] = {}
    remaining = list(packages)
    while remaining:
        result = _load_in_one_child(remaining, chosen, timeout)
        conflicts_by_package |= result.conflicts
        # Without a new conflict, another child would end in the same way.
        if result.is_complete or not result.conflicts:
            break
        remaining = [p for p in packages if p not in conflicts_by_package]
    # A package that crashed a child was found before the others. The result is in the
    # order of `packages`.
    return {p: conflicts_by_package[p] for p in packages if p in conflicts_by_package}


class _ChildResult(NamedTuple):
    """The result of loading packages in one child process."""

    conflicts: dict[Provenance, AutoloadConflict]
    #: Whether no further child process is needed for the remaining packages.
    is_complete: bool


def _load_in_one_child(
    packages: list[Provenance], chosen: Backend | None, timeout: float
) -> _ChildResult:
    """Load packages in one child process, and return their conflicts.

    If the child ends early, the package that it was loading is the cause.
    """
    job: dict[str, Any] = {
        "packages": [asdict(package) for package in packages],
        "chosen": asdict(chosen) if chosen else None,
    }
    try:
        report = child.run(load_in_child, job, timeout)
    except OSError:  # No process can be started, so no conflict is known.
        return _ChildResult({}, is_complete=True)
    if report.answer is not None:
        conflicts = {}
        for encoded in report.answer["conflicts"]:
            package = packages[encoded["package_index"]]
            conflicts[package] = AutoloadConflict(**encoded["conflict"])
        return _ChildResult(conflicts, is_complete=True)
    for package in packages:
        if report.stage != _step_name(package):
            continue
        # The child ended while it loaded this package.
        if report.timed_out:  # The package may still work.
            conflict = _unknown_conflict(package, report.ending)
        else:
            conflict = _load_conflict(package, f"its process {report.ending}")
        return _ChildResult({package: conflict}, is_complete=False)
    # The child ended before it loaded a package.
    return _ChildResult({}, is_complete=True)


def _step_name(package: Provenance) -> str:
    return f"importing {package.module}"


def _load_conflict(package: Provenance, how: str, cause: str = "") -> AutoloadConflict:
    place = f"{torch_import.TORCH_GROUP}: {package.name} = {package.value}"
    return AutoloadConflict(
        one_line(f"{package} fails when torch loads it ({place})"),
        builtin.remedy(package),
        how=one_line(how),
        effect="`import torch` fails with this package",
        cause=one_line(cause),
        distribution=package.distribution,
    )


def _unknown_conflict(package: Provenance, ending: str) -> AutoloadConflict:
    off = f"{torch_import.AUTOLOAD}=0"
    return AutoloadConflict(
        f"whether torch can load {package} is not known: it {ending}",
        f"raise ACCEL_PROBE_TIMEOUT, or set {off}",
        known=False,
    )


def _device_conflict(package: Provenance, effect: str) -> AutoloadConflict:
    subject = f"{package}, which torch loads ({package.value}),"
    return AutoloadConflict(
        one_line(f"{subject} {effect}"),
        builtin.remedy(package),
        effect="`import torch` loads it",
    )


def load_in_child(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """In the child process, load each package as torch does, and return the conflicts."""
    stage("import of torch")
    torch_import.import_torch()
    chosen = decode_backend(job["chosen"]) if job["chosen"] else None
    packages = [Provenance(**source) for source in job["packages"]]
    conflicts: list[dict[str, object]] = []
    for index, package in enumerate(packages):
        stage(_step_name(package))
        conflict = _load_package(package, chosen)
        if conflict is not None:
            encoded = {"package_index": index, "conflict": asdict(conflict)}
            conflicts.append(encoded)
        # After a package has taken over the namespace, the effect of later packages can
        # no longer be determined.
        if chosen is not None and checks.namespace_owner(chosen):
            break
    return {"conflicts": conflicts}


def _load_package(
    package: Provenance, chosen: Backend | None
) -> AutoloadConflict | None:
    """Load one package as torch does, and return its conflict, or `None` if it has none."""
    conflict = None
    previous_slot = torch_import.private_use1_name()
    try:
        register_device = package.load()
        register_device()  # torch calls the loaded object without a check of its type.
    except PLUGIN_ERRORS as error:
        how, _step = torch_import.cause_and_step(error)
        conflict = _load_conflict(package, how, root_cause(error))
    if chosen is None:
        return conflict
    slot = torch_import.private_use1_name()
    is_slot_taken = slot not in (previous_slot, chosen.device_type)
    if is_slot_taken and builtin.may_use_private_use1(chosen):
        effect = f"takes torch's one PrivateUse1 slot, which {chosen.name} needs"
        return _device_conflict(package, effect)
    overtaker = checks.namespace_owner(chosen)
    if overtaker:
        effect = f"puts {overtaker} in the place of torch.{chosen.device_type}"
        return _device_conflict(package, effect)
    return conflict
