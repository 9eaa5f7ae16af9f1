"""Keep a module's parameters the same objects when the module moves to a device.

On most devices `module.to(device)` replaces the data of the same parameters. On TorchTPU it makes new
parameters: tied weights become two separate ones, and an optimizer made before trains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.torch_import import import_torch

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["keep_parameters"]


def keep_parameters(accelerator: Accelerator) -> None:
    """Make torch swap parameters in `module.to()`, if the device would otherwise get new ones.

    This is torch's setting for the whole process, `set_swap_module_params_on_conversion`. torch raises an
    error for a parameter that a graph still refers to, because it cannot be swapped.
    """
    torch = import_torch()
    # An empty parameter allocates nothing, so the device does not count as used.
    weight = torch.nn.Parameter(torch.empty(0))
    layer = torch.nn.Module()
    layer.weight = weight
    moved_layer = layer.to(accelerator.device())
    if moved_layer.weight is not weight:
        torch.__future__.set_swap_module_params_on_conversion(True)
