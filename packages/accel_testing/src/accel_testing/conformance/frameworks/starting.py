"""Starting the ranks of a framework, as whoever trains with it would."""

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

__all__ = ["alone", "together", "wherever"]

_SECONDS = 400.0


def alone(framework: str, backend: str, *parts: str) -> LaunchResult:
    """Run these parts of the framework's program in one process; skip the check if it is not installed."""
    return _started(framework, backend, parts, ranks=1)


def together(
    framework: str, backend: str, accelerator: Accelerator, *parts: str
) -> LaunchResult:
    """Run these parts in several ranks; skip the check if there are too few devices."""
    _require_installed(framework)
    ranks = _ranks(accelerator)
    if ranks == 1:
        skip_unsupported(f"{accelerator.device_count()} device for {MOST_RANKS} ranks")
    return _started(framework, backend, parts, ranks=ranks)


def wherever(
    framework: str, backend: str, accelerator: Accelerator, *parts: str
) -> LaunchResult:
    """Run these parts in as many ranks as there are devices for, even only one."""
    return _started(framework, backend, parts, ranks=_ranks(accelerator))


def _ranks(accelerator: Accelerator) -> int:
    """A rank has a device of its own, whatever it communicates over: frameworks give the n-th the n-th."""
    ranks = max_ranks(accelerator)
    return (
        min(ranks, accelerator.device_count())
        if accelerator.is_accelerator()
        else ranks
    )


def _started(
    framework: str, backend: str, parts: tuple[str, ...], *, ranks: int
) -> LaunchResult:
    _require_installed(framework)
    return launch(
        f"accel_testing.conformance.frameworks.{framework}_program", *parts, ranks=ranks, seconds=_SECONDS,
        DS_ACCELERATOR=backend, TORCHELASTIC_RUN_ID="verify",
    )  # fmt: skip


def _require_installed(framework: str) -> None:
    group = next(each for each in GROUPS if each.name == f"frameworks.{framework}")
    for row in group.needs:
        if not any(map(is_installed, row)):
            skip_unsupported(
                f"{row[0]} is not installed: pip install {row[0].replace('_', '-')}"
            )
