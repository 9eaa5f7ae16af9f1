"""A vendor that does not exist: a device that torch.accelerator serves and no plugin knows.

Its module holds what frameworks ask of a GPU's, torch's own among them: FSDP, DeviceMesh, checkpoints.
"""

from accel_simulated import vendor_package

__version__ = "0.1+simulated"


def autoload():
    """Do nothing: torch calls this at its import, and importing this module was all."""


vendor_package.start("acme")

import torch_acme.acme

vendor_package.finish(torch_acme.acme)
