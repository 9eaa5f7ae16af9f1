"""`NeuronAccelerator`: what differs on torch.neuron from any other device module of
torch.
"""

from __future__ import annotations

from accel_core import TorchAccelerator

__all__ = ["NeuronAccelerator"]


class NeuronAccelerator(TorchAccelerator):
    """AWS Trainium; a device is a logical NeuronCore.

    The source of TorchNeuron was not at hand, so every function is looked up before it
    is used. If TorchNeuron lacks one, torch.accelerator's serves, or the member raises
    `UnsupportedError` with its name.
    """

    def is_fp64_supported(self) -> bool:
        """Return False: diffusers (0.42.1, utils/torch_utils.py) lists neuron among the
        devices without float64.
        """
        return False
