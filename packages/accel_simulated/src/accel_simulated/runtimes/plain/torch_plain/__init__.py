"""The package of a fictional device that has one queue, no events and no collectives.

Like every simulated device, it runs the CPU's kernels.
"""

from accel_simulated import vendor_package

__version__ = "0.1+simulated"


def autoload():
    """Do nothing. torch calls this function on import, but importing the package did all the work."""


vendor_package.load_device("plain")

import torch_plain.plain

vendor_package.register_module(torch_plain.plain)
