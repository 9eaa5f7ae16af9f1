"""Level 0: the declaration, without torch."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement

from accel_core import Reason, Verdict
from accel_core.plugins import declared_backends, hooks_of
from accel_core.sandbox import child
from accel_testing.conformance.claims import BrokenPromise, not_claimed, require
from accel_testing.conformance.subject import Subject, candidate_of

__all__ = ["TestDeclaration"]

#: Milliseconds that importing a plugin's module may take, accel_core's own modules there already.
MOST_MS = 5.0
_RUNS = 5
_SECONDS = 20.0
#: What a wheel puts beside its package by mistake.
_STRAY = ("tests", "test", "docs", "examples", "benchmarks")


class TestDeclaration(Subject):
    """Costs of the plugin for everybody who has it installed, and its texts for people."""

    @pytest.fixture(scope="class")
    @classmethod
    def candidate(cls, backend_name: str) -> Verdict:
        """The declaration as it was found."""
        found = candidate_of(backend_name)
        if found.backend is None:
            raise BrokenPromise(f"no declaration could be read: {found.reason}")
        return found

    @pytest.fixture(scope="class")
    @classmethod
    def imported(cls, candidate: Verdict) -> dict[str, Any]:
        """Effects of importing the plugin's module in a fresh process."""
        if candidate.builtin:
            not_claimed("the backend is accel_core's own")
        report = child.run(look, {"module": candidate.provenance.value}, _SECONDS)
        require(
            report.answer is not None,
            f"importing {candidate.provenance.value} {report.ending}",
        )
        return dict(report.answer or {})

    def test_entry_point_declares_it(self, candidate: Verdict) -> None:
        """An entry point of the group `accel.backends` leads to the module that declares the backend."""
        if candidate.builtin:
            not_claimed("the backend is accel_core's own")
        require(
            candidate.distribution, "no distribution is known to bring the entry point"
        )
        require(candidate.provenance.entry_point, "the entry point has no name")

    def test_import_brings_no_torch(self, imported: dict[str, Any]) -> None:
        """The module imports neither torch nor a vendor's package: every `accel list` would wait for it."""
        found = [name for name in imported["heavy"] if name]
        require(not found, f"importing the plugin's module imports {', '.join(found)}")

    def test_import_writes_no_environment(self, imported: dict[str, Any]) -> None:
        """Importing it changes nothing: no variable, no handler, no function of others."""
        require(
            not imported["changes"],
            f"importing the plugin's module: {', '.join(imported['changes'])}",
        )

    def test_import_starts_no_thread(self, imported: dict[str, Any]) -> None:
        """Importing it starts no thread: a program that has one cannot fork safely."""
        count = imported["threads"]
        require(count == 1, f"after importing the plugin's module {count} threads run")

    def test_import_is_quick(self, imported: dict[str, Any]) -> None:
        """Importing it takes under 5 ms: discovery imports all plugins."""
        took = imported["ms"]
        require(
            took < MOST_MS,
            f"importing the plugin's module took {took:.1f} ms; expected under {MOST_MS:g}",
        )

    def test_hooks_fit(self, backend_name: str) -> None:
        """Every hook of the module is one that accel_core calls, with parameters that it passes."""
        found = candidate_of(backend_name)
        fit = found.why is None or found.why.reason is not Reason.HOOK_DOES_NOT_FIT
        require(fit, found.reason)

    def test_declares_itself(self, candidate: Verdict) -> None:
        """The declaration has a description, and a next step if the vendor's package is missing."""
        backend = candidate.declaration
        require(backend.description, "the declaration has no description")
        needs = backend.vendor_imports != ("torch",)
        require(
            backend.install_hint or not needs,
            "install_hint is empty, and vendor_import is not torch's",
        )

    def test_class_can_be_found(self, candidate: Verdict) -> None:
        """The module and the class that the declaration names exist."""
        path = candidate.declaration.accelerator
        if not path:
            not_claimed("the backend has no class of its own")
        module = path.partition(":")[0]
        # Parents of a dotted name are imported by this: the plugin's own module, which is inert.
        require(
            importlib.util.find_spec(module),
            f"accelerator is {path!r}, and there is no module {module}",
        )

    def test_distribution_needs_accel_core(self, candidate: Verdict) -> None:
        """The distribution asks for accel-core, and pins neither it nor torch to one version."""
        needs = [
            Requirement(text)
            for text in self._metadata(candidate).get_all("Requires-Dist") or ()
        ]
        by_name = {need.name.lower().replace("_", "-"): need for need in needs}
        require("accel-core" in by_name, "the distribution does not require accel-core")
        pinned = [
            str(by_name[name])
            for name in ("accel-core", "torch")
            if name in by_name
            and any(each.operator in ("==", "===") for each in by_name[name].specifier)
        ]
        require(
            not pinned, f"the distribution pins {', '.join(pinned)}; expected a range"
        )

    def test_distribution_tells_about_itself(self, candidate: Verdict) -> None:
        """The distribution's metadata have a summary and a licence: a registry shows them."""
        found = self._metadata(candidate)
        require(found.get("Summary"), "the distribution's metadata has no Summary")
        licence = (
            found.get("License-Expression")
            or found.get("License")
            or found.get("License-File")
        )
        require(licence, "the distribution's metadata names no licence")

    def test_wheel_holds_its_package_alone(self, candidate: Verdict) -> None:
        """The wheel contains only its package: a top-level `tests` would be shared by everybody."""
        name = candidate.distribution
        files = metadata.files(name) if name else None
        if candidate.builtin or not files:
            not_claimed("no wheel is installed, or its RECORD is gone")
        if any("editable" in str(path) for path in files or ()):
            not_claimed("an editable installation")
        tops = {path.parts[0] for path in files or () if path.parts[0] != ".."}
        stray = sorted(top for top in tops if top in _STRAY)
        require(not stray, f"the wheel puts {', '.join(stray)} into site-packages")
        package = candidate.provenance.value.partition(".")[0]
        require(
            package in tops or f"{package}.py" in tops,
            f"the wheel has no {package}; it has {sorted(tops)}",
        )

    def _metadata(self, candidate: Verdict) -> Any:
        if candidate.builtin:
            not_claimed("the backend is accel_core's own")
        return metadata.metadata(candidate.distribution)


def look(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Import the plugin's module and say what came of it: called in a child without torch."""
    import threading
    import time

    from accel_tools.doctor.footprint import changes, footprint

    name = job["module"].partition(":")[0]
    stage(name)
    known = set(sys.modules)
    before = footprint()
    started = time.perf_counter()
    module = importlib.import_module(name)
    took = [time.perf_counter() - started]
    found = [change.what for change in changes(before) if change.kind != "thread"]
    new = set(sys.modules) - known
    for _ in range(_RUNS - 1):  # the first time may have compiled it
        for each in new & set(sys.modules):
            if each.partition(".")[0] == name.partition(".")[0]:
                del sys.modules[each]
        started = time.perf_counter()
        module = importlib.import_module(name)
        took.append(time.perf_counter() - started)

    declared = declared_backends(hooks_of(module))
    vendors = {v.partition(".")[0] for each in declared for v in each.vendor_imports}
    heavy = sorted(
        {"torch", "numpy", *vendors} & {each.partition(".")[0] for each in new}
    )
    return {
        "heavy": heavy,
        "changes": found,
        "threads": threading.active_count(),
        "ms": min(took) * 1e3,
    }
