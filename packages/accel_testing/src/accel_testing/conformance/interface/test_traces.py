"""Checks of the side effects of creating an accelerator in a process."""

from __future__ import annotations

import os
from typing import Any

import pytest

from accel_core import Accelerator, Backend
from accel_core.sandbox import child
from accel_core.torch_import import AUTOLOAD
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, skip_unsupported
from accel_testing.conformance.forks import run_in_fork, scale_timeout

__all__ = ["TestSideEffects"]

_SECONDS = 60.0
#: The sum that a forked process computes if the device was not started before the fork.
_SUM_IN_FORK = "3.0"


class TestSideEffects(BackendTestBase):
    """Finding and creating the accelerator must not affect programs that do not use it."""

    @pytest.fixture(scope="class")
    @classmethod
    def traces(cls, backend_name: str) -> dict[str, Any]:
        """Return the effects of creating the accelerator in a new process; see `observe_creation`."""
        report = child.run(
            observe_creation,
            {"backend": backend_name},
            scale_timeout(_SECONDS),
            autoload=True,
        )
        require(
            report.answer is not None,
            f"a process that created the accelerator {report.ending}",
        )
        return dict(report.answer or {})

    def test_making_replaces_nothing_of_others(self, traces: dict[str, Any]) -> None:
        """No function of torch, os, builtins or subprocess is replaced, except as declared."""
        replaced = [
            name for kind, name in traces["changes"] if kind in ("function", "hook")
        ]
        message = f"creating the accelerator replaces {', '.join(replaced[:10])}"
        require(not replaced, message + _hint(traces))

    def test_making_takes_no_signals(self, traces: dict[str, Any]) -> None:
        """Signal handlers are unchanged, because the program handles Ctrl-C and a scheduler's SIGTERM."""
        signals = [name for kind, name in traces["changes"] if kind == "signal"]
        require(
            not signals,
            f"creating the accelerator changes the handlers of {', '.join(signals)}{_hint(traces)}",
        )

    def test_making_keeps_the_environment(self, traces: dict[str, Any]) -> None:
        """Variables, working directory, umask and locale, which child processes inherit, are unchanged."""
        kinds = ("environment", "folder", "umask", "locale")
        changes = [
            f"{kind} {name}" for kind, name in traces["changes"] if kind in kinds
        ]
        require(
            not changes,
            f"creating the accelerator changes: {', '.join(changes)}{_hint(traces)}",
        )

    def test_making_keeps_torchs_settings(self, traces: dict[str, Any]) -> None:
        """Torch's determinism, seeds, threads and default type, which affect results, are unchanged."""
        settings = traces["settings"]
        require(
            not settings,
            f"creating the accelerator changes {', '.join(settings)}{_hint(traces)}",
        )

    def test_making_starts_no_thread(self, traces: dict[str, Any]) -> None:
        """No Python thread keeps running, because a program with a second thread cannot fork safely."""
        threads = [name for kind, name in traces["changes"] if kind == "thread"]
        require(not threads, f"creating the accelerator starts {', '.join(threads)}")

    def test_is_initialized_is_torchs(self, traces: dict[str, Any]) -> None:
        """`is_initialized()` agrees with torch's module, before and after the device's first use."""
        for when, (answer, by_torch) in traces["initialized"].items():
            require(
                by_torch in (None, answer),
                f"{when}, is_initialized() returned {answer}, but {by_torch} in torch's module",
            )

    def test_a_child_sees_the_devices_that_it_is_left(
        self, accelerator: Accelerator, backend_name: str
    ) -> None:
        """A child with the variables of `set_visible_devices_envs` sees those devices, as launchers need."""
        environ: dict[str, str] = {}
        accelerator.set_visible_devices_envs(environ, [accelerator.device_count() - 1])
        if not environ:
            skip_unsupported("the backend declares no variable that hides devices")
        before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        try:
            report = child.run(
                count_devices,
                {"backend": backend_name},
                scale_timeout(_SECONDS),
                autoload=True,
            )
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        variables = ", ".join(f"{name}={value}" for name, value in environ.items())
        require(
            report.answer is not None, f"a process with {variables} {report.ending}"
        )
        devices = (report.answer or {})["count"]
        require(
            devices == 1,
            f"set_visible_devices_envs of one device wrote {variables}; a child sees {devices}",
        )

    def test_making_starts_no_device(self, traces: dict[str, Any]) -> None:
        """Creating an accelerator without using it does not start a device, so the program can still fork."""
        sum_in_fork = traces["forked"]
        message = f"a process forked after the accelerator's creation cannot use the device: {sum_in_fork}"
        require(sum_in_fork == _SUM_IN_FORK, message + _hint(traces))


