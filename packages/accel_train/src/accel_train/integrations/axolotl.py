"""Give axolotl a mixin for its trainer's arguments, and load its model on the chosen accelerator.

axolotl loads the plugins that entry points of group `axolotl.plugins` name, before it reads a configuration.
Our plugin does nothing if axolotl supports the device itself.
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
    """A mixin for the trainer's arguments, with which axolotl's trainer keeps Accelerate's state."""

    def __post_init__(self) -> None:
        """Make the trainer use the state that exists, which is for the chosen accelerator."""
        super().__post_init__()  # type: ignore[misc]
        # Without this the trainer resets the state (0.21.0, core/trainers/base.py:1038), an error in ranks.
        self.accelerator_config.use_configured_state = True


class Members:
    """axolotl's `BasePlugin` for any accelerator; axolotl's defaults stay."""

    @cached_property
    def accelerator(self) -> accel_core.Accelerator | None:
        """Return the accelerator for axolotl; `None` for a device that it knows, and after an error."""
        with errors_as_warning("axolotl", "See why: accel why"):
            chosen = accel_core.get_accelerator()
            if chosen.device_type not in _NATIVE_DEVICE_TYPES:
                return chosen
        return None

    def get_training_args_mixin(self) -> str | None:
        """Return the import path of the mixin that gives Transformers' arguments our device."""
        return f"{__name__}.{Arguments.__name__}" if self.accelerator else None

    def register(self, cfg: Any) -> None:
        """Make Accelerate's state, which axolotl reads early, and set the device for the model."""
        if self.accelerator is None:
            return
        device = str(partial_state().device)
        cfg["device_map"] = cfg.get("device_map") or {"": device}
        # For a vendor that is not in its list, axolotl would take "auto" as fp16.
        if cfg.get("bf16", "auto") == "auto" and not cfg.get("fp16"):
            cfg["bf16"] = self.accelerator.is_bf16_supported()

    def pre_model_load(self, cfg: Any) -> None:
        """Set the device that axolotl's callbacks use, for which axolotl has chosen the CPU."""
        if self.accelerator is not None:
            cfg.device = str(partial_state().device)


def __getattr__(name: str) -> Any:
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = importlib.import_module("axolotl.integrations.base").BasePlugin
    return type("AccelPlugin", (Members, base), {})
