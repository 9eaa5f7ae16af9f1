"""What optimizers' operators are given: portable ones and DeepSpeed's own refuse the same, unchanged.

DeepSpeed's C++ ends Python, or changes what is not its own, where it gets it; the portable ones stand for it.
"""

import copy
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from accel_tests.optimizers import op, tensors  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from accel_core.errors import OpInputError  # noqa: E402
from accel_train.deepspeed._op_checks import CheckedOperator  # noqa: E402
from accel_train.ops import arguments  # noqa: E402
from accel_train.ops.portable import _tensors  # noqa: E402

ADAM = {
    "lr": 0.1,
    "beta1": 0.9,
    "beta2": 0.99,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "correct": True,
}


@pytest.fixture(params=["portable", "DeepSpeed's"])
def adam(request):
    """`cpu_adam`, ours and as DeepSpeed's is checked."""
    ours = op("CPUAdamBuilder")
    return ours if request.param == "portable" else CheckedOperator("cpu_adam", ours)


def is_portable(adam):
    return isinstance(adam, ModuleType)


def four(count=6):
    return [
        torch.ones(count),
        torch.ones(count),
        torch.zeros(count),
        torch.zeros(count),
    ]


def call(adam, name, tensors, optimizer_id=3, step=1, **changed):
    adam.create_adam(optimizer_id, 0.1, 0.9, 0.99, 1e-8, 0.0, True, False)
    try:
        getattr(adam, name)(optimizer_id, step, *{**ADAM, **changed}.values(), *tensors)
    finally:
        adam.destroy_adam(optimizer_id)


NUMBERS = [
    ({"beta1": 1}, "beta1 is 1, expected 0 <= beta1 < 1"),
    ({"beta2": 1.0}, "beta2 is 1.0, expected 0 <= beta2 < 1"),
    ({"beta2": float("nan")}, "beta2 is nan"),
    ({"beta1": "0.9x"}, "beta1 is '0.9x'"),
    ({"weight_decay": -0.1}, "weight_decay is -0.1, expected 0 or more"),
    ({"step": 0}, "step is 0, expected a whole number of 1 or more"),
    ({"step": 2.5}, r"step is 2.5, expected a whole number of 1 or more"),
    (
        {"step": 2**64 + 1},
        "step is 18446744073709551617, expected a whole number of 1 or more that fits in 64 bits",
    ),
    (
        {"optimizer_id": 2**63},
        r"optimizer_id is 9223372036854775808, expected a whole number that fits in",
    ),
    ({"optimizer_id": "first"}, "optimizer_id is 'first'"),
]


@pytest.mark.parametrize(("changed", "said"), NUMBERS)
def test_numbers_that_no_two_agree_on_are_refused_by_both(adam, changed, said):
    tensors = four()
    for name in ("adam_update", "adam_rollback"):
        with pytest.raises(OpInputError, match=f"cpu_adam: {said}"):
            call(adam, name, tensors, **changed)
    assert [t.sum().item() for t in tensors] == [6, 6, 0, 0]


@pytest.mark.parametrize(
    "changed", [{"optimizer_id": -(2**31)}, {"step": torch.tensor(2)}]
)
def test_large_numbers_and_those_in_tensors_are_taken_by_both(adam, changed):
    tensors = four()
    call(adam, "adam_update", tensors, **changed)
    assert (tensors[0] < 1).all()


@pytest.mark.parametrize(
    "changed", [{"beta1": 0.0}, {"beta2": 0}, {"weight_decay": 10.0}, torch.bfloat16]
)
def test_a_step_after_which_nothing_is_left_is_not_undone_by_either(adam, changed):
    narrow = changed is torch.bfloat16
    tensors = [tensor.bfloat16() for tensor in four()] if narrow else four()
    with pytest.raises(OpInputError, match="float32" if narrow else "cannot be undone"):
        call(adam, "adam_rollback", tensors, **({} if narrow else changed))
    assert [t.sum().item() for t in tensors] == [6, 6, 0, 0]


