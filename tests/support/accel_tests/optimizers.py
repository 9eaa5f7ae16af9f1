"""Optimisers of torch, and random tensors to compare them on. Needs torch and hypothesis."""

import os

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accel_train.ops import portable

#: How many a property is tried on: few by day, and many by night, which measures coverage.
EXAMPLES = 200 if os.environ.get("DEV_COVERAGE") == "1" else 10
SIZES = [(), (1,), (0,), (7,), (3, 5), (2, 0, 3), (65,), (4, 1, 9), (1031,)]
RATES = st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.999])
ARGUMENTS = {
    "shapes": st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    "steps": st.integers(1, 60),
    "seed": st.integers(0, 2**31),
    "beta1": RATES,
    "beta2": RATES,
    "weight_decay": st.sampled_from([0.0, 0.01, 0.3]),
    "lr": st.sampled_from([1e-4, 1e-3, 0.05]),
}
#: What is promised in float32.
CLOSE = {"rtol": 1e-6, "atol": 1e-9}


def tried(*names, **more):
    """A property's decorator: the arguments of these names, and more strategies."""
    strategies = {name: ARGUMENTS[name] for name in names} | more
    return lambda test: settings(max_examples=EXAMPLES, deadline=None)(
        given(**strategies)(test)
    )


def op(name):
    return getattr(portable, name)().load()


def tensors(shapes, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in shapes
    ]


def gradients(parameters, step, seed):
    return [
        g.to(p.dtype)
        for g, p in zip(
            tensors([p.shape for p in parameters], seed + step), parameters, strict=True
        )
    ]


def zeros(like, dtype=None):
    return [torch.zeros_like(t, dtype=dtype) for t in like]


def torchs(kind, parameters, steps, seed, **options):
    """The parameters after these steps of an optimiser of torch."""
    theirs = [p.clone().requires_grad_() for p in parameters]
    optimizer = kind(theirs, **options)
    for step in range(1, steps + 1):
        for p, g in zip(theirs, gradients(parameters, step, seed), strict=True):
            p.grad = g
        optimizer.step()
    return [p.detach() for p in theirs]


def close(ours, theirs, **bounds):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **{**CLOSE, **bounds})
