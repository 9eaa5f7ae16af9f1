"""A device with less than a GPU, which does not exist: one queue, no events, no collectives.

Simulated, as all here is: kernels are CPU's.
"""

from accel_simulated import vendor_package

__version__ = "0.1+simulated"


def autoload():
    """Do nothing: torch calls this at its import, and importing this module was all."""


vendor_package.start("plain")

import torch_plain.plain

vendor_package.finish(torch_plain.plain)
