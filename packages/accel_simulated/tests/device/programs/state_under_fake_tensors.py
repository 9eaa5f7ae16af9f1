"""Set a random state while torch's tensors are fake, as DTensor's random operators do."""

import json

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import accel_core

accel_core.get_accelerator()
state = torch.acme.get_rng_state()
first = torch.rand(4, device="acme").tolist()
with FakeTensorMode():
    torch.acme.set_rng_state(state)
print(json.dumps(torch.rand(4, device="acme").tolist() == first))
