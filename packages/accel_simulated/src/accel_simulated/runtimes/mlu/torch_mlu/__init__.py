"""A simulation of Cambricon's torch_mlu for tests, with the names in its surface file."""

from accel_simulated import vendor_package

__version__ = "2.4+simulated"

vendor_package.load_device("mlu")

import torch_mlu.mlu
import torch_mlu.mlu.amp
import torch_mlu.mlu.cnpx

vendor_package.register_module(torch_mlu.mlu)