def _hint(traces: dict[str, Any]) -> str:
    """Return a hint about the hook to use if creating the accelerator started the device; else empty."""
    if traces["forked"] == _SUM_IN_FORK:
        return ""
    return "; if device_count() starts the device, count without the runtime in accel_probe"


def count_devices(arguments: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Return the number of devices as `count`; runs in a child process."""
    from accel_core import accelerator

    stage("count")
    return {"count": accelerator(arguments["backend"]).device_count()}


def observe_creation(
    arguments: dict[str, Any], stage: child.Stage
) -> dict[str, object]:
    """Create and use the accelerator in this child process, and return the changes.

    `changes` are pairs of a kind and a name, and `settings` are the changed settings of torch. `forked` is
    the sum that a forked process computed, or its error. `initialized` contains the results of
    `is_initialized` in the accelerator and in torch.
    """
    import torch

    from accel_core import accelerator
    from accel_tools.doctor.process_snapshot import changes_since, take_snapshot

    stage("import")
    import torch._dynamo
    import torch.distributed

    snapshot, settings = take_snapshot(), _settings(torch)
    stage("make")
    created = accelerator(arguments["backend"])
    all_changes, settings_after = changes_since(snapshot), _settings(torch)
    initialized = {"before its first use": _initialized(torch, created)}
    stage("fork")
    forked, _status = run_in_fork(
        lambda: str(torch.full((3,), 1.0, device=created.device()).sum().item()),
        scale_timeout(_SECONDS / 2),
    )
    packages = _packages_of(created.backend)
    changed = [
        [change.kind, change.name]
        for change in all_changes
        if change.to.partition(".")[0] not in packages and change.name != AUTOLOAD
    ]
    changed_settings = [
        f"{name} from {settings[name]} to {value}"
        for name, value in settings_after.items()
        if value != settings[name]
    ]
    torch.ones(1, device=created.device())
    initialized["after its first use"] = _initialized(torch, created)
    return {
        "changes": changed,
        "settings": changed_settings,
        "forked": forked,
        "initialized": initialized,
    }


def _initialized(torch: Any, accelerator: Accelerator) -> tuple[bool, bool | None]:
    """Return whether the device is initialized according to the accelerator and to torch's module."""
    module = getattr(torch, accelerator.device_type, None)
    is_initialized = getattr(module, "is_initialized", None)
    by_torch = is_initialized() if is_initialized else None
    return accelerator.is_initialized(), by_torch


def _packages_of(backend: Backend) -> set[str]:
    """Return the vendor's packages, whose changes at import `accel doctor` reports."""
    imported = {module.partition(".")[0] for module in backend.vendor_imports}
    integration = backend.torch_integration
    return (imported - {"torch"}) | {
        *integration.wrapped_by,
        *integration.taken_over_by,
    }


def _settings(torch: Any) -> dict[str, str]:
    """Return torch's process-wide settings as text, by the function that reads each setting."""
    return {
        "are_deterministic_algorithms_enabled": str(
            torch.are_deterministic_algorithms_enabled()
        ),
        "utils.deterministic.fill_uninitialized_memory": str(
            torch.utils.deterministic.fill_uninitialized_memory
        ),
        "initial_seed": str(torch.initial_seed()),
        "get_rng_state": str(hash(torch.get_rng_state().numpy().tobytes())),
        "get_default_dtype": str(torch.get_default_dtype()),
        "get_num_threads": str(torch.get_num_threads()),
        "is_grad_enabled": str(torch.is_grad_enabled()),
        "get_float32_matmul_precision": str(torch.get_float32_matmul_precision()),
    }
