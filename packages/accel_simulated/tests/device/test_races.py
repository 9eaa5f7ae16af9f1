"""Where races are looked for a missing wait gives other numbers and a warning; one that is there neither."""

import json

CODE = """
import json, sys, warnings
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
        kept.copy_(torch.full((4,), number, device=there, dtype=torch.float), non_blocking=True)
    return torch.empty(4, device=there).copy_(kept, non_blocking=True).tolist()

def on_another_stream():
    kept = torch.zeros(4).pin_memory()
    kept.copy_(torch.ones(4, device=there), non_blocking=True)
    with side:
        there_again = torch.empty(4, device=there).copy_(kept, non_blocking=True)
    torch.accelerator.synchronize()
    return there_again.tolist()

told = {}
for name, case in json.loads(sys.argv[2]).items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told[name] = [repr(eval(case)), [str(each.message) for each in caught]]
    torch.accelerator.synchronize()
print(json.dumps(told))
"""
ONES, TWOS = "[1.0, 1.0, 1.0, 1.0]", "[2.0, 2.0, 2.0, 2.0]"
NANS = "[nan, nan, nan, nan]"
#: What each case does, what it gives where races are looked for, and who is named: both operators, or nobody.
CASES = {
    "read back": (
        "read_back(lambda: None)",
        NANS,
        "aten::resolve_conj reads pinned memory",
    ),
    "item": (
        'torch.ones(1, device=there).to("cpu", non_blocking=True).item()',
        "nan",
        "aten::item reads pinned memory",
    ),
    "numpy": (
        'torch.ones(4, device=there).to("cpu", non_blocking=True).numpy().tolist()',
        NANS,
        "aten::resolve_conj reads pinned memory",
    ),
    "read back, waited": ("read_back(torch.accelerator.synchronize)", ONES, ""),
    "read back, polled": ("polled()", ONES, ""),
    "twice and back": ("twice_and_back()", TWOS, ""),
    "on another stream": (
        "on_another_stream()",
        NANS,
        "aten::copy_ reads pinned memory",
    ),
    "no wait": ("after(lambda: None)", "nan", "aten::sum reads what aten::mul wrote"),
    "wait_stream": ("after(lambda: main.wait_stream(side))", "8.0", ""),
    "synchronize": ("after(side.synchronize)", "8.0", ""),
    "the device's": ("after(torch.accelerator.synchronize)", "8.0", ""),
    "wait_event": ("with_event()", "8.0", ""),
    "to the host": (
        "doubled()[1].tolist()",
        NANS,
        "aten::copy_ reads what aten::mul wrote",
    ),
    "no wait before": (
        "(doubled(wait=False)[1], main.wait_stream(side))[0].tolist()",
        NANS,
        "aten::mul reads what aten::fill_ wrote",
    ),
    "written over": (
        "written_over()",
        "[[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0]]",
        "aten::add_ writes what aten::mul reads",
    ),
    "both write": ("both_write()", TWOS, "aten::add_ writes what aten::mul wrote"),
    "given back": (
        "given_back(record=False)",
        TWOS,
        "aten::zero_ writes what aten::mul reads",
    ),
    "recorded": ("given_back(record=True)", TWOS, ""),
    "two parts": ("two_parts()", "[2.0, 2.0, 1.0, 1.0]", ""),
    "backward": ("backward()", "[3.0, 3.0, 3.0, 3.0]", ""),
    "another device": ("to_the_other_device()", TWOS, ""),
}
DONE = json.dumps({name: done for name, (done, *_) in CASES.items()})


def test_a_missing_wait_gives_other_numbers_and_is_named(simulated):
    told = simulated(
        "acme", CODE, "acme", DONE, environ={"ACCEL_SIMULATE_RACE": "1"}
    ).answer
    for case, (_, numbers, named) in CASES.items():
        found, warned = told[case]
        assert found == numbers, case
        assert len(warned) == bool(named), (case, warned)
        assert all(
            named in each
            and "ACCEL_SIMULATE_RACE=1" in each
            and "synchronize" in each.lower()
            for each in warned
        )
    assert "record_stream before the tensor goes" in told["given back"][1][0]


def test_another_value_is_refused(simulated):
    run = simulated(
        "acme", "import torch", environ={"ACCEL_SIMULATE_RACE": "yes"}, check=False
    )
    assert run.ended[0].returncode != 0
    assert (
        "ACCEL_SIMULATE_RACE='yes': expected 1, to detect missing waits, or 0"
        in run.ended[0].stderr
    )


def test_unasked_it_computes_at_once(simulated):
    told = simulated("acme", CODE, "acme", DONE).answer
    assert told["no wait"] == ["8.0", []]
    assert told["both write"] == ["[3.0, 3.0, 3.0, 3.0]", []]
