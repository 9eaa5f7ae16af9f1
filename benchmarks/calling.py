"""What stands between the user and the device: the accessor, and members against torch's own functions."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable

from benchmarks.harness import Row, in_turns, loop_time, ratio_row

_CALLS = 200_000


def _empty() -> None:
    return None


def accessor_row(rounds: int = 15) -> Row:
    """A warm `get_accelerator()` against a function that does nothing."""
    import accel_core

    get_accelerator = accel_core.get_accelerator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", accel_core.AcceleratorFallbackWarning)
        get_accelerator()
    pairs = in_turns(
        lambda: loop_time(get_accelerator, _CALLS),
        lambda: loop_time(_empty, _CALLS),
        rounds,
    )
    return ratio_row("get_accelerator(), warm", "an empty function", pairs, 2.0)


def member_rows(rounds: int = 25) -> list[Row]:
    """Members as users write them, `acc.member()` against `torch.cuda.member()`, attribute access included.

    A bound member is the very same function; what can differ is the way to it. A member whose argument
    torch names otherwise (`device` for `device_index`) is one short function more, and is marked so.
    """
    import torch

    import accel_core

    rows = []
    # torch.cuda of any build: these answer without a device, so the row can be measured everywhere.
    cuda = accel_core.TorchAccelerator(
        accel_core.Backend(name="cuda", priority=0, device_type="cuda")
    )
    module = (
        torch.cuda
    )  # a caller who keeps the module at hand saves one look-up: the harder comparison
    for name, label, ours, peer in (
        (
            "device_count",
            "torch.cuda.{}()",
            lambda: cuda.device_count(),
            lambda: torch.cuda.device_count(),
        ),
        (
            "memory_allocated",
            "torch.cuda.{}()",
            lambda: cuda.memory_allocated(),
            lambda: torch.cuda.memory_allocated(),
        ),
        (
            "is_initialized",
            "torch.cuda.{}()",
            lambda: cuda.is_initialized(),
            lambda: torch.cuda.is_initialized(),
        ),
        (
            "is_initialized",
            "{}() of torch.cuda in a variable",
            lambda: cuda.is_initialized(),
            lambda: module.is_initialized(),
        ),
    ):
        bound = getattr(cuda, name) is getattr(torch.cuda, name)
        number = _enough(peer)
        pairs = in_turns(_timer(ours, number), _timer(peer, number), rounds)
        member = f"acc.{name}()" if bound else f"acc.{name}(), argument renamed"
        rows.append(ratio_row(member, label.format(name), pairs, 1.05))
    return rows


def _timer(function: Callable[[], object], number: int) -> Callable[[], float]:
    return lambda: loop_time(function, number)


def _enough(function: Callable[[], object]) -> int:
    """Calls for about 20 ms."""
    once = statistics.median(loop_time(function, 100) for _ in range(5))
    return max(100, int(0.02 / once))


def rows() -> list[Row]:
    """All rows of this torch.cuda."""
    return [accessor_row(), *member_rows()]
