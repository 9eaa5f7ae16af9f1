"""Checks of level 0, which check the declaration without torch."""

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
from accel_testing.conformance.base import BackendTestBase, find_verdict
from accel_testing.conformance.claims import BrokenPromise, require, skip_unsupported

__all__ = ["TestDeclaration"]

#: The maximum time in milliseconds to import a plugin's module after accel_core has been imported.
MOST_MS = 5.0
_IMPORTS = 5
_TIMEOUT = 20.0
#: Folders that some wheels contain by mistake.
_STRAY = ("tests", "test", "docs", "examples", "benchmarks")


class TestDeclaration(BackendTestBase):
    """An installed plugin costs little, and its declaration and metadata are complete."""

    @pytest.fixture(scope="class")
    @classmethod
    def verdict(cls, backend_name: str) -> Verdict:
        """Return the verdict on the backend. Raises `BrokenPromise` if its declaration cannot be read."""
        verdict = find_verdict(backend_name)
        if verdict.backend is None:
            raise BrokenPromise(f"no declaration could be read: {verdict.reason}")
        return verdict

    @pytest.fixture(scope="class")
    @classmethod
    def imported(cls, verdict: Verdict) -> dict[str, Any]:
        """Return the effects of importing the plugin's module in a new process (see `observe_import`)."""
        if verdict.builtin:
            skip_unsupported("accel_core declares the backend")
        report = child.run(
            observe_import, {"module": verdict.provenance.value}, _TIMEOUT
        )
        require(
            report.answer is not None,
            f"importing {verdict.provenance.value} {report.ending}",
        )
        return dict(report.answer or {})

    def test_entry_point_declares_it(self, verdict: Verdict) -> None:
        """An entry point in the group `accel.backends` names the module that declares the backend."""
        if verdict.builtin:
            skip_unsupported("accel_core declares the backend")
        require(verdict.distribution, "the distribution of the entry point is unknown")
        require(verdict.provenance.entry_point, "the entry point has no name")

    def test_import_brings_no_torch(self, imported: dict[str, Any]) -> None:
        """The module imports neither torch nor a vendor's package, which would delay every `accel list`."""
        forbidden = [name for name in imported["heavy"] if name]
        require(
            not forbidden,
            f"importing the plugin's module imports {', '.join(forbidden)}",
        )

    def test_import_writes_no_environment(self, imported: dict[str, Any]) -> None:
        """Importing the module changes no variable, no signal handler and no function of other packages."""
        require(
            not imported["changes"],
            f"importing the plugin's module: {', '.join(imported['changes'])}",
        )

    def test_import_starts_no_thread(self, imported: dict[str, Any]) -> None:
        """Importing the module starts no thread: a program with a second thread cannot fork safely."""
        count = imported["threads"]
        require(
            count == 1,
            f"after importing the plugin's module, {count} threads are running",
        )

    def test_import_is_quick(self, imported: dict[str, Any]) -> None:
        """Importing the module takes less than 5 ms, because discovery imports all plugins."""
        milliseconds = imported["ms"]
        require(
            milliseconds < MOST_MS,
            f"importing the plugin's module took {milliseconds:.1f} ms; expected under {MOST_MS:g}",
        )

    def test_hooks_fit(self, backend_name: str) -> None:
        """accel_core calls every hook in the module, and passes every parameter of the hook."""
        verdict = find_verdict(backend_name)
        hooks_fit = (
            verdict.why is None or verdict.why.reason is not Reason.HOOK_DOES_NOT_FIT
        )
        require(hooks_fit, verdict.reason)

    def test_declares_itself(self, verdict: Verdict) -> None:
        """The declaration has a description, and a next step if the vendor's package is missing."""
        backend = verdict.declaration
        require(backend.description, "the declaration has no description")
        needs_package = backend.vendor_imports != ("torch",)
        require(
            backend.install_hint or not needs_package,
            "install_hint is empty, although vendor_import is not a module of torch",
        )

    def test_class_can_be_found(self, verdict: Verdict) -> None:
        """The module and the class that the declaration names exist."""
        path = verdict.declaration.accelerator
        if not path:
            skip_unsupported("the declaration names no accelerator class")
        module = path.partition(":")[0]
        # This imports the parents of a dotted name, which are the plugin's module and free of side effects.
        require(
            importlib.util.find_spec(module),
            f"accelerator is {path!r}, but the module {module} does not exist",
        )

    def test_distribution_needs_accel_core(self, verdict: Verdict) -> None:
        """The distribution requires accel-core, and pins neither accel-core nor torch to one version."""
        requirements = [
            Requirement(text)
            for text in self._metadata(verdict).get_all("Requires-Dist") or ()
        ]
        requirement_by_name = {
            requirement.name.lower().replace("_", "-"): requirement
            for requirement in requirements
        }
        require(
            "accel-core" in requirement_by_name,
            "the distribution does not require accel-core",
        )
        pinned = [
            str(requirement_by_name[name])
            for name in ("accel-core", "torch")
            if name in requirement_by_name and _is_pinned(requirement_by_name[name])
        ]
        require(
            not pinned, f"the distribution pins {', '.join(pinned)}; expected a range"
        )

    def test_distribution_tells_about_itself(self, verdict: Verdict) -> None:
        """The distribution's metadata contains a summary and a licence, which package indexes show."""
        fields = self._metadata(verdict)
        require(fields.get("Summary"), "the distribution's metadata has no Summary")
        licence = (
            fields.get("License-Expression")
            or fields.get("License")
            or fields.get("License-File")
        )
        require(licence, "the distribution's metadata has no licence")

    def test_wheel_holds_its_package_alone(self, verdict: Verdict) -> None:
        """The wheel contains only its package: a top-level `tests` would conflict with other packages."""
        files = metadata.files(verdict.distribution) if verdict.distribution else None
        if verdict.builtin or not files:
            skip_unsupported("no wheel is installed, or its RECORD is missing")
        if any("editable" in str(file) for file in files or ()):
            skip_unsupported("an editable installation")
        top_level = {file.parts[0] for file in files or ()} - {".."}
        stray = sorted(top_level & {*_STRAY})
        require(not stray, f"the wheel puts {', '.join(stray)} into site-packages")
        package = _top(verdict.provenance.value)
        require(
            package in top_level or f"{package}.py" in top_level,
            f"the wheel does not contain {package}; it contains {sorted(top_level)}",
        )

    def _metadata(self, verdict: Verdict) -> Any:
        """Return the metadata of the backend's distribution; skip the check if accel_core declares it."""
        if verdict.builtin:
            skip_unsupported("accel_core declares the backend")
        return metadata.metadata(verdict.distribution)


