"""The package of a fictional vendor, whose device torch.accelerator supports and no plugin declares.

The module `torch.acme` contains the functions that frameworks, including torch's FSDP, DeviceMesh and
checkpoints, call in a GPU's module.
"""

from accel_simulated import vendor_package

__version__ = "0.1+simulated"


def autoload():
    """Do nothing: torch calls this function when it is imported, and importing this module was enough."""


vendor_package.load_device("acme")

import torch_acme.acme

vendor_package.register_module(torch_acme.acme)
