"""A simulation of AWS's torch_neuronx for tests, with the names in its surface file.

The source of AWS's package was not available, so the surface file lists the names that public code calls.
All other names are absent.
"""

from accel_simulated import vendor_package

__version__ = "2.13.3.0+simulated"

vendor_package.start("neuron")

import torch_neuronx.neuron

vendor_package.finish(torch_neuronx.neuron)
