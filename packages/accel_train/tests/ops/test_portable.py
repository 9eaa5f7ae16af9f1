"""The portable operators: Adam, Adagrad against torch.optim, Lion and LAMB against the papers' formulas."""

import math

import pytest

from accel_core.errors import UnsupportedError
from accel_train.ops import portable

torch = pytest.importorskip("torch")

from accel_tests.optimizers import (  # noqa: E402
    ARGUMENTS,
    close,
    gradients,
    op,
    tensors,
    torchs,
    tried,
    zeros,
)
from hypothesis import strategies as st  # noqa: E402


@pytest.mark.parametrize(
    ("name", "op"),
    {
        "CPUAdagradBuilder": "cpu_adagrad",
        "CPUAdamBuilder": "cpu_adam",
        "CPULionBuilder": "cpu_lion",
        "FusedAdamBuilder": "fused_adam",
        "FusedLambBuilder": "fused_lamb",
        "FusedLionBuilder": "fused_lion",
    }.items(),
)
def test_a_builder_says_what_it_is_and_loads_its_functions(name, op):
    assert name in portable.__all__
    builder = getattr(portable, name)()
    assert builder.NAME == builder.name == op
    assert builder.absolute_name() == f"accel_train.ops.portable.{op}"
    assert (
        builder.is_built()
        is builder.is_compatible()
        is builder.is_compatible(verbose=True)
        is True
    )
    with pytest.raises(UnsupportedError, match=f"{op}: .* no extension to build"):
        builder.builder()
    module = builder.load(verbose=False)
    assert module.__name__.endswith(op)
    assert all(callable(getattr(module, function)) for function in module.__all__)


def test_without_torch_a_builder_is_not_compatible(monkeypatch):
    monkeypatch.setattr(portable, "torch_build", lambda: None)
    assert portable.FusedAdamBuilder().is_compatible() is False
    assert portable.FusedAdamBuilder().compatibility() == "torch is not installed"


