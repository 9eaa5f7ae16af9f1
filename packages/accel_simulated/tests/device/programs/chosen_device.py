"""Print what a process with a simulated device reports of its accelerator."""

import json

import accel_core

acc = accel_core.get_accelerator()
selection = accel_core.selection()
print(
    json.dumps(
        {
            "name": acc.name,
            "device 2": str(acc.device(2)),
            "device name 0": acc.device_name(0),
            "product": acc.device_properties(0).name,
            "repr": repr(acc),
            "description": acc.backend.description,
            "recorded variable": selection.environ["ACCEL_SIMULATE"],
            "selection shows the variable": "ACCEL_SIMULATE=" in str(selection),
        }
    )
)
