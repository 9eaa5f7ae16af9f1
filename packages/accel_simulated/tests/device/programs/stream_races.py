"""Run cases with and without a wait between streams; print each value and its warnings."""

import json
import sys
import warnings

import torch

there = torch.device(sys.argv[1])
main, side = torch.accelerator.current_stream(), torch.Stream(there)


def doubled(wait=True):
    ones = torch.ones(4, device=there)
    if wait:
        side.wait_stream(main)
    with side:
        return ones, ones * 2


def after(wait):
    _, twos = doubled()
    wait()
    return twos.sum().item()


def with_event():
    _, twos = doubled()
    main.wait_event(side.record_event())
    return twos.sum().item()


def written_over():
    ones, twos = doubled()
    ones.add_(1)
    main.wait_stream(side)
    return [ones.tolist(), twos.tolist()]


def both_write():
    _, twos = doubled()
    twos.add_(1)
    torch.accelerator.synchronize()
    return twos.tolist()


def given_back(record):
    ones, twos = doubled()
    if record:
        ones.record_stream(side)
    del ones
    torch.zeros(4, device=there)  # in the same memory
    main.wait_stream(side)
    return twos.tolist()


def two_parts():
    whole = torch.zeros(4, device=there)
    side.wait_stream(main)
    with side:
        whole[2:].fill_(1)
    whole[:2].fill_(2)
    main.wait_stream(side)
    return whole.tolist()


def backward():
    weight = torch.ones(4, device=there, requires_grad=True)
    side.wait_stream(main)
    with side:
        loss = (weight * 3).sum()
    loss.backward()
    main.wait_stream(side)
    return weight.grad.tolist()


def to_the_other_device():
    here = torch.ones(4, device=torch.device(there.type, 0))
    return (here.to(torch.device(there.type, 1)) * 2).to(here.device).tolist()


def read_back(wait):
    kept = torch.zeros(4).pin_memory()
    kept.copy_(torch.ones(4, device=there), non_blocking=True)
    wait()
    return kept.tolist()


def polled():
    event = torch.Event(there)

    def wait():
        event.record()
        while not event.query():
            pass

    return read_back(wait)


def twice_and_back():
    kept = torch.zeros(4).pin_memory()
    for number in (3, 2):
        kept.copy_(
            torch.full((4,), number, device=there, dtype=torch.float), non_blocking=True
        )
    return torch.empty(4, device=there).copy_(kept, non_blocking=True).tolist()


def on_another_stream():
    kept = torch.zeros(4).pin_memory()
    kept.copy_(torch.ones(4, device=there), non_blocking=True)
    with side:
        there_again = torch.empty(4, device=there).copy_(kept, non_blocking=True)
    torch.accelerator.synchronize()
    return there_again.tolist()


def start_copy_to_host(size):
    return torch.ones(size, device=there).to("cpu", non_blocking=True)


def do_nothing():
    pass


def read_before_wait():
    twos = doubled(wait=False)[1]
    main.wait_stream(side)
    return twos.tolist()


CASES = {
    "read back": lambda: read_back(do_nothing),
    "item": lambda: start_copy_to_host(1).item(),
    "numpy": lambda: start_copy_to_host(4).numpy().tolist(),
    "read back, waited": lambda: read_back(torch.accelerator.synchronize),
    "read back, polled": polled,
    "twice and back": twice_and_back,
    "on another stream": on_another_stream,
    "no wait": lambda: after(do_nothing),
    "wait_stream": lambda: after(lambda: main.wait_stream(side)),
    "synchronize": lambda: after(side.synchronize),
    "the device's": lambda: after(torch.accelerator.synchronize),
    "wait_event": with_event,
    "to the host": lambda: doubled()[1].tolist(),
    "no wait before": read_before_wait,
    "written over": written_over,
    "both write": both_write,
    "given back": lambda: given_back(record=False),
    "recorded": lambda: given_back(record=True),
    "two parts": two_parts,
    "backward": backward,
    "another device": to_the_other_device,
}
results = {}
for name, case in CASES.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = case()
        results[name] = {
            "value": repr(value),
            "warnings": [str(each.message) for each in caught],
        }
    torch.accelerator.synchronize()
print(json.dumps(results))
