"""The package of a fictional vendor whose device torch.accelerator supports but no plugin declares.

The module `torch.acme` contains the functions that frameworks, including torch's FSDP, DeviceMesh and
checkpoints, call in a GPU's device module.
"""

from accel_simulated import vendor_package

__version__ = "0.1+simulated"


def autoload():
    """Do nothing. torch calls this function on import, but importing the package did all the work."""


vendor_package.load_device("acme")

import torch_acme.acme

vendor_package.register_module(torch_acme.acme)
