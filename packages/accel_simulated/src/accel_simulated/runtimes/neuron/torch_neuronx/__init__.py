"""Not AWS's torch_neuronx: a simulation for tests, with the names of its surface file.

The source of AWS's package was not at hand: the surface file lists names that others call. What nobody was
seen to call is absent here.
"""

from accel_simulated import vendor_package

__version__ = "2.13.3.0+simulated"

vendor_package.start("neuron")

import torch_neuronx.neuron

vendor_package.finish(torch_neuronx.neuron)
