"""Portable Adagrad against torch.optim; Lion and LAMB against the papers' formulas."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from accel_tests.optimizers import (  # noqa: E402
    DECAYS,
    EXAMPLES,
    LR,
    RATES,
    SEEDS,
    SHAPES,
    STEPS,
    close,
    gradients,
    op,
    tensors,
    torchs,
    zeros,
)
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

# ---------------------------------------------------------------------------- Adagrad


@pytest.mark.slow
@given(shapes=SHAPES, steps=STEPS, seed=SEEDS, weight_decay=DECAYS, lr=LR)
@settings(max_examples=EXAMPLES, deadline=None)
def test_adagrad_equals_torchs(shapes, steps, seed, weight_decay, lr):
    start = tensors(shapes, seed)
    theirs = torchs(torch.optim.Adagrad, start, steps, seed, lr=lr, eps=1e-10, weight_decay=weight_decay)
    host, ours = op("CPUAdagradBuilder"), [t.clone() for t in start]
    totals = zeros(ours)
    host.create_adagrad(7005, lr, 1e-10, weight_decay, False)
    for step in range(1, steps + 1):
        for p, g, total in zip(ours, gradients(start, step, seed), totals, strict=True):
            kept = g.clone()
            assert host.adagrad_update(7005, step, lr, 1e-10, weight_decay, p, g, total) == 0
            close([g], [kept], rtol=0, atol=0)
    host.destroy_adagrad(7005)
    close(ours, theirs)


# ---------------------------------------------------------------------------- Lion


def lion_by_the_paper(start, steps, seed, lr, beta1, beta2, weight_decay):
    """Chen et al. 2023, algorithm 2, in float64."""
    weights, averages = [t.double() for t in start], zeros(start, torch.float64)
    for step in range(1, steps + 1):
        for i, g in enumerate(gradients(start, step, seed)):
            c = beta1 * averages[i] + (1 - beta1) * g.double()
            weights[i] = weights[i] - lr * (torch.sign(c) + weight_decay * weights[i])
            averages[i] = beta2 * averages[i] + (1 - beta2) * g.double()
    return weights


@pytest.mark.slow
@given(shapes=SHAPES, steps=STEPS, seed=SEEDS, beta1=RATES, beta2=RATES, weight_decay=DECAYS, lr=LR)
@settings(max_examples=EXAMPLES, deadline=None)
def test_both_lions_follow_the_paper(shapes, steps, seed, beta1, beta2, weight_decay, lr):
    # In float64, as a sign that hangs on the last bit would turn by rounding.
    start = tensors(shapes, seed, torch.float64)
    theirs = lion_by_the_paper(start, steps, seed, lr, beta1, beta2, weight_decay)
    fused, together, m = op("FusedLionBuilder"), [t.clone() for t in start], zeros(start)
    host, alone, states = op("CPULionBuilder"), [t.clone() for t in start], zeros(start)
    host.create_lion(7006, lr, beta1, beta2, weight_decay, False)
    for step in range(1, steps + 1):
        g = gradients(start, step, seed)
        fused.multi_tensor_lion(65536, None, [g, together, m], lr, beta1, beta2, step, weight_decay)
        for p, one, state in zip(alone, g, states, strict=True):
            assert host.lion_update(7006, step, lr, beta1, beta2, weight_decay, p, one, state) == 0
    host.destroy_lion(7006)
    close(together, theirs, rtol=1e-11)
    close(alone, theirs, rtol=1e-11)


def test_lion_in_float32_stays_within_the_bound():
    start = tensors([(300,), (7, 9)], 11)
    theirs = lion_by_the_paper(start, 40, 11, 1e-3, 0.9, 0.99, 0.1)
    ours, m = [t.clone() for t in start], zeros(start)
    for step in range(1, 41):
        lists = [gradients(start, step, 11), ours, m]
        op("FusedLionBuilder").multi_tensor_lion(1, None, lists, 1e-3, 0.9, 0.99, step, 0.1)
    close([t.double() for t in ours], theirs, rtol=1e-6, atol=1e-7)


def test_lion_does_not_move_a_weight_without_a_direction():
    p = torch.ones(2)
    op("FusedLionBuilder").multi_tensor_lion(
        1, None, [[torch.zeros(2)], [p], [torch.zeros(2)]], 0.1, 0.9, 0.99, 1, 0.0
    )
    assert p.tolist() == [1.0, 1.0]


# ---------------------------------------------------------------------------- LAMB


def lamb_by_the_paper(
    start, steps, seed, lr, betas, eps, weight_decay, bounds, *, mode=1, corrected=False, scale=1.0
):
    """You et al. 2020, algorithm 2, in float64; `corrected`: the step is scaled, as DeepSpeed does it."""
    weight, m, v = start.double(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    ratios = []
    for step in range(1, steps + 1):
        g = gradients([start], step, seed)[0].double() / scale
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        r = m / (v.sqrt() + eps if mode == 1 else (v + eps).sqrt())
        change = r + weight_decay * weight
        norms = weight.square().sum().sqrt().item(), change.square().sum().sqrt().item()
        ratio = min(max(norms[0] / norms[1], bounds[0]), bounds[1]) if all(norms) else 1.0
        size = lr * math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step) if corrected else lr
        weight = weight - size * ratio * change
        ratios.append(ratio)
    return weight, ratios


def run_lamb(start, steps, seed, lr, betas, eps, weight_decay, bounds, *, mode=1, corrected=False, scale=1.0):
    weight, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    ratios = []
    for step in range(1, steps + 1):
        (g,) = gradients([start], step, seed)
        kept = g.clone()
        ratio = op("FusedLambBuilder").lamb(
            weight, torch.tensor([]), m, v, g, lr, *betas, bounds[1], bounds[0], eps, scale, step, mode,
            int(corrected), weight_decay,
        )  # fmt: skip
        close([g], [kept], rtol=0, atol=0)
        assert ratio.shape == (1,)
        ratios.append(ratio.item())
    return weight, ratios


@pytest.mark.slow
@given(
    shape=st.sampled_from([(), (5,), (3, 7), (1031,)]), steps=st.integers(1, 40), seed=SEEDS, beta1=RATES,
    beta2=RATES, weight_decay=DECAYS, lr=LR, mode=st.sampled_from([0, 1]), corrected=st.booleans(),
    scale=st.sampled_from([1.0, 1024.0]),
)  # fmt: skip
@settings(max_examples=EXAMPLES, deadline=None)
def test_lamb_follows_the_paper(shape, steps, seed, beta1, beta2, weight_decay, lr, mode, corrected, scale):
    (start,) = tensors([shape], seed, torch.float64)
    arguments = (start, steps, seed, lr, (beta1, beta2), 1e-6, weight_decay, (0.01, 10.0))
    options = {"mode": mode, "corrected": corrected, "scale": scale}
    theirs, their_ratios = lamb_by_the_paper(*arguments, **options)
    ours, ratios = run_lamb(*arguments, **options)
    close([ours], [theirs], rtol=1e-9, atol=1e-9)
    assert ratios == pytest.approx(their_ratios, rel=1e-9)


@pytest.mark.parametrize("corrected", [False, True])
def test_lamb_in_float32_stays_within_the_bound(corrected):
    (start,) = tensors([(400,)], 4)
    arguments = (start, 30, 4, 1e-3, (0.9, 0.999), 1e-6, 0.01, (0.01, 10.0))
    theirs, _ = lamb_by_the_paper(*arguments, corrected=corrected)
    ours, _ = run_lamb(*arguments, corrected=corrected)
    close([ours.double()], [theirs], rtol=1e-6, atol=1e-7)


def test_lambs_ratio_is_bounded_and_1_for_a_norm_of_0():
    lamb = op("FusedLambBuilder").lamb

    def ratio(weight, gradient):
        p, g, none = torch.full((4,), weight), torch.full((4,), gradient), torch.tensor([])
        return lamb(
            p, none, torch.zeros(4), torch.zeros(4), g, 0.1, 0.9, 0.99, 2.0, 0.5, 1e-8, 1.0, 1, 1, 0, 0.0
        ).item()

    assert ratio(1000.0, 1.0) == 2.0
    assert ratio(1e-6, 1.0) == 0.5
    assert ratio(0.0, 1.0) == 1.0
    assert ratio(3.0, 0.0) == 1.0


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_lamb_takes_narrow_gradients_and_writes_a_narrow_copy(narrow):
    p = torch.linspace(-1, 1, 20)
    wide = p.clone()
    g, copy = torch.linspace(2, 3, 20).to(narrow), torch.zeros(20, dtype=narrow)
    lamb = op("FusedLambBuilder").lamb
    numbers = (0.1, 0.9, 0.99, 10.0, 0.01, 1e-8, 1.0, 1, 1, 1, 0.01)
    lamb(p, copy, torch.zeros(20), torch.zeros(20), g, *numbers)
    lamb(wide, torch.tensor([]), torch.zeros(20), torch.zeros(20), g.float(), *numbers)
    close([p], [wide], rtol=0, atol=0)
    assert torch.equal(copy, p.to(narrow))
