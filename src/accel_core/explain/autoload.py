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

    #: A clause that names the package and the problem.
    problem: str
    #: The user's next step.
    step: str
    #: How loading the package failed: an error, or the end of the process; may be empty.
    failure: str = ""
    #: A clause on the effect on `import torch` in a program, or an empty string if the
    #: effect is not known.
    effect: str = ""
    #: Type and message of the first error of `failure`, or an empty string if there was
    #: none.
    cause: str = ""
    #: The distribution of a package that does not work, or an empty string if the
    #: package works.
    distribution: str = ""
    #: Whether the problem was observed. This is False if the child did not respond in
    #: time.
    is_certain: bool = True

    def text_with(self, verdicts: Sequence[Verdict]) -> str:
        """Return the conflict as a text to show together with `verdicts`.

        If a verdict has the same cause, the text refers to that verdict instead of
        repeating the cause. If that verdict also has a next step, the text has none.
        """
        for verdict in verdicts:
            has_same_cause = verdict.cause and verdict.cause == self.cause
            if not has_same_cause:
                continue
            # Advice to report the failure does not help the user, so it does not count.
            has_step = verdict.hint not in ("", report_to(verdict.distribution))
            if has_step and self.effect:
                hint = self.effect
            else:
                hint = self.hint
            return f"{self.problem}, for the same reason as {verdict.name}. {hint}"
        return str(self)

    @property
    def reason(self) -> str:
        """The problem, and the error or the end of the process if loading the package
        failed.
        """
        return f"{self.problem}: {self.failure}" if self.failure else self.problem

    @property
    def hint(self) -> str:
        """The package's effect on `import torch`, and the user's next step."""
        return f"{self.effect}: {self.step}" if self.effect else self.step

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"


def with_autoload_conflicts(selection: Selection, settings: Settings) -> Selection:
    """Return the selection with a text on each package that causes problems at
    `import torch`, unless a verdict reports the package already.
    """
    chosen = selection.chosen.backend if selection.chosen else None
    conflicts = autoload_conflicts(chosen, settings.probe_timeout)
    failing_distributions = set()
    for verdict in selection.verdicts:
        if verdict.status.is_failure:
            failing_distributions.add(verdict.distribution)
    texts = []
    for conflict in conflicts:
        # If the package works, `distribution` is empty, and no verdict reports it.
        package_works = not conflict.distribution
        if package_works or conflict.distribution not in failing_distributions:
            texts.append(conflict.text_with(selection.verdicts))
    return replace(selection, autoload=tuple(texts))


def autoload_conflicts(
    chosen: Backend | None, timeout: float
) -> tuple[AutoloadConflict, ...]:
    """Return the packages that break `import torch`, or that take over the device of
    `chosen`.

    A child process imports torch and the packages, within `timeout` seconds. If a
    package crashes that child, another child continues without the package.

    The result is empty in three cases: torch's autoload is off; this process has
    imported torch with autoload on; torch would load only the package of the chosen
    backend.
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
    """Return the conflicts of packages outside `chosen_packages`. If there are no such
    conflicts, return all conflicts.

    The chosen backend's package may fail only because another package was loaded first.
    """
    conflicts_of_others = []
    for package, conflict in conflicts_by_package.items():
        if package.top not in chosen_packages:
            conflicts_of_others.append(conflict)
    if conflicts_of_others:
        return tuple(conflicts_of_others)
    return tuple(conflicts_by_package.values())


def _would_autoload() -> bool:
    """Return whether a first `import torch` in a program would load the packages."""
    is_imported_by_program = "torch" in sys.modules and not torch_import.imported_by_us
    if is_imported_by_program:
        return False
    # A package that failed in this process may have turned autoload off here, as
    # torch_npu does. In another process, autoload would still be on.
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


def _load_conflict(
    package: Provenance, failure: str, cause: str = ""
) -> AutoloadConflict:
    entry_point = f"{torch_import.TORCH_GROUP}: {package.name} = {package.value}"
    return AutoloadConflict(
        problem=one_line(f"{package} fails when torch loads it ({entry_point})"),
        step=builtin.remedy(package),
        failure=one_line(failure),
        effect="`import torch` fails because of this package",
        cause=one_line(cause),
        distribution=package.distribution,
    )


def _unknown_conflict(package: Provenance, ending: str) -> AutoloadConflict:
    """Return the conflict of a package that did not finish loading in time. The package
    may work.
    """
    return AutoloadConflict(
        problem=(
            f"could not determine whether torch can load {package}: "
            f"the package {ending}"
        ),
        step=f"raise ACCEL_PROBE_TIMEOUT, or set {torch_import.AUTOLOAD}=0",
        is_certain=False,
    )


def _device_conflict(package: Provenance, problem: str) -> AutoloadConflict:
    """Return the conflict of a package that takes over the chosen device."""
    return AutoloadConflict(
        problem=one_line(problem),
        step=builtin.remedy(package),
        effect="`import torch` loads this package",
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
    previous_slot_name = torch_import.private_use1_name()
    try:
        register_device = package.load()
        register_device()  # torch calls the loaded object without a check of its type.
    except PLUGIN_ERRORS as error:
        failure, _step = torch_import.cause_and_step(error)
        conflict = _load_conflict(package, failure, root_cause(error))
    if chosen is None:
        return conflict
    # Even a package that failed may have taken over the chosen device before.
    slot_name = torch_import.private_use1_name()
    is_slot_taken = slot_name not in (previous_slot_name, chosen.device_type)
    if is_slot_taken and builtin.may_use_private_use1(chosen):
        problem = (
            f"{package} takes torch's only PrivateUse1 slot, which {chosen.name} needs, "
            f"when torch loads {package.value}"
        )
        return _device_conflict(package, problem)
    replacement = checks.namespace_owner(chosen)
    if replacement:
        problem = (
            f"{package} replaces torch.{chosen.device_type} with {replacement} when "
            f"torch loads {package.value}"
        )
        return _device_conflict(package, problem)
    return conflict
