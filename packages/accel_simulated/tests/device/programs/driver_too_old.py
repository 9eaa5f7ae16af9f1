"""Use CUDA, and print what it reports and the error."""

import json

import torch

answer = {"available": torch.cuda.is_available(), "count": torch.cuda.device_count()}
try:
    torch.ones(2, device="cuda")
except Exception as error:
    answer["error"] = str(error)
print(json.dumps(answer))
