"""Parameters that stay themselves when a module moves to a device whose tensors cannot take a host's place.

On most devices `module.to(device)` puts other data into the same parameters. On TorchTPU it makes new ones:
weights that were one become two, and an optimizer that was made before trains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.toolkit import import_torch

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["keep_parameters"]


def keep_parameters(accelerator: Accelerator) -> None:
    """Tell torch to swap parameters in `module.to()`, if the device would get new ones.

    This is torch's setting for the whole process, `set_swap_module_params_on_conversion`. A parameter that a
    graph still refers to cannot be swapped; torch raises then.
    """
    torch = import_torch()
    layer = torch.nn.LayerNorm(1)  # drawn from no generator
    weight = layer.weight
    if layer.to(accelerator.device()).weight is not weight:
        torch.__future__.set_swap_module_params_on_conversion(True)
