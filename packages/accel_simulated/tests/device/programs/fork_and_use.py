"""Use the device in a forked child, in the parent, and in another forked child."""

import json

import torch

import accel_core
from accel_testing.conformance.forks import run_in_fork

device = accel_core.get_accelerator().device()


def sum_of_ones():
    return torch.ones(2, device=device).sum().item()


def use_in_child():
    return run_in_fork(lambda: str(sum_of_ones()), 60)[0]


print(
    json.dumps(
        {
            "child before the parent": use_in_child(),
            "parent": sum_of_ones(),
            "child after the parent": use_in_child(),
        }
    )
)