def _top(module: str) -> str:
    """Return the top-level package of a module."""
    return module.partition(".")[0]


def _is_pinned(requirement: Requirement) -> bool:
    """Return whether only one version satisfies the requirement."""
    operators = [specifier.operator for specifier in requirement.specifier]
    return "==" in operators or "===" in operators


def observe_import(arguments: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Import a plugin's module in a child process without torch, and return the effects of the import.

    `heavy` lists the forbidden packages that were imported, and `changes` lists the changes to the process.
    `threads` is the number of threads. `ms` is the time of the fastest of several imports, in milliseconds.
    """
    import threading
    import time

    from accel_tools.doctor.process_snapshot import changes_since, take_snapshot

    name = arguments["module"].partition(":")[0]
    stage(name)
    modules_before = set(sys.modules)
    snapshot = take_snapshot()
    began = time.perf_counter()
    module = importlib.import_module(name)
    seconds = [time.perf_counter() - began]
    changed = [
        change.what for change in changes_since(snapshot) if change.kind != "thread"
    ]
    new_modules = set(sys.modules) - modules_before
    for _ in range(_IMPORTS - 1):  # the first import may have compiled the module
        for module_name in new_modules & set(sys.modules):
            if _top(module_name) == _top(name):
                del sys.modules[module_name]
        began = time.perf_counter()
        module = importlib.import_module(name)
        seconds.append(time.perf_counter() - began)

    declared = declared_backends(hooks_of(module))
    forbidden = {"torch", "numpy"}
    for backend in declared:
        forbidden |= {_top(module_name) for module_name in backend.vendor_imports}
    heavy = sorted(forbidden & {_top(module_name) for module_name in new_modules})
    return {
        "heavy": heavy,
        "changes": changed,
        "threads": threading.active_count(),
        "ms": min(seconds) * 1e3,
    }
