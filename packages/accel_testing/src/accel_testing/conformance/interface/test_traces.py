"""Checks of the changes that making an accelerator leaves in a process."""

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
    """Finding and building the accelerator must not affect programs that do not use it."""

    @pytest.fixture(scope="class")
    @classmethod
    def traces(cls, backend_name: str) -> dict[str, Any]:
        """Return what making the accelerator changes in a fresh process; see `observe_creation`."""
        report = child.run(
            observe_creation,
            {"backend": backend_name},
            scale_timeout(_SECONDS),
            autoload=True,
        )
        require(
            report.answer is not None,
            f"a process that made the accelerator {report.ending}",
        )
        return dict(report.answer or {})

    def test_making_replaces_nothing_of_others(self, traces: dict[str, Any]) -> None:
        """No function of torch, os, builtins or subprocess is replaced, but as the declaration says."""
        replaced = [
            name for kind, name in traces["changes"] if kind in ("function", "hook")
        ]
        message = f"making the accelerator replaces {', '.join(replaced[:10])}"
        require(not replaced, message + _hint(traces))

    def test_making_takes_no_signals(self, traces: dict[str, Any]) -> None:
        """Signal handlers stay as they are: Ctrl-C and a scheduler's SIGTERM are for the program."""
        signals = [name for kind, name in traces["changes"] if kind == "signal"]
        require(
            not signals,
            f"making the accelerator handles {', '.join(signals)}{_hint(traces)}",
        )

    def test_making_keeps_the_environment(self, traces: dict[str, Any]) -> None:
        """Variables, working directory, umask and locale stay: processes started later inherit them."""
        kinds = ("environment", "folder", "umask", "locale")
        changes = [
            f"{kind} {name}" for kind, name in traces["changes"] if kind in kinds
        ]
        require(
            not changes,
            f"making the accelerator changes: {', '.join(changes)}{_hint(traces)}",
        )

    def test_making_keeps_torchs_settings(self, traces: dict[str, Any]) -> None:
        """Determinism, seeds, threads and the default type of torch stay: otherwise results would differ."""
        settings = traces["settings"]
        require(
            not settings,
            f"making the accelerator changes {', '.join(settings)}{_hint(traces)}",
        )

    def test_making_starts_no_thread(self, traces: dict[str, Any]) -> None:
        """No Python thread is left running: a program with one cannot fork safely."""
        threads = [name for kind, name in traces["changes"] if kind == "thread"]
        require(not threads, f"making the accelerator starts {', '.join(threads)}")

    def test_is_initialized_is_torchs(self, traces: dict[str, Any]) -> None:
        """`is_initialized()` agrees with torch's module of the device, before its first use and after."""
        for when, (answer, by_torch) in traces["initialized"].items():
            require(
                by_torch in (None, answer),
                f"{when} is_initialized() gave {answer}, and torch's own {by_torch}",
            )

    def test_a_child_sees_the_devices_that_it_is_left(
        self, accelerator: Accelerator, backend_name: str
    ) -> None:
        """A child with the variables of `set_visible_devices_envs` sees those devices: launchers need it."""
        environ: dict[str, str] = {}
        accelerator.set_visible_devices_envs(environ, [accelerator.device_count() - 1])
        if not environ:
            skip_unsupported("no variable is known that hides devices")
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
        """An accelerator that was built and not used has started no device: the program can still fork."""
        sum_in_fork = traces["forked"]
        message = f"a process forked after the accelerator was made could not use the device: {sum_in_fork}"
        require(sum_in_fork == _SUM_IN_FORK, message + _hint(traces))


def _hint(traces: dict[str, Any]) -> str:
    """Return which hook helps if making the accelerator has started the device; else nothing."""
    if traces["forked"] == _SUM_IN_FORK:
        return ""
    return "; if device_count() starts the device, count without the runtime in accel_probe"


def count_devices(arguments: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Return the number of devices as `count`; called in a child process."""
    from accel_core import accelerator

    stage("count")
    return {"count": accelerator(arguments["backend"]).device_count()}


def observe_creation(
    arguments: dict[str, Any], stage: child.Stage
) -> dict[str, object]:
    """Make the accelerator in this child process, use it, and return what changed.

    `changes` are pairs of a kind and a name, `settings` those of torch, `forked` the sum that a forked
    process computed, or its error, and `initialized` the answers of the accelerator and of torch.
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
    """Return whether the device is initialized, by the accelerator and by torch's module, if it has one."""
    module = getattr(torch, accelerator.device_type, None)
    is_initialized = getattr(module, "is_initialized", None)
    by_torch = is_initialized() if is_initialized else None
    return accelerator.is_initialized(), by_torch


def _packages_of(backend: Backend) -> set[str]:
    """Return the vendor's packages; `accel doctor` reports what they change at their own import."""
    imported = {module.partition(".")[0] for module in backend.vendor_imports}
    integration = backend.torch_integration
    return (imported - {"torch"}) | {
        *integration.wrapped_by,
        *integration.taken_over_by,
    }


def _settings(torch: Any) -> dict[str, str]:
    """Return process-wide settings of torch, as text, by the function that reads them."""
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