@pytest.mark.parametrize("adamw", [True, False])
@pytest.mark.parametrize("correct", [True, False])
def test_a_step_is_undone(adam, adamw, correct):
    p, g, m, v = tensors([(1003,)] * 4, 0)
    v.abs_()
    v[:10] = 0  # which rounding may leave below 0
    before = [tensor.clone() for tensor in (p, m, v)]
    adam.create_adam(3, 1e-2, 0.9, 0.999, 1e-8, 0.01, adamw, False)
    numbers = (3, 4, 1e-2, 0.9, 0.999, 1e-8, 0.01, correct, p, g, m, v)
    adam.adam_update(*numbers)
    assert not torch.allclose(p, before[0])
    adam.adam_rollback(*numbers)
    adam.destroy_adam(3)
    assert v.min() >= 0
    for found, expected in zip((p, m, v), before, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_that_are_not_contiguous_are_updated_in_place(adam, dtype):
    plain = [tensor.to(dtype) for tensor in tensors([(6, 8)] * 4, 2)]
    plain[3].abs_()
    wide = [torch.stack([tensor, tensor], 2) for tensor in plain]
    call(adam, "adam_update", [both[:, :, 0] for both in wide])
    before = plain[0].clone()
    call(adam, "adam_update", plain)
    assert (plain[0] != before).any()
    assert all(
        torch.equal(both[:, :, 0], one) for both, one in zip(wide, plain, strict=True)
    )
    assert torch.equal(wide[0][:, :, 1], before)


def test_an_optimizer_that_is_not_there_is_named(adam):
    for _ in range(2):
        adam.destroy_adam(12345)
    with pytest.raises(OpInputError, match="optimizer 12345"):
        adam.adam_update(12345, 1, *ADAM.values(), *four())


def test_a_rate_that_is_one_in_float32_is_refused_where_float32_is_all_there_is(adam):
    tensors, nearly = four(), 1 - 2.0**-30
    if not is_portable(adam):
        with pytest.raises(
            OpInputError, match=r"beta1 is 0.9999\d+, .* after rounding to float32"
        ):
            call(adam, "adam_update", tensors, beta1=nearly)
    else:
        call(adam, "adam_update", tensors, beta1=nearly)
        assert tensors[0].isfinite().all()


def test_autograd_learns_that_weights_have_changed(adam):
    """A backward pass that needs the old ones fails; it gave gradients of the new ones silently."""
    weight, (_, g, m, v) = torch.ones(6, requires_grad=True), four()
    strided = torch.ones(6, 2)[:, 0].requires_grad_()  # worked on as a copy
    for parameter in (weight, strided):
        loss = (parameter * parameter).sum()
        before = [m._version, v._version, g._version]
        call(adam, "adam_update", [parameter, g, m, v])
        assert (parameter < 1).all()
        assert m._version > before[0]
        assert v._version > before[1]
        assert g._version == before[2]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    with torch.inference_mode():
        tensors = four()
        call(adam, "adam_update", tensors)
        assert (tensors[0] < 1).all()
    call(adam, "adam_update", four(0))


def freed():
    tensor = torch.ones(6)
    tensor.untyped_storage().resize_(0)  # as FSDP does
    return tensor


def fake():
    with FakeTensorMode():
        return torch.ones(6)


@pytest.mark.parametrize("make", [freed, fake])
def test_what_has_no_memory_is_refused_before_its_address_is_taken(make):
    """By what stands before all compiled code; the address of either is 0."""
    for place in range(4):
        tensors = four()
        tensors[place] = make()
        with pytest.raises(
            OpInputError, match=r"op: .*Tensor\) has no memory for its 6 elements"
        ):
            arguments.update_on_host("op", ["g", "p", "m", "v"], [tensors], pytest.fail)


HALVES = {2: torch.zeros(6).half(), 3: torch.zeros(6).half()}


UNFIT = [
    ({0: None}, r"is None \(NoneType\), expected a tensor"),
    ({1: [1.0]}, r"is \[1.0\] \(list\), expected a tensor"),
    (
        {2: torch.zeros(1).expand(6)},
        r"elements that share memory, for example after expand\(\)",
    ),
    ({3: torch.zeros(7)}, "exp_avg_sq.* has 7 elements, but .* has 6"),
    (
        {0: torch.zeros(6, dtype=torch.int64)},
        "is torch.int64.*expected one of torch.float32",
    ),
    ({1: torch.zeros(6, device="meta")}, "on meta"),
    ({1: torch.eye(6).to_sparse()}, "is .*torch.sparse_coo"),
    # The portable one computes with these.
    (
        {1: torch.zeros(6, dtype=torch.bfloat16)},
        "^cpu_adam: grads has the type torch.bfloat16, but params has torch.float32",
    ),
    (
        {2: torch.zeros(6).bfloat16()},
        "^cpu_adam: exp_avg is torch.bfloat16, exp_avg_sq is torch.float32",
    ),
    (HALVES, "^cpu_adam: .*expected all states in torch.float32$"),
]


@pytest.mark.parametrize(("changed", "said"), UNFIT)
def test_tensors_that_do_not_match_are_refused(adam, changed, said):
    tensors = [changed.get(place, tensor) for place, tensor in enumerate(four())]
    taken = said.startswith("^") and is_portable(adam)
    with nullcontext() if taken else pytest.raises(OpInputError, match=said):
        call(adam, "adam_update", tensors)
    if taken:
        return
    assert all(
        tensors[place] is tensor or tensor.sum() in (0, 6)
        for place, tensor in enumerate(tensors)
    )


def test_what_only_deepspeeds_own_has_is_named_with_the_next_step(adam):
    with pytest.raises(
        AttributeError,
        match=r"ZenFlow's .* `accel ops CPUAdam` shows why the compiled operator is not used",
    ):
        adam.zenflow_adam_create  # noqa: B018 - the question is the test
    assert not hasattr(adam, "adam_sideways")


# ---------------------------------------------------------------------------- portable operators of many rows


@pytest.mark.parametrize(
    "wrong", [torch.ones(4), torch.ones(3).long(), torch.ones(1).expand(3), None]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["FusedAdamBuilder", "FusedLionBuilder"])
def test_a_wrong_row_is_found_before_another_one_is_changed(name, dtype, wrong):
    if name == "FusedAdamBuilder":
        count, step, numbers = (
            4,
            op(name).multi_tensor_adam,
            (0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.1),
        )
    else:
        count, step, numbers = 3, op(name).multi_tensor_lion, (0.1, 0.9, 0.99, 1, 0.1)
    lists = [[torch.ones(3, dtype=dtype) for _ in range(3)] for _ in range(count)]
    lists[-1][-1] = wrong
    with pytest.raises(OpInputError, match=r"\[2\]"):
        step(1, None, lists, *numbers)
    assert all((tensor == 1).all() for values in lists for tensor in values[:2])


@pytest.mark.parametrize("whose", ["ours", "DeepSpeed's"])
def test_lists_and_modes_that_are_none_are_refused(whose):
    """DeepSpeed's row by row, before one is changed."""
    ours, one, kept = op("FusedAdamBuilder"), torch.ones(1), torch.ones(8)
    adam = (
        ours if whose == "ours" else CheckedOperator("fused_adam", ours)
    ).multi_tensor_adam
    short = [[kept, kept[:3]], [kept, kept], [kept] * 2, [kept] * 2]
    theirs = (
        ([[one]] * 4, {"beta1": 1}, "beta1 is 1"),
        ([[one]] * 4, {"step": 2**31}, "in 32 bits"),
        (short, {}, r"gradients\[1\] has 3 elements"),
    )

    def fused(lists, beta1=0.9, step=1, mode=1):
        return adam(1, None, lists, 0.1, beta1, 0.99, 1e-8, step, mode, 1, 0.1)

    for lists, changed, said in (
        (None, {}, "tensor_lists is of type NoneType, expected a list"),
        ([one] * 4, {}, "gradients is of type Tensor, expected a list of tensors"),
        (
            [[one], [one], [one] * 2, [one]],
            {},
            "the list exp_avg has 2 tensors, but gradients has 1",
        ),
        ([[one]] * 3, {}, "tensor_lists has 3 lists, expected 4"),
        ([[one]] * 4, {"mode": 2}, "mode is 2, expected 0 .* or 1"),
        *(() if whose == "ours" else theirs),
    ):
        with pytest.raises(OpInputError, match=f"fused_adam: .*{said}"):
            fused(lists, **changed)
    assert (kept == 1).all()
    fused([[torch.ones(8)], [kept], [torch.zeros(8)], [torch.zeros(8)]])
    assert (kept < 1).all()
    fused([[]] * 4)
    with pytest.raises(
        OpInputError, match="fused_lion: tensor_lists has 4 lists, expected 3"
    ):
        op("FusedLionBuilder").multi_tensor_lion(
            1, None, [[one]] * 4, 0.1, 0.9, 0.99, 1, 0.0
        )


def test_lamb_refuses_another_mode_and_a_copy_of_another_size():
    p, m, v, g = (torch.ones(3) for _ in range(4))
    for written, mode, said in (
        ([], 3, "mode is 3"),
        ([0.0] * 2, 1, "p_copy has 2 elements, expected 3"),
    ):
        numbers = (0.1, 0.9, 0.99, 10.0, 0.01, 1e-8, 1.0, 1, mode, 1, 0.0)
        with pytest.raises(OpInputError, match=f"fused_lamb: {said}"):
            op("FusedLambBuilder").lamb(p, torch.tensor(written), m, v, g, *numbers)
    assert p.tolist() == [1.0, 1.0, 1.0]


def test_each_host_operator_has_optimizers_by_number(caplog):
    host, lion, one = op("CPUAdagradBuilder"), op("CPULionBuilder"), torch.ones(2)
    with caplog.at_level("INFO", logger="accel_train.ops"):
        assert host.create_adagrad(10, 0.1, 1e-8, 0, True) == 0
    assert caplog.messages == [
        "cpu_adagrad: created optimizer 10, which uses torch's operators"
    ]
    with pytest.raises(OpInputError, match="step is 0"):
        host.adagrad_update(10, 0, 0.1, 1e-8, 0, one, one, one.clone())
    assert [host.destroy_adagrad(10), lion.destroy_lion(9)] == [0, 0]
    with pytest.raises(
        OpInputError,
        match=r"cpu_adagrad: optimizer 10 was not created. Next step: call create_adagrad",
    ):
        host.adagrad_update(10, 1, 0.1, 1e-8, 0, one, one, one.clone())
    with pytest.raises(
        OpInputError,
        match=r"cpu_lion: optimizer 9 was not created. Next step: call create_lion",
    ):
        lion.lion_update(9, 1, 0.1, 0.9, 0.9, 0, one, one, one.clone())


HOSTS = [
    ("adam", (0.1, 0.9, 0.9, 0, 0, True, False), (0.1, 0.9, 0.99, 1e-8, 0.1, True), 2),
    ("adagrad", (), (0.1, 1e-8, 0.1), 1),
    ("lion", (0.1, 0.9, 0.9, 0, False), (0.1, 0.9, 0.99, 0.1), 1),
]


@pytest.mark.parametrize(
    ("name", "settings", "numbers", "states", "state"),
    [
        (*host, state)
        for host in HOSTS
        for state in (torch.float32, torch.bfloat16)
        if (host[0], state) != ("adam", torch.float32)  # torch's fused kernel takes it
    ],
)
def test_large_tensors_on_the_cpu_pass_in_pieces(
    name, settings, numbers, states, state, monkeypatch
):
    host = op(
        {
            "adam": "CPUAdamBuilder",
            "adagrad": "CPUAdagradBuilder",
            "lion": "CPULionBuilder",
        }[name]
    )

    def stepped():
        p, g = (
            torch.randn(1003, generator=torch.Generator().manual_seed(seed))
            for seed in (0, 1)
        )
        tensors = [
            p.requires_grad_(),
            g,
            *(torch.full((1003,), 0.25).to(state) for _ in range(states)),
        ]
        getattr(host, f"create_{name}")(8, *settings)
        getattr(host, f"{name}_update")(8, 3, *numbers, *tensors)
        getattr(host, f"destroy_{name}")(8)
        return tensors

    whole = stepped()
    pieces, split = [], torch.split
    monkeypatch.setattr(_tensors, "_PIECE_ELEMENTS", 64)
    monkeypatch.setattr(
        torch, "split", lambda t, size: pieces.extend(split(t, size)) or split(t, size)
    )
    assert all(torch.equal(a, b) for a, b in zip(stepped(), whole, strict=True))
    assert {len(piece) for piece in pieces} == {64, 1003 % 64}


def test_small_tensors_on_the_cpu_are_updated_together(monkeypatch):
    monkeypatch.setattr(_tensors, "_PIECE_ELEMENTS", 64)
    rows = [[torch.zeros(size)] for size in (30, 30, 10, 150, 5)]
    batches = [
        [len(row[0]) for row in batch] for batch in _tensors._split_into_batches(rows)
    ]
    assert batches == [[30, 30, 10], [64], [64], [22, 5]]


# ---------------------------------------------------------------------------- DeepSpeed's own


@pytest.mark.parametrize(
    ("kind", "numbers"), [("lion", (0.1, 0.9, 0.99, 0)), ("adagrad", (0.1, 1e-8, 0))]
)
def test_each_of_deepspeeds_operators_has_its_own_order(kind, numbers):
    own, weight, one = (
        op(f"CPU{kind.capitalize()}Builder"),
        torch.ones(3),
        torch.ones(3),
    )
    calls = []

    def compiled(*given):
        calls.append(given)
        return getattr(own, f"{kind}_update")(*given)

    create = {f"create_{kind}": getattr(own, f"create_{kind}")}
    checked = CheckedOperator(
        f"cpu_{kind}", SimpleNamespace(**create, **{f"{kind}_update": compiled})
    )
    update, rest = getattr(checked, f"{kind}_update"), (weight, one, torch.zeros(3))
    with pytest.raises(
        OpInputError,
        match=rf"optimizer 5 was not created. Next step: call create_{kind}\(5, …",
    ):
        update(5, 1, *numbers, *rest)
    settings = {"lion": (0.1, 0.9, 0.9, 0, False), "adagrad": (0.1, 1e-8, 0, False)}
    with pytest.raises(
        OpInputError, match="2147483648, expected a whole number that fits in 32 bits"
    ):
        getattr(checked, f"create_{kind}")(2**31, *settings[kind])
    getattr(checked, f"create_{kind}")(5, *settings[kind])
    for wrong, said in (
        ((*numbers[:-1], -1.0, *rest), "weight_decay is -1.0"),
        ((*numbers, *rest[:2], one[1:]), "2 el"),
    ):
        with pytest.raises(OpInputError, match=said):
            update(5, 1, *wrong)
    assert calls == []
    update(5, 1, *numbers, *rest)
    assert (weight < 1).all()
    assert copy.deepcopy(checked) is checked
