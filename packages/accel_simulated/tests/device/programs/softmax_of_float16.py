"""Compare softmax of float16 values in float32 on CUDA with CPU: autocast needs no conversion."""

import json

import torch
from torch.nn import functional as F

torch.manual_seed(0)
values, gradient = torch.randn(3, 4).half(), torch.randn(3, 4)
comparisons = {}
for name in ("softmax", "log_softmax"):
    function = getattr(F, name)
    on_host = values.clone().requires_grad_()
    on_device = values.to("cuda").requires_grad_()
    expected = function(on_host, 1, dtype=torch.float32)
    out = function(on_device, 1, dtype=torch.float32)
    expected.backward(gradient)
    out.backward(gradient.to("cuda"))
    comparisons[name] = {
        "dtype": str(out.dtype),
        "equal": torch.equal(out.cpu(), expected),
        "equal gradient": torch.equal(on_device.grad.cpu(), on_host.grad),
    }
print(json.dumps(comparisons))