@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
@tried(*ARGUMENTS)
def test_both_adams_on_the_cpu_equal_torchs_fused_one_to_the_bit(
    decoupled, shapes, steps, seed, beta1, beta2, weight_decay, lr
):
    start = tensors(shapes, seed)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    options = {"lr": lr, "betas": (beta1, beta2), "weight_decay": weight_decay}
    theirs = torchs(kind, start, steps, seed, fused=True, **options)

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
            1,
            flag,
            lists,
            lr,
            beta1,
            beta2,
            1e-8,
            step,
            int(decoupled),
            1,
            weight_decay,
        )
        for p, one, state in zip(alone, g, states, strict=True):
            host.adam_update(
                7001, step, lr, beta1, beta2, 1e-8, weight_decay, True, p, one, *state
            )
        close(g, given_g, rtol=0, atol=0)
    host.destroy_adam(7001)
    close(together, theirs, rtol=0, atol=0)
    close(alone, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_without_bias_correction(decoupled):
    start = tensors([(5, 3)], 1)
    p = [start[0].clone()]
    m, v = zeros(p), zeros(p)
    weight, average, square = (
        start[0].double(),
        torch.zeros(5, 3).double(),
        torch.zeros(5, 3).double(),
    )
    for step in range(1, 30):
        g = gradients(start, step, 1)
        numbers = (1e-2, 0.9, 0.99, 1e-8, step, int(decoupled), 0, 0.1)
        op("FusedAdamBuilder").multi_tensor_adam(1, None, [g, p, m, v], *numbers)
        gradient = g[0].double() if decoupled else g[0].double() + 0.1 * weight
        if decoupled:
            weight = weight - 1e-2 * 0.1 * weight
        average = 0.9 * average + (1 - 0.9) * gradient
        square = 0.99 * square + (1 - 0.99) * gradient**2
        weight = weight - 1e-2 * average / (square.sqrt() + 1e-8)
    close([p[0].double()], [weight], rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "narrow", [True, False], ids=["narrow states", "float32 states"]
)
def test_low_precision_is_computed_in_float32(dtype, narrow):
    start = tensors([(40,), (3, 3)], 5, dtype)
    m, v = (zeros(start, dtype if narrow else torch.float32) for _ in range(2))
    p = [t.clone() for t in start]
    g = gradients(start, 1, 5)
    op("FusedAdamBuilder").multi_tensor_adam(
        1, None, [g, p, m, v], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1
    )
    wide = [t.float() for t in start]
    for one, weight, gradient in zip(p, wide, g, strict=True):
        average, square = gradient.float() * 0.1, gradient.float() ** 2 * 0.001
        step = average / 0.1 / ((square / 0.001).sqrt() + 1e-8)
        close(
            [one],
            [(weight * (1 - 1e-3) - 1e-2 * step).to(dtype)],
            rtol=0,
            atol=torch.finfo(dtype).eps,
        )
    assert {t.dtype for t in (*m, *v)} == {dtype if narrow else torch.float32}
    assert all(t.abs().sum() > 0 for t in (*m, *v))


def test_one_call_takes_lists_of_several_precisions():
    start = [
        t.to(d)
        for t, d in zip(
            tensors([(9,)] * 4, 3),
            (torch.float32, torch.bfloat16, torch.float64, torch.float16),
            strict=True,
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


def test_states_may_be_flat_as_deepspeeds_swap_buffers_are():
    p, twin = tensors([(4, 3)], 2)[0], tensors([(4, 3)], 2)[0]
    (g,) = gradients([p], 1, 2)
    m, v = torch.zeros(12), torch.zeros(12)
    call = op("FusedAdamBuilder").multi_tensor_adam
    call(1, None, [[g], [p], [m], [v]], 1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    call(
        1,
        None,
        [[g], [twin], zeros([p]), zeros([p])],
        1e-2,
        0.9,
        0.999,
        1e-8,
        1,
        1,
        1,
        0.1,
    )
    close([p], [twin], rtol=0, atol=0)
    assert m.abs().sum() > 0
    with pytest.raises(ValueError, match="not contiguous"):
        call(
            1,
            None,
            [[g.t()], [p], [m], [v.view(3, 4).t()]],
            1e-2,
            0.9,
            0.999,
            1e-8,
            1,
            1,
            1,
            0.1,
        )


def by_cpu_adam(start, states, steps, *, decoupled, weight_decay):
    """Parameter and states after these steps of the portable `cpu_adam`."""
    host, (p,) = op("CPUAdamBuilder"), [t.clone() for t in start]
    m, v = (torch.zeros_like(p, dtype=states) for _ in range(2))
    host.create_adam(7002, 1e-2, 0.9, 0.999, 1e-8, weight_decay, decoupled, False)
    for step in range(1, steps + 1):
        (g,) = gradients(start, step, 11)
        numbers = (1e-2, 0.9, 0.999, 1e-8, weight_decay, True)
        host.adam_update(7002, step, *numbers, p, g, m, v)
    host.destroy_adam(7002)
    return p, m, v


def by_torch(start, steps, *, decoupled, weight_decay, **how):
    """Parameter and states after these steps of torch's optimizer."""
    parameter = torch.nn.Parameter(start[0].clone())
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([parameter], lr=1e-2, weight_decay=weight_decay, **how)
    for step in range(1, steps + 1):
        (parameter.grad,) = gradients(start, step, 11)
        optimizer.step()
    state = optimizer.state[parameter]
    return parameter.detach(), state["exp_avg"], state["exp_avg_sq"]


ONE_TYPE = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
@pytest.mark.parametrize("dtype", ONE_TYPE, ids=str)
def test_five_steps_of_cpu_adam_equal_torchs_fused_adam_to_the_bit(
    dtype, decoupled, weight_decay
):
    start = tensors([(1031,)], 11, dtype)
    options = {"decoupled": decoupled, "weight_decay": weight_decay}
    ours = by_cpu_adam(start, dtype, 5, **options)
    theirs = by_torch(start, 5, fused=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
def test_five_steps_of_cpu_adam_in_float32_are_a_rounding_away_from_torchs_foreach(
    decoupled,
):
    start = tensors([(1031,)], 11)
    options = {"decoupled": decoupled, "weight_decay": 0.1}
    ours = by_cpu_adam(start, torch.float32, 5, **options)
    theirs = by_torch(start, 5, foreach=True, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= torch.finfo(torch.float32).eps * b.abs().max()


@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_states_in_float32_are_kept_for_weights_that_are_narrower(dtype, decoupled):
    """Torch's fused kernel does not take the two types together."""
    start = tensors([(1031,)], 11, dtype)
    options = {"decoupled": decoupled, "weight_decay": 0.1}
    p, m, v = by_cpu_adam(start, torch.float32, 1, **options)
    wide = [t.float() for t in start]
    theirs = by_torch(wide, 1, foreach=True, **options)
    assert p.dtype == dtype
    assert m.dtype == torch.float32
    assert v.dtype == torch.float32
    assert torch.equal(p, theirs[0].to(dtype))


def test_a_parameter_that_is_not_contiguous_takes_the_same_step():
    start = tensors([(8, 6)], 3)
    strided = torch.stack([start[0], start[0]], 2)
    states, plain = [zeros([start[0]])[0] for _ in range(4)], start[0].clone()
    (g,) = gradients(start, 1, 3)
    step = op("FusedAdamBuilder").multi_tensor_adam
    numbers = (1e-2, 0.9, 0.999, 1e-8, 1, 1, 1, 0.1)
    step(1, None, [[g], [strided[:, :, 0]], [states[0]], [states[1]]], *numbers)
    step(1, None, [[g], [plain], [states[2]], [states[3]]], *numbers)
    assert torch.equal(strided[:, :, 0], plain)
    assert torch.equal(strided[:, :, 1], start[0]), "memory beside it is untouched"


# ---------------------------------------------------------------------------- Adagrad


@tried("shapes", "steps", "seed", "weight_decay", "lr")
def test_adagrad_equals_torchs(shapes, steps, seed, weight_decay, lr):
    start = tensors(shapes, seed)
    theirs = torchs(
        torch.optim.Adagrad,
        start,
        steps,
        seed,
        foreach=False,
        lr=lr,
        eps=1e-10,
        weight_decay=weight_decay,
    )
    host, ours = op("CPUAdagradBuilder"), [t.clone() for t in start]
    totals = zeros(ours)
    host.create_adagrad(7005, lr, 1e-10, weight_decay, False)
    for step in range(1, steps + 1):
        for p, g, total in zip(ours, gradients(start, step, seed), totals, strict=True):
            kept = g.clone()
            assert (
                host.adagrad_update(7005, step, lr, 1e-10, weight_decay, p, g, total)
                == 0
            )
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


@tried(*ARGUMENTS)
def test_both_lions_follow_the_paper(
    shapes, steps, seed, beta1, beta2, weight_decay, lr
):
    # In float64, as a sign that hangs on the last bit would turn by rounding.
    start = tensors(shapes, seed, torch.float64)
    theirs = lion_by_the_paper(start, steps, seed, lr, beta1, beta2, weight_decay)
    fused, together, m = (
        op("FusedLionBuilder"),
        [t.clone() for t in start],
        zeros(start),
    )
    host, alone, states = op("CPULionBuilder"), [t.clone() for t in start], zeros(start)
    host.create_lion(7006, lr, beta1, beta2, weight_decay, False)
    for step in range(1, steps + 1):
        g = gradients(start, step, seed)
        fused.multi_tensor_lion(
            65536, None, [g, together, m], lr, beta1, beta2, step, weight_decay
        )
        for p, one, state in zip(alone, g, states, strict=True):
            assert (
                host.lion_update(
                    7006, step, lr, beta1, beta2, weight_decay, p, one, state
                )
                == 0
            )
    host.destroy_lion(7006)
    close(together, theirs, rtol=1e-11)
    close(alone, theirs, rtol=1e-11)


def test_lion_does_not_move_a_weight_without_a_direction():
    p = torch.ones(2)
    lists = [[torch.zeros(2)], [p], [torch.zeros(2)]]
    op("FusedLionBuilder").multi_tensor_lion(1, None, lists, 0.1, 0.9, 0.99, 1, 0.0)
    assert p.tolist() == [1.0, 1.0]


# ---------------------------------------------------------------------------- LAMB


def lamb_by_the_paper(
    start,
    steps,
    seed,
    lr,
    betas,
    eps,
    weight_decay,
    bounds,
    *,
    mode=1,
    corrected=False,
    scale=1.0,
):
    """You et al. 2020, algorithm 2, in float64; `corrected`: the step is scaled, as DeepSpeed does it."""
    weight, m, v = (
        start.double(),
        torch.zeros_like(start).double(),
        torch.zeros_like(start).double(),
    )
    ratios = []
    for step in range(1, steps + 1):
        g = gradients([start], step, seed)[0].double() / scale
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        r = m / (v.sqrt() + eps if mode == 1 else (v + eps).sqrt())
        change = r + weight_decay * weight
        norms = weight.square().sum().sqrt().item(), change.square().sum().sqrt().item()
        ratio = (
            min(max(norms[0] / norms[1], bounds[0]), bounds[1]) if all(norms) else 1.0
        )
        size = (
            lr * math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
            if corrected
            else lr
        )
        weight = weight - size * ratio * change
        ratios.append(ratio)
    return weight, ratios


def run_lamb(
    start,
    steps,
    seed,
    lr,
    betas,
    eps,
    weight_decay,
    bounds,
    *,
    mode=1,
    corrected=False,
    scale=1.0,
):
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


@tried(
    "seed", "beta1", "beta2", "weight_decay", "lr", steps=st.integers(1, 40), mode=st.sampled_from([0, 1]),
    shape=st.sampled_from([(), (5,), (3, 7), (1031,)]), corrected=st.booleans(),
    scale=st.sampled_from([1.0, 1024.0]),
)  # fmt: skip
def test_lamb_follows_the_paper(
    shape, steps, seed, beta1, beta2, weight_decay, lr, mode, corrected, scale
):
    (start,) = tensors([shape], seed, torch.float64)
    arguments = (
        start,
        steps,
        seed,
        lr,
        (beta1, beta2),
        1e-6,
        weight_decay,
        (0.01, 10.0),
    )
    options = {"mode": mode, "corrected": corrected, "scale": scale}
    theirs, their_ratios = lamb_by_the_paper(*arguments, **options)
    ours, ratios = run_lamb(*arguments, **options)
    close([ours], [theirs], rtol=1e-9, atol=1e-9)
    assert ratios == pytest.approx(their_ratios, rel=1e-9)


def test_lambs_ratio_is_bounded_and_1_for_a_norm_of_0():
    lamb = op("FusedLambBuilder").lamb

    def ratio(weight, gradient):
        p, g, none = (
            torch.full((4,), weight),
            torch.full((4,), gradient),
            torch.tensor([]),
        )
        return lamb(
            p,
            none,
            torch.zeros(4),
            torch.zeros(4),
            g,
            0.1,
            0.9,
            0.99,
            2.0,
            0.5,
            1e-8,
            1.0,
            1,
            1,
            0,
            0.0,
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
