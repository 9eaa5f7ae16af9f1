"""The portable Adams against torch.optim, and their tensors of every kind."""

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


@pytest.mark.slow
@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
@given(shapes=SHAPES, steps=STEPS, seed=SEEDS, beta1=RATES, beta2=RATES, weight_decay=DECAYS, lr=LR)
@settings(max_examples=EXAMPLES, deadline=None)
def test_both_adams_equal_torchs(decoupled, shapes, steps, seed, beta1, beta2, weight_decay, lr):
    start = tensors(shapes, seed)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    theirs = torchs(kind, start, steps, seed, lr=lr, betas=(beta1, beta2), weight_decay=weight_decay)

    fused, together = op("FusedAdamBuilder"), [t.clone() for t in start]
    m, v = zeros(together), zeros(together)
    host, alone = op("CPUAdamBuilder"), [t.clone() for t in start]
    states = [(torch.zeros_like(t), torch.zeros_like(t)) for t in start]
    host.create_adam(7001, lr, beta1, beta2, 1e-8, weight_decay, decoupled, False)
    flag = torch.zeros(1, dtype=torch.int32)
    for step in range(1, steps + 1):
        g = gradients(start, step, seed)
        given_g = [t.clone() for t in g]
        lists = [g, together, m, v]
        fused.multi_tensor_adam(
            65536, flag, lists, lr, beta1, beta2, 1e-8, step, int(decoupled), 1, weight_decay
        )
        for p, one, state in zip(alone, g, states, strict=True):
            host.adam_update(7001, step, lr, beta1, beta2, 1e-8, weight_decay, True, p, one, *state)
        close(g, given_g, rtol=0, atol=0)
    host.destroy_adam(7001)
    close(together, theirs)
    close(alone, theirs)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_without_bias_correction(decoupled):
    start = tensors([(5, 3)], 1)
    p = [start[0].clone()]
    m, v = zeros(p), zeros(p)
    weight, average, square = start[0].double(), torch.zeros(5, 3).double(), torch.zeros(5, 3).double()
    for step in range(1, 30):
        g = gradients(start, step, 1)
        op("FusedAdamBuilder").multi_tensor_adam(
            1, None, [g, p, m, v], 1e-2, 0.9, 0.99, 1e-8, step, int(decoupled), 0, 0.1
        )
        gradient = g[0].double() if decoupled else g[0].double() + 0.1 * weight
        if decoupled:
            weight = weight - 1e-2 * 0.1 * weight
        average = 0.9 * average + (1 - 0.9) * gradient
        square = 0.99 * square + (1 - 0.99) * gradient**2
        weight = weight - 1e-2 * average / (square.sqrt() + 1e-8)
    close([p[0].double()], [weight], rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("narrow", [True, False], ids=["narrow states", "float32 states"])
def test_low_precision_is_computed_in_float32(dtype, narrow):
    start = tensors([(40,), (3, 3)], 5, dtype)
    m, v = (zeros(start, dtype if narrow else torch.float32) for _ in range(2))
    p = [t.clone() for t in start]
    g = gradients(start, 1, 5)
    op("FusedAdamBuilder").multi_tensor_adam(1, None, [g, p, m, v], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    wide = [t.float() for t in start]
    for one, weight, gradient in zip(p, wide, g, strict=True):
        average, square = gradient.float() * 0.1, gradient.float() ** 2 * 0.001
        step = average / 0.1 / ((square / 0.001).sqrt() + 1e-8)
        close([one], [(weight * (1 - 1e-3) - 1e-2 * step).to(dtype)], rtol=0, atol=torch.finfo(dtype).eps)
    assert {t.dtype for t in (*m, *v)} == {dtype if narrow else torch.float32}
    assert all(t.abs().sum() > 0 for t in (*m, *v))


def test_one_call_takes_lists_of_several_precisions():
    start = [
        t.to(d)
        for t, d in zip(
            tensors([(9,)] * 4, 3), (torch.float32, torch.bfloat16, torch.float64, torch.float16), strict=True
        )
    ]
    together, alone = [t.clone() for t in start], [t.clone() for t in start]
    g = gradients(start, 1, 3)
    call = op("FusedAdamBuilder").multi_tensor_adam
    rest = (1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    call(1, None, [g, together, zeros(start), zeros(start)], *rest)
    for one, gradient in zip(alone, g, strict=True):
        call(1, None, [[gradient], [one], zeros([one]), zeros([one])], *rest)
    close(together, alone, rtol=0, atol=0)
    assert all((a != b).any() for a, b in zip(together, start, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_that_are_not_contiguous_are_updated_in_place(dtype):
    base = tensors([(6, 8)], 2, dtype)[0]
    view, twin = base.t()[::2], base.t()[::2].clone()
    kept = base.t()[1::2].clone()
    g = gradients([twin], 1, 2)
    call = op("FusedAdamBuilder").multi_tensor_adam
    for p in (view, twin):
        call(1, None, [g, [p], zeros([twin]), zeros([twin])], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    assert not view.is_contiguous()
    close([view], [twin], rtol=0, atol=0)
    close([base.t()[1::2]], [kept], rtol=0, atol=0)


def test_states_may_be_flat_as_deepspeeds_swap_buffers_are():
    p, twin = tensors([(4, 3)], 2)[0], tensors([(4, 3)], 2)[0]
    (g,) = gradients([p], 1, 2)
    m, v = torch.zeros(12), torch.zeros(12)
    call = op("FusedAdamBuilder").multi_tensor_adam
    call(1, None, [[g], [p], [m], [v]], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    call(1, None, [[g], [twin], zeros([p]), zeros([p])], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    close([p], [twin], rtol=0, atol=0)
    assert m.abs().sum() > 0
    with pytest.raises(ValueError, match="not contiguous"):
        call(1, None, [[g.t()], [p], [m], [v.view(3, 4).t()]], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)


def test_a_parameter_that_requires_a_gradient_is_updated():
    p = torch.ones(3, requires_grad=True)
    op("FusedAdamBuilder").multi_tensor_adam(
        1,
        None,
        [[torch.ones(3)], [p], [torch.zeros(3)], [torch.zeros(3)]],
        0.1,
        0.9,
        0.999,
        1e-8,
        1,
        1,
        1,
        0.0,
    )
    close([p.detach()], [torch.full((3,), 0.9)], rtol=1e-5)


def test_infinities_and_nans_are_seen():
    p, g = torch.ones(2), torch.tensor([math.inf, math.nan])
    flag = torch.ones(1, dtype=torch.int32)
    lists = [[g], [p], [torch.zeros(2)], [torch.zeros(2)]]
    op("FusedAdamBuilder").multi_tensor_adam(1, flag, lists, 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    assert p.isnan().all()


def test_empty_lists_are_no_work():
    op("FusedAdamBuilder").multi_tensor_adam(1, None, [[], [], [], []], 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)


@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
@pytest.mark.parametrize("bias_correction", [False, True])
@given(seed=SEEDS, step=st.integers(1, 20), weight_decay=DECAYS)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_step_is_rolled_back(decoupled, bias_correction, seed, step, weight_decay):
    host = op("CPUAdamBuilder")
    host.create_adam(7002, 1e-2, 0.9, 0.99, 1e-8, weight_decay, decoupled, False)
    p, m, v = (t for t in tensors([(50,)] * 3, seed, torch.float64))
    v.abs_()
    (g,) = tensors([(50,)], seed + 1, torch.float64)
    before = [t.clone() for t in (p, m, v)]
    numbers = (step, 1e-2, 0.9, 0.99, 1e-8, weight_decay, bias_correction)
    assert host.adam_update(7002, *numbers, p, g, m, v) == 0
    assert (p != before[0]).any()
    assert host.adam_rollback(7002, *numbers, p, g, m, v) == 0
    close([p, m, v], before, rtol=1e-9)
    single = [t.float() for t in before]
    host.adam_update(7002, *numbers, single[0], g.float(), *single[1:])
    host.adam_rollback(7002, *numbers, single[0], g.float(), *single[1:])
    close([t.double() for t in single], before, rtol=1e-5, atol=1e-5)
    host.destroy_adam(7002)


def test_a_rolled_back_square_is_never_below_zero():
    host = op("CPUAdamBuilder")
    host.create_adam(7003, 1e-2, 0.9, 0.9, 1e-8, 0, True, False)
    p, g, m, v = torch.ones(4000), torch.linspace(0.1, 9, 4000), torch.zeros(4000), torch.zeros(4000)
    host.adam_update(7003, 1, 1e-2, 0.9, 0.9, 1e-8, 0, True, p, g, m, v)
    host.adam_rollback(7003, 1, 1e-2, 0.9, 0.9, 1e-8, 0, True, p, g, m, v)
    assert v.min() >= 0
    host.destroy_adam(7003)


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ((1, 1e-2, 0.0, 0.9, 1e-8, 0, True), torch.float32),
        ((1, 1e-2, 0.9, 0.0, 1e-8, 0, True), torch.float32),
        ((1, 0.5, 0.9, 0.9, 1e-8, 2.0, True), torch.float32),
        ((1, 1e-2, 0.9, 0.9, 1e-8, 0, True), torch.bfloat16),
    ],
)
def test_what_cannot_be_rolled_back_is_refused(numbers, dtype):
    host = op("CPUAdamBuilder")
    host.create_adam(7004, 1e-2, 0.9, 0.9, 1e-8, 0, True, False)
    with pytest.raises(ValueError, match="undone"):
        host.adam_rollback(7004, *numbers, *(torch.ones(2, dtype=dtype) for _ in range(4)))
    host.destroy_adam(7004)
