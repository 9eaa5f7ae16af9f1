"""Set the random state of one type of device on another type of device."""

import json

import torch

import accel_core
from accel_core.errors import InvalidDeviceError

acme, cpu = accel_core.get_accelerator(), accel_core.accelerator("cpu")


def error_of(acc, state, *where, **how):
    try:
        acc.set_rng_state(state, *where, **how)
    except InvalidDeviceError as error:
        return str(error)


def draw(acc, index=None):
    return torch.rand(3, device=acc.device(index)).tolist()


answer = {
    "CPU state on acme": error_of(acme, cpu.get_rng_state()),
    "acme state on CPU": error_of(cpu, acme.get_rng_state()),
}
draws = []
for seed in (1, 1, 2):
    cpu.manual_seed(seed)
    acme.set_rng_state(cpu.get_rng_state(), 1, strict=False)
    draws.append(draw(acme, 1))
answer["the same CPU seed draws the same"] = draws[0] == draws[1]
answer["another CPU seed draws the same"] = draws[0] == draws[2]
state = acme.get_rng_state()
first = draw(acme)
acme.set_rng_state(
    state.to(acme.device())
)  # as torch.load(..., map_location=acme.device()) gives it
answer["a state on the device is restored"] = draw(acme) == first
answer["index out of range"] = error_of(acme, state, 7, strict=False)
print(json.dumps(answer))
