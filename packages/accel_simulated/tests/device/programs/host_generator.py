"""Compare numbers from the device's generator with numbers from the CPU's generator."""

import json

import torch

device_generator = torch.Generator("acme").manual_seed(5)
host_generator = torch.Generator().manual_seed(5)


def draw():
    return torch.randn(7, generator=device_generator, device="acme").tolist()


answer = {
    "equal draws": [
        draw() == torch.randn(7, generator=host_generator).tolist() for _ in range(3)
    ]
}
state = device_generator.get_state()
first = draw()
device_generator.set_state(state)
answer["state restored"] = draw() == first
torch.manual_seed(1)
default_generator = torch.acme.default_generators[0]
drawn = torch.rand(3, generator=default_generator, device="acme").tolist()
torch.manual_seed(1)
answer["default generator"] = drawn == torch.rand(3).tolist()
print(json.dumps(answer))
