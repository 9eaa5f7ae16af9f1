"""What finding, trying and making a backend leaves changed in a process."""

from __future__ import annotations

from typing import Any

import pytest

from accel_core.probing import AUTOLOAD, child
from accel_testing.conformance.claims import require
from accel_testing.conformance.forks import in_fork
from accel_testing.conformance.subject import Subject

__all__ = ["TestTraces"]

_SECONDS = 60.0


class TestTraces(Subject):
    """A program that is not about the device must not notice that it was looked for."""

    @pytest.fixture(scope="class")
    @classmethod
    def traces(cls, backend_name: str) -> dict[str, Any]:
        """What a fresh process saw: changes by step, threads, and whether the device was started."""
        report = child.run(look, {"backend": backend_name}, _SECONDS, as_we_are=True)
        require(report.answer is not None, f"a process that made the accelerator {report.ending}")
        return dict(report.answer or {})

    def test_making_replaces_nothing_of_others(self, traces: dict[str, Any]) -> None:
        """No function of torch, os, builtins or subprocess is replaced, but as the declaration says."""
        found = [name for kind, name in traces["changes"] if kind in ("function", "hook")]
        require(not found, f"making the accelerator replaces {', '.join(found[:10])}")

    def test_making_takes_no_signals(self, traces: dict[str, Any]) -> None:
        """Signal handlers stay the program's: Ctrl-C and a scheduler's SIGTERM are its own to answer."""
        found = [name for kind, name in traces["changes"] if kind == "signal"]
        require(not found, f"making the accelerator handles {', '.join(found)}")

    def test_making_keeps_the_environment(self, traces: dict[str, Any]) -> None:
        """Variables, folder, umask and locale stay: what is started later inherits them."""
        kinds = ("environment", "folder", "umask", "locale")
        found = [f"{kind} {name}" for kind, name in traces["changes"] if kind in kinds]
        require(not found, f"making the accelerator changes: {', '.join(found)}")

    def test_making_keeps_torchs_settings(self, traces: dict[str, Any]) -> None:
        """Determinism, seeds, threads and the default type stay: results would be others without a word."""
        found = traces["settings"]
        require(not found, f"making the accelerator changes {', '.join(found)}")

    def test_making_starts_no_device(self, traces: dict[str, Any]) -> None:
        """An accelerator that was made and not used has started no device: a program may fork yet."""
        said = traces["forked"]
        require(
            said == "3.0", f"a process forked after the accelerator was made could not use the device: {said}"
        )


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
    stage("fork")
    forked = in_fork(lambda: str(torch.full((3,), 1.0, device=made.device()).sum().item()), _SECONDS / 2)[0]
    packages = {module.partition(".")[0] for module in made.backend.vendor_imports} - {"torch"}
    # What the vendor's package does at its own import is told by `accel doctor`: it is not the backend's.
    theirs = (*packages, *made.backend.wrapped_by, *made.backend.taken_over_by)
    found = [
        [change.kind, change.name]
        for change in changed
        if change.to.partition(".")[0] not in theirs and change.name != AUTOLOAD
    ]
    others = [f"{name} from {settings[name]} to {now[name]}" for name in now if now[name] != settings[name]]
    return {"changes": found, "settings": others, "forked": forked}


def _settings(torch: Any) -> dict[str, str]:
    """What of torch's is one for the whole process, as text, by the function that tells it."""
    return {
        "are_deterministic_algorithms_enabled": str(torch.are_deterministic_algorithms_enabled()),
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
