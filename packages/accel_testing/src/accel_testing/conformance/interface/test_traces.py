"""Changes that detecting, probing and building a backend leave in a process."""

from __future__ import annotations

import os
from typing import Any

import pytest

from accel_core import Accelerator
from accel_core.sandbox import child
from accel_core.torch_import import AUTOLOAD
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, skip_unsupported
from accel_testing.conformance.forks import run_in_fork, scale_timeout

__all__ = ["TestSideEffects"]

_SECONDS = 60.0
#: What a forked process adds up on a device that was not started before.
_FORKED = "3.0"


class TestSideEffects(BackendTestBase):
    """Finding and building the accelerator must not affect programs that do not use it."""

    @pytest.fixture(scope="class")
    @classmethod
    def traces(cls, backend_name: str) -> dict[str, Any]:
        """Observations of a fresh process: changes by step, threads, and whether the device was started."""
        report = child.run(
            look, {"backend": backend_name}, scale_timeout(_SECONDS), autoload=True
        )
        require(
            report.answer is not None,
            f"a process that made the accelerator {report.ending}",
        )
        return dict(report.answer or {})

    def test_making_replaces_nothing_of_others(self, traces: dict[str, Any]) -> None:
        """No function of torch, os, builtins or subprocess is replaced, but as the declaration says."""
        found = [
            name for kind, name in traces["changes"] if kind in ("function", "hook")
        ]
        words = f"making the accelerator replaces {', '.join(found[:10])}"
        require(not found, words + _cure(traces))

    def test_making_takes_no_signals(self, traces: dict[str, Any]) -> None:
        """Signal handlers stay as they are: Ctrl-C and a scheduler's SIGTERM are for the program."""
        found = [name for kind, name in traces["changes"] if kind == "signal"]
        require(
            not found,
            f"making the accelerator handles {', '.join(found)}{_cure(traces)}",
        )

    def test_making_keeps_the_environment(self, traces: dict[str, Any]) -> None:
        """Variables, working directory, umask and locale stay: processes started later inherit them."""
        kinds = ("environment", "folder", "umask", "locale")
        found = [f"{kind} {name}" for kind, name in traces["changes"] if kind in kinds]
        require(
            not found,
            f"making the accelerator changes: {', '.join(found)}{_cure(traces)}",
        )

    def test_making_keeps_torchs_settings(self, traces: dict[str, Any]) -> None:
        """Determinism, seeds, threads and the default type of torch stay: otherwise results would differ."""
        found = traces["settings"]
        require(
            not found,
            f"making the accelerator changes {', '.join(found)}{_cure(traces)}",
        )

    def test_making_starts_no_thread(self, traces: dict[str, Any]) -> None:
        """No Python thread is left running: a program with one cannot fork safely."""
        found = [name for kind, name in traces["changes"] if kind == "thread"]
        require(not found, f"making the accelerator starts {', '.join(found)}")

    def test_is_initialized_is_torchs(self, traces: dict[str, Any]) -> None:
        """`is_initialized()` agrees with torch's module of the device, before its first use and after."""
        for when, (told, theirs) in traces["initialized"].items():
            require(
                theirs in (None, told),
                f"{when} is_initialized() gave {told}, and torch's own {theirs}",
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
                count, {"backend": backend_name}, scale_timeout(_SECONDS), autoload=True
            )
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update(
                    {name: value}
                )
        written = ", ".join(f"{name}={value}" for name, value in environ.items())
        require(report.answer is not None, f"a process with {written} {report.ending}")
        seen = (report.answer or {})["count"]
        require(
            seen == 1,
            f"set_visible_devices_envs of one device wrote {written}; a child sees {seen}",
        )

    def test_making_starts_no_device(self, traces: dict[str, Any]) -> None:
        """An accelerator that was built and not used has started no device: the program can still fork."""
        said = traces["forked"]
        words = f"a process forked after the accelerator was made could not use the device: {said}"
        require(said == _FORKED, words + _cure(traces))


def _cure(traces: dict[str, Any]) -> str:
    """The hook that helps where making the accelerator has started the device."""
    if traces["forked"] == _FORKED:
        return ""
    return "; if device_count() starts the device, count without the runtime in accel_probe"


def count(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """How many devices there are: called in a child."""
    from accel_core import accelerator

    stage("count")
    return {"count": accelerator(job["backend"]).device_count()}


def look(job: dict[str, Any], stage: child.Stage) -> dict[str, object]:
    """Make the accelerator in this process and say what changed: called in a child."""
    import torch

    from accel_core import accelerator
    from accel_tools.doctor.footprint import changes, footprint

    stage("import")
    import torch._dynamo
    import torch.distributed

    before, settings = footprint(), _settings(torch)
    stage("make")
    made = accelerator(job["backend"])
    changed, now = changes(before), _settings(torch)
    asks: Any = getattr(getattr(torch, made.device_type, None), "is_initialized", None)
    initialized = {
        "before its first use": (made.is_initialized(), asks() if asks else None)
    }
    stage("fork")
    forked = run_in_fork(
        lambda: str(torch.full((3,), 1.0, device=made.device()).sum().item()),
        scale_timeout(_SECONDS / 2),
    )[0]
    packages = {module.partition(".")[0] for module in made.backend.vendor_imports} - {
        "torch"
    }
    # What the vendor's package does at its own import is told by `accel doctor`: it is not the backend's.
    theirs = (
        *packages,
        *made.backend.in_torch.wrapped_by,
        *made.backend.in_torch.taken_over_by,
    )
    found = [
        [change.kind, change.name]
        for change in changed
        if change.to.partition(".")[0] not in theirs and change.name != AUTOLOAD
    ]
    others = [
        f"{name} from {settings[name]} to {now[name]}"
        for name in now
        if now[name] != settings[name]
    ]
    torch.ones(1, device=made.device())
    initialized["after its first use"] = (
        made.is_initialized(),
        asks() if asks else None,
    )
    return {
        "changes": found,
        "settings": others,
        "forked": forked,
        "initialized": initialized,
    }


def _settings(torch: Any) -> dict[str, str]:
    """Process-wide settings of torch, as text, by the function that reads them."""
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
