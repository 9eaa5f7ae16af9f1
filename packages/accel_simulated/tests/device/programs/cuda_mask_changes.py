"""Change CUDA_VISIBLE_DEVICES before and after the runtime starts, and print the counts and messages."""

import json
import os
import warnings

import torch

import accel_core
from accel_core.settings import read as read_settings
from accel_tools.doctor.records import DiagnosticContext
from accel_tools.doctor.topics import visible_devices

warnings.simplefilter("error")
accel_core.get_accelerator()
answer = {"before the start": {}}
for value in ("0,1", "1"):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    answer["before the start"][value] = {
        "count": torch.cuda.device_count(),
        "notes": len(accel_core.selection().notes),
    }
torch.ones(1, device="cuda")  # starts the runtime
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
try:
    accel_core.selection()
except accel_core.errors.SettingWarning as warning:
    answer["after the start"] = {
        "count": torch.cuda.device_count(),
        "warning": str(warning),
    }
context = DiagnosticContext(read_settings(), os.environ)
answer["finding of accel doctor"] = next(visible_devices.TOPIC.examine(context)).what
answer["notes"] = [str(note) for note in accel_core.selection().notes]
print(json.dumps(answer))
