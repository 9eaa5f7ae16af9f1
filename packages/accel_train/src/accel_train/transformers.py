"""Transformers' `Trainer`, and TRL's, on accel_core's choice: a mixin for their arguments.

    from transformers import Trainer, TrainingArguments
    from accel_train.transformers import AcceleratorArguments

    class Arguments(AcceleratorArguments, TrainingArguments):
        pass

`TrainingArguments` resets Accelerate's state and picks from a fixed list of vendors. On a device that is not
in the list, each of several ranks would train by itself. The mixin uses the state that `partial_state` of
`accel_train.accelerate` makes. Importing this module imports neither Transformers nor Accelerate.
"""

from __future__ import annotations

import importlib
import warnings
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import accel_core
from accel_core.errors import IntegrationError
from accel_train.accelerate import partial_state
from accel_train.compiling import checked_compiler
from accel_train.loading import can_pin_memory
from accel_train.private_names import ACCELERATE_SCALED, SEEN

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["AcceleratorArguments"]


class AcceleratorArguments:
    """A mixin to put before `TrainingArguments` or a subclass (TRL's `SFTConfig`), to train on our device.

    Each rank of a launcher (`accel run`, torchrun) gets its own device and the backend's communication
    library. `use_cpu=True` must agree with the choice. `bf16=True` is accepted if the accelerator trains in
    bfloat16, even if Transformers does not know its vendor. `dataloader_pin_memory` is on if the device has
    page-locked memory. `torch_compile=True` without a backend uses the accelerator's compiler. Raises what
    `partial_state` raises, and `IntegrationError` for options with which Transformers would use another
    device than the chosen one.
    """

    if TYPE_CHECKING:  # of `TrainingArguments`
        use_cpu: bool
        deepspeed: Any
        ddp_timeout: int
        accelerator_config: Any
        fp16: bool
        bf16: bool | None
        bf16_full_eval: bool
        dataloader_pin_memory: bool
        gradient_checkpointing: bool
        torch_compile: bool
        torch_compile_backend: str | None
        torch_compile_mode: str | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        theirs = next(
            (each for each in cls.__mro__ if each.__name__ == "TrainingArguments"), None
        )
        if theirs is not None and "_setup_devices" not in vars(theirs):
            raise IntegrationError(
                f"{theirs.__module__}.TrainingArguments has no _setup_devices, which accel_train overrides "
                "to choose the device: this release of Transformers is not supported. "
                f"pip install transformers=={SEEN['transformers']}"
            )
        if (
            theirs is not None
            and cls._setup_devices is not AcceleratorArguments._setup_devices
        ):
            raise IntegrationError(
                f"class {cls.__name__}: Transformers' own class comes first and would choose the device. "
                "Write class Arguments(AcceleratorArguments, TrainingArguments)"
            )

    def _validate_args(self) -> None:
        if self.torch_compile or self.torch_compile_mode or self.torch_compile_backend:
            self.torch_compile_backend = _listed_compiler(
                self.torch_compile_backend or ""
            )
        _require_scaler(accel_core.get_accelerator(), self.fp16)
        # For bfloat16 it asks the vendors that it knows, unless on the CPU; ours answers for any device.
        asked = self.use_cpu
        if self.bf16 or self.bf16_full_eval:
            self.use_cpu = asked or accel_core.get_accelerator().is_bf16_supported()
        try:
            super()._validate_args()  # type: ignore[misc]
        finally:
            self.use_cpu = asked

    @cached_property
    def _setup_devices(self) -> torch.device:
        ours = accel_core.get_accelerator()
        is_cpu = ours.device().type == "cpu"
        if self.use_cpu and not is_cpu:
            raise IntegrationError(
                f"use_cpu=True, but accel_core has chosen {ours.name}: leave it out, or set "
                "DS_ACCELERATOR=cpu"
            )
        if self.deepspeed:
            raise IntegrationError(
                f"deepspeed={self.deepspeed!r}: with Transformers, Accelerate chooses DeepSpeed's device, "
                f"which may not be {ours.name}. Use DeepSpeed itself, after "
                "accel_train.deepspeed.activate()"
            )
        self.use_cpu = is_cpu
        # The state is there from now on, whatever the configuration says; the Trainer must not see this key.
        if not self.accelerator_config.pop("use_configured_state", None):
            # As theirs do: what earlier arguments left there is of their precision.
            importlib.import_module("accelerate.state").AcceleratorState._reset_state()
        self.distributed_state = partial_state(
            timeout=timedelta(seconds=self.ddp_timeout)
        )
        self._n_gpu = 0 if is_cpu else 1  # a process has one device
        # torch raises for a device without such memory, where the first batch is made.
        self.dataloader_pin_memory = self.dataloader_pin_memory and (
            is_cpu or can_pin_memory(ours)
        )
        if self.gradient_checkpointing:
            _warn_of_checkpointing(ours)
        device: torch.device = self.distributed_state.device
        return device


def _listed_compiler(named: str) -> str:
    """The compiler's name, where Accelerate's closed list has it; without one Transformers take inductor."""
    compiler = checked_compiler(accel_core.get_accelerator(), named)
    utils = importlib.import_module("accelerate.utils")
    if compiler.upper() in [each.value for each in utils.DynamoBackend]:
        return compiler
    raise IntegrationError(
        f"torch_compile: the compiler is {compiler!r}, which Accelerate's list (DynamoBackend) lacks. Leave "
        'torch_compile out, and compile before the trainer is made: model.compile(backend="accel")'
    )


def _warn_of_checkpointing(ours: Accelerator) -> None:
    for check, words in ours.backend.computes_otherwise:
        if check == "compute.randomness.checkpointing_draws_the_same":
            text = f"gradient_checkpointing=True on {ours.name}: {words}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _require_scaler(ours: Accelerator, fp16: bool) -> None:
    if not fp16 or ours.device().type in ("cpu", *ACCELERATE_SCALED):
        return
    instead = "bf16=True" if ours.is_bf16_supported() else "neither fp16 nor bf16"
    raise IntegrationError(
        f"fp16=True: Accelerate scales losses on {', '.join(ACCELERATE_SCALED)} alone, "
        f"not on {ours.device().type}. Use {instead}, or your own loop with get_accelerator().grad_scaler()"
    )
