"""Small classes written for DeepSpeed's interface, of the shapes of those in its pull requests 8191 and 8275.

They have what such a class cannot do without; accel gives the members that they lack.
"""

import importlib

import torch
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator


class MUSA_Accelerator(DeepSpeedAccelerator):
    """Its device is a context manager, its name a property, and the package of its operators is missing."""

    KIND, _communication_backend_name, _compile_backend = "musa", "mccl", "inductor"
    _name = property(lambda self: self.KIND)

    def __init__(self):
        """DeepSpeed's would set what is a property here."""

    def device_name(self, device_index=None):
        return self.KIND if device_index is None else f"{self.KIND}:{device_index}"

    def device(self, device_index=None):
        return getattr(torch, self.KIND).device(device_index)

    def op_builder_dir(self):
        return importlib.import_module(f"deepspeed.ops.op_builder.{self.KIND}").__name__

    def get_op_builder(self, class_name):
        return getattr(importlib.import_module(self.op_builder_dir()), class_name)


class TPU_Accelerator(MUSA_Accelerator):
    """Its name is not its device's, and it has neither streams, events nor tensor types."""

    KIND, _communication_backend_name, _compile_backend = "acme", "accl", "openxla"
    _name = property(lambda self: "tpu")
    Stream = Event = FloatTensor = property(lambda self: None)

    def is_synchronized_device(self):
        return True
