"""Print what a process with the device zpu, which the plugin zing declares, reports."""

import json
import os
import sys
from importlib.metadata import version

import accel_core

acc = accel_core.get_accelerator()

# The accelerator is chosen before the program imports torch.
import torch
import torch.distributed

print(
    json.dumps(
        {
            "name": acc.name,
            "device type": acc.device_type,
            "visible devices": acc.device_count(),
            "sum of ones": torch.ones(2, device="zpu:1").sum().item(),
            "repr": repr(acc),
            "package is imported": "zing_sdk.torch" in sys.modules,
            "version of the package": version("zing-sdk"),
            "collective backend is registered": "zccl"
            in torch.distributed.Backend.backend_list,
            "ACCEL_SIMULATE": os.environ["ACCEL_SIMULATE"],
        }
    )
)
