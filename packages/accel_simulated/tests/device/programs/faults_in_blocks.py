"""Inject each fault in a block, and print the errors of the calls in it."""

import json
import time

import torch

from accel_simulated import faults

ones = torch.ones(4, device="acme:0")
wait = torch.accelerator.synchronize


def allocate():
    return torch.empty(3, device="acme")


def add():
    return ones + 1


def use_device_1():
    return torch.ones(1, device="acme:1")


def errors_of(*calls):
    """Return the first line of each call's error; empty for a call without an error."""
    errors = []
    for call in calls:
        try:
            call()
            errors.append("")
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
    return errors


answer = {}
with faults.injected("oom@2"):
    answer["oom"] = errors_of(allocate, allocate, allocate)
with faults.injected("kernel@2"):
    answer["kernel"] = errors_of(add, add, wait, wait)
with faults.injected("lost@2"):
    answer["lost"] = errors_of(add, add, allocate, wait, ones.tolist)
with faults.injected("slow=30"):
    start = time.perf_counter()
    errors = errors_of(add, wait)
    answer["slow"] = {"errors": errors, "seconds": time.perf_counter() - start}
with faults.injected("count=1@2"):
    answer["count"] = {
        "devices before": torch.accelerator.device_count(),
        "errors": errors_of(add, add),
        "devices after": torch.accelerator.device_count(),
        "devices of torch.acme": torch.acme.device_count(),
        "errors of device 1": errors_of(use_device_1),
    }
answer["after the blocks"] = {
    "errors": errors_of(allocate, add, wait),
    "devices": torch.accelerator.device_count(),
}
print(json.dumps(answer))
