"""axolotl: add our mixin to its trainer's arguments, and load its model on the chosen accelerator.

axolotl loads the plugins that entry points of group `axolotl.plugins` name, before it reads a configuration.
Ours does nothing if axolotl knows the device itself.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

import accel_core
from accel_train.accelerate import partial_state
from accel_train.doors._warned import warned
from accel_train.transformers import AcceleratorArguments

__all__ = ["Arguments", "Members"]

#: Device types that axolotl 0.21.0 places models on by itself (utils/config/__init__.py:129).
_OWN = ("cpu", "cuda", "mps", "npu")


class Arguments(AcceleratorArguments):
    """A mixin for the trainer's arguments; Accelerate's state for our device survives axolotl's trainer."""

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        # Else the trainer resets the state (0.21.0, core/trainers/base.py:1038), which ours refuses in ranks.
        self.accelerator_config.use_configured_state = True


class Members:
    """axolotl's `BasePlugin` for any accelerator; axolotl's defaults stay."""

    @cached_property
    def ours(self) -> accel_core.Accelerator | None:
        """Return the accelerator for axolotl; `None` for a device that it knows, and after an error."""
        with warned("axolotl", "See why: accel why"):
            chosen = accel_core.get_accelerator()
            return None if chosen.device_type in _OWN else chosen
        return None

    def get_training_args_mixin(self) -> str | None:
        """Return the import path of the mixin that gives Transformers' arguments our device."""
        return f"{__name__}.{Arguments.__name__}" if self.ours else None

    def register(self, cfg: Any) -> None:
        """Make Accelerate's state, which axolotl reads early, and set the device for the model."""
        if self.ours is None:
            return
        device = str(partial_state().device)
        cfg["device_map"] = cfg.get("device_map") or {"": device}
        if cfg.get("bf16", "auto") == "auto" and not cfg.get(
            "fp16"
        ):  # else by a list of vendors: fp16
            cfg["bf16"] = self.ours.is_bf16_supported()

    def pre_model_load(self, cfg: Any) -> None:
        """Set the device that axolotl's callbacks use: by then axolotl has chosen the CPU."""
        if self.ours is not None:
            cfg.device = str(partial_state().device)


def __getattr__(name: str) -> Any:
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = importlib.import_module("axolotl.integrations.base").BasePlugin
    return type("AccelPlugin", (Members, base), {})
