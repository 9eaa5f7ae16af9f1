"""Make axolotl train on the chosen accelerator: a mixin for the trainer's arguments, and the model's device.

axolotl loads the plugins that entry points of the group `axolotl.plugins` name, before it reads a
configuration. accel-train's plugin does nothing if axolotl supports the device itself.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

import accel_core
from accel_train.accelerate import partial_state
from accel_train.integrations._warned import errors_as_warning
from accel_train.transformers import AcceleratorArguments

__all__ = ["Arguments", "Members"]

#: Device types that axolotl 0.21.0 places models on by itself (utils/config/__init__.py:129).
_NATIVE_DEVICE_TYPES = ("cpu", "cuda", "mps", "npu")


class Arguments(AcceleratorArguments):
    """A mixin for trainer arguments that keeps axolotl's trainer from resetting Accelerate's state."""

    def __post_init__(self) -> None:
        """Make the trainer use Accelerate's existing state, which is for the chosen accelerator."""
        super().__post_init__()  # type: ignore[misc]
        # Otherwise the trainer resets the state (0.21.0, core/trainers/base.py:1038), which fails in ranks.
        self.accelerator_config.use_configured_state = True


class Members:
    """The members of axolotl's `BasePlugin` that accel-train's plugin overrides."""

    @cached_property
    def accelerator(self) -> accel_core.Accelerator | None:
        """Return the chosen accelerator.

        Returns `None` if axolotl itself supports the device, or if choosing an accelerator failed.
        """
        with errors_as_warning("axolotl", "Next step: run accel why"):
            chosen = accel_core.get_accelerator()
            if chosen.device_type not in _NATIVE_DEVICE_TYPES:
                return chosen
        # axolotl supports the device itself, or a warning has reported an error.
        return None

    def get_training_args_mixin(self) -> str | None:
        """Return the import path of the mixin for the trainer's arguments, or `None` if none is needed."""
        if self.accelerator is None:
            return None
        return f"{__name__}.{Arguments.__name__}"

    def register(self, cfg: Any) -> None:
        """Create Accelerate's state, which axolotl reads early, and set the device and precision in `cfg`."""
        if self.accelerator is None:
            return
        # This call also creates Accelerate's state.
        device = str(partial_state().device)
        if not cfg.get("device_map"):
            # The empty name stands for the whole model.
            cfg["device_map"] = {"": device}
        # axolotl would interpret "auto" as fp16 on a device type that it does not list.
        is_precision_auto = cfg.get("bf16", "auto") == "auto" and not cfg.get("fp16")
        if is_precision_auto:
            cfg["bf16"] = self.accelerator.is_bf16_supported()

    def pre_model_load(self, cfg: Any) -> None:
        """Set the device for axolotl's callbacks in `cfg`. Otherwise, the callbacks would use the CPU."""
        if self.accelerator is not None:
            cfg.device = str(partial_state().device)


def __getattr__(name: str) -> Any:
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The class is created on first use, because importing its base class imports axolotl.
    base = importlib.import_module("axolotl.integrations.base").BasePlugin
    return type("AccelPlugin", (Members, base), {})
