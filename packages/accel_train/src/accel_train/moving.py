"""Keep a module's parameter objects when the module moves to a device.

On most devices, `module.to(device)` keeps the parameter objects and replaces their data. On TorchTPU, it
creates new parameters. Tied weights then become two separate parameters, and an optimizer that was created
before the move updates only the old parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.torch_import import import_torch

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["keep_parameters"]


def keep_parameters(accelerator: Accelerator) -> None:
    """Make `module.to()` swap parameters in place on devices where it would otherwise create new ones.

    This calls torch's `set_swap_module_params_on_conversion`, which affects the whole process. `module.to()`
    then raises an error if an autograd graph still refers to a parameter, because torch cannot swap such a
    parameter.
    """
    torch = import_torch()
    # An empty parameter allocates no memory, so the device does not count as used.
    weight = torch.nn.Parameter(torch.empty(0, device="cpu"))
    layer = torch.nn.Module()
    layer.weight = weight
    moved_layer = layer.to(accelerator.device())
    is_parameter_kept = moved_layer.weight is weight
    if not is_parameter_kept:
        torch.__future__.set_swap_module_params_on_conversion(True)
