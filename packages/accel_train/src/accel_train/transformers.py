"""Make the trainers of Transformers and TRL use the accelerator that accel_core chose, with a mixin.

    from transformers import Trainer, TrainingArguments
    from accel_train.transformers import AcceleratorArguments

    class Arguments(AcceleratorArguments, TrainingArguments):
        pass

`TrainingArguments` resets Accelerate's state and chooses from a fixed list of vendors. On a device of any
other vendor, each of several ranks would train alone. The mixin uses the state that
`accel_train.accelerate.partial_state` creates. Importing this module imports neither Transformers nor
Accelerate.
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
from accel_train.compiling import select_compiler
from accel_train.loading import can_pin_memory
from accel_train.private_names import ACCELERATE_LOSS_SCALING_TYPES, VERIFIED_RELEASES

if TYPE_CHECKING:
    import torch

    from accel_core import Accelerator

__all__ = ["AcceleratorArguments"]


class AcceleratorArguments:
    """A mixin that makes `TrainingArguments`, or a subclass (TRL's `SFTConfig`), use the chosen accelerator.

    Put the mixin before the arguments class. Each rank of a launcher (`accel run`, torchrun) gets its own
    device and the backend's communication library. `use_cpu=True` is accepted only if the chosen accelerator
    is the CPU. `bf16=True` is accepted if the accelerator supports bfloat16, even if Transformers does not
    support the vendor. `dataloader_pin_memory=True` is turned off if the device does not support pinned
    memory. `torch_compile=True` without a backend uses the accelerator's compiler.

    Raises the same errors as `partial_state`. Raises `IntegrationError` if an option would stop Transformers
    from using the chosen device.
    """

    if TYPE_CHECKING:  # These are attributes of `TrainingArguments`.
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
        """Raise `IntegrationError` if a subclass would not use the mixin's device.

        The mixin's device is not used if Transformers' class lacks the method that the mixin overrides, or if
        Transformers' class precedes the mixin.
        """
        super().__init_subclass__(**kwargs)
        # Reversed, so that the first of several classes with the same name is kept.
        base_classes = {base.__name__: base for base in reversed(cls.__mro__)}
        training_arguments = base_classes.get("TrainingArguments")
        if training_arguments is None:
            return
        if "_setup_devices" not in vars(training_arguments):
            raise IntegrationError(
                f"{training_arguments.__module__}.TrainingArguments has no method _setup_devices, which "
                "accel-train overrides to set the device, so this release of Transformers is not supported. "
                f"Next step: pip install transformers=={VERIFIED_RELEASES['transformers']}"
            )
        if cls._setup_devices is not AcceleratorArguments._setup_devices:
            raise IntegrationError(
                f"class {cls.__name__}: Transformers' class precedes AcceleratorArguments and would choose "
                "the device. Next step: write class Arguments(AcceleratorArguments, TrainingArguments)"
            )

    def _validate_args(self) -> None:
        """Check the compiler and the data types for the chosen accelerator, then run Transformers' checks."""
        if self.torch_compile or self.torch_compile_mode or self.torch_compile_backend:
            self.torch_compile_backend = _compiler_that_accelerate_accepts(
                self.torch_compile_backend or ""
            )
        if self.fp16:
            _require_loss_scaling(accel_core.get_accelerator())
        # Transformers can check bfloat16 only on vendors that it supports. `use_cpu` turns the check off.
        original_use_cpu = self.use_cpu
        if self.bf16 or self.bf16_full_eval:
            is_supported = accel_core.get_accelerator().is_bf16_supported()
            self.use_cpu = original_use_cpu or is_supported
        try:
            super()._validate_args()  # type: ignore[misc]
        finally:
            self.use_cpu = original_use_cpu

    @cached_property
    def _setup_devices(self) -> torch.device:
        """Return this process's device, and create Accelerate's state for this device.

        Raises `IntegrationError` if an option would stop Transformers from using the chosen device.
        """
        accelerator = accel_core.get_accelerator()
        is_cpu = accelerator.device().type == "cpu"
        if self.use_cpu and not is_cpu:
            raise IntegrationError(
                f"use_cpu=True, but accel-core has chosen {accelerator.name}. Next step: remove use_cpu, or "
                "set DS_ACCELERATOR=cpu."
            )
        if self.deepspeed:
            raise IntegrationError(
                f"deepspeed={self.deepspeed!r} is not supported, because Transformers lets Accelerate choose "
                f"DeepSpeed's device, which may not be {accelerator.name}. Next step: use DeepSpeed without "
                "Transformers' Trainer, after accel_train.deepspeed.activate()"
            )
        self.use_cpu = is_cpu
        # The key is removed for the Trainer, because the state exists from here on in any case.
        keeps_state = self.accelerator_config.pop("use_configured_state", None)
        if not keeps_state:
            # Transformers resets the state too, because it may have the precision of earlier arguments.
            importlib.import_module("accelerate.state").AcceleratorState._reset_state()
        self.distributed_state = partial_state(
            timeout=timedelta(seconds=self.ddp_timeout)
        )
        self._n_gpu = 0 if is_cpu else 1  # Each process uses one device.
        # On a device without pinned memory, torch would raise an error at the first batch.
        if self.dataloader_pin_memory and not is_cpu:
            self.dataloader_pin_memory = can_pin_memory(accelerator)
        if self.gradient_checkpointing:
            _warn_about_checkpointing(accelerator)
        device: torch.device = self.distributed_state.device
        return device


def _compiler_that_accelerate_accepts(requested: str) -> str:
    """Return the name of the compiler: `requested`, or the accelerator's compiler if `requested` is empty.

    Without a name, Transformers would use inductor. Raises `IntegrationError` if Accelerate's list does not
    include the compiler.
    """
    compiler = select_compiler(accel_core.get_accelerator(), requested)
    utils = importlib.import_module("accelerate.utils")
    accepted_names = [backend.value for backend in utils.DynamoBackend]
    # Accelerate lists the names in upper case.
    if compiler.upper() in accepted_names:
        return compiler
    raise IntegrationError(
        f"torch_compile: Accelerate's list of compilers (DynamoBackend) does not contain {compiler!r}. Next "
        "step: leave torch_compile out, and compile before the trainer is created: "
        'model.compile(backend="accel")'
    )


def _warn_about_checkpointing(accelerator: Accelerator) -> None:
    """Warn if the backend declares that checkpointing draws different random numbers on this device."""
    for check, difference in accelerator.backend.known_differences:
        if check == "compute.randomness.checkpointing_draws_the_same":
            text = f"gradient_checkpointing=True on {accelerator.name}: {difference}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _require_loss_scaling(accelerator: Accelerator) -> None:
    """Raise `IntegrationError` if Accelerate does not scale losses on the device, which float16 requires."""
    device_type = accelerator.device().type
    if device_type in ("cpu", *ACCELERATE_LOSS_SCALING_TYPES):
        return
    alternative = "neither fp16 nor bf16"
    if accelerator.is_bf16_supported():
        alternative = "bf16=True"
    raise IntegrationError(
        f"fp16=True: Accelerate scales losses on {', '.join(ACCELERATE_LOSS_SCALING_TYPES)} only, "
        f"not on {device_type}. Next step: use {alternative}, or write a training loop with "
        "get_accelerator().grad_scaler()"
    )
