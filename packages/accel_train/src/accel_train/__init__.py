"""Train on the chosen accelerator: launch ranks, run collectives and operators, and integrate frameworks.

    import accel_train

    with accel_train.init_process_group() as ranks:
        ...

DeepSpeed, Lightning, Accelerate and Transformers have one module each, such as `accel_train.deepspeed`.
Importing this package does not import torch, because each public name is resolved on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accel_train.compiling import default_compiler
    from accel_train.launch.environment import as_deepspeed, as_shell, forwarded
    from accel_train.launch.process_group import (
        ProcessGroupOptions,
        RankContext,
        init_process_group,
    )
    from accel_train.loading import can_pin_memory
    from accel_train.staged.group import StagedProcessGroup

#: The submodule of accel_train that defines each public name.
_SUBMODULES = {
    "ProcessGroupOptions": "launch.process_group",
    "RankContext": "launch.process_group",
    "StagedProcessGroup": "staged.group",
    "as_deepspeed": "launch.environment",
    "as_shell": "launch.environment",
    "can_pin_memory": "loading",
    "default_compiler": "compiling",
    "forwarded": "launch.environment",
    "init_process_group": "launch.process_group",
}

__all__ = [
    "ProcessGroupOptions",
    "RankContext",
    "StagedProcessGroup",
    "as_deepspeed",
    "as_shell",
    "can_pin_memory",
    "default_compiler",
    "forwarded",
    "init_process_group",
]


# Hidden from type checkers: with `__getattr__`, they would accept every misspelt name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        submodule = _SUBMODULES.get(name)
        if submodule is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{submodule}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
