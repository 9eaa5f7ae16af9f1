"""Start the ranks of a framework's program as a user would start a training."""

from __future__ import annotations

from accel_core import Accelerator, is_installed
from accel_testing.conformance.claims import skip_unsupported
from accel_testing.conformance.groups import GROUPS
from accel_testing.conformance.launching import (
    MOST_RANKS,
    LaunchResult,
    launch,
    max_ranks,
)

__all__ = ["run_in_one_process", "run_in_ranks", "run_on_every_device"]

_SECONDS = 400.0


def run_in_one_process(framework: str, backend: str, *parts: str) -> LaunchResult:
    """Run parts of a framework's program in one process; skip the check without the framework."""
    return _run(framework, backend, parts, ranks=1)


def run_in_ranks(
    framework: str, backend: str, accelerator: Accelerator, *parts: str
) -> LaunchResult:
    """Run parts of a framework's program in several ranks; skip the check if devices are missing."""
    _require_installed(framework)
    ranks = _rank_count(accelerator)
    if ranks == 1:
        skip_unsupported(f"{accelerator.device_count()} device for {MOST_RANKS} ranks")
    return _run(framework, backend, parts, ranks=ranks)


def run_on_every_device(
    framework: str, backend: str, accelerator: Accelerator, *parts: str
) -> LaunchResult:
    """Run parts of a framework's program in one rank per device, up to the maximum number of ranks."""
    return _run(framework, backend, parts, ranks=_rank_count(accelerator))


def _rank_count(accelerator: Accelerator) -> int:
    """Return the number of ranks, at most one per device, because frameworks use one device per rank."""
    ranks = max_ranks(accelerator)
    if accelerator.is_accelerator():
        return min(ranks, accelerator.device_count())
    return ranks


def _run(
    framework: str, backend: str, parts: tuple[str, ...], *, ranks: int
) -> LaunchResult:
    """Run the framework's program on the backend; skip the check if the framework is not installed."""
    _require_installed(framework)
    return launch(
        f"accel_testing.conformance.frameworks.{framework}_program", *parts, ranks=ranks, seconds=_SECONDS,
        DS_ACCELERATOR=backend, TORCHELASTIC_RUN_ID="verify",
    )  # fmt: skip


def _require_installed(framework: str) -> None:
    """Skip the check unless each package that the framework's checks need is installed."""
    groups = {group.name: group for group in GROUPS}
    for names in groups[f"frameworks.{framework}"].needs:
        if not any(map(is_installed, names)):
            skip_unsupported(
                f"{names[0]} is not installed: pip install {names[0].replace('_', '-')}"
            )
