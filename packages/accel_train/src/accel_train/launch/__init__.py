"""Ranks: what a launcher gives them, and how they start and end together.

Importing this package imports no torch: each public name is resolved when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accel_train.launch.environment import as_deepspeed, as_shell, forwarded
    from accel_train.launch.process_group import ProcessGroupOptions, RankContext, init_process_group
    from accel_train.staged.group import StagedProcessGroup

_HOME = {
    "ProcessGroupOptions": "distributed.process_group",
    "RankContext": "distributed.process_group",
    "StagedProcessGroup": "staging.group",
    "as_deepspeed": "distributed.environment",
    "as_shell": "distributed.environment",
    "forwarded": "distributed.environment",
    "init_process_group": "distributed.process_group",
}

__all__ = [
    "ProcessGroupOptions",
    "RankContext",
    "StagedProcessGroup",
    "as_deepspeed",
    "as_shell",
    "forwarded",
    "init_process_group",
]


if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for one of ours

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"accel_core.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
