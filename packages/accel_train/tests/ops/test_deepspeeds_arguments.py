"""DeepSpeed's own C++ for the processor is given nothing that would end Python."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from accel_core.errors import OpInputError  # noqa: E402
from accel_train.deepspeed._foreign import CheckedOperator  # noqa: E402

NUMBERS = {
    "adam": {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "decay": 0.0, "correct": True},
    "lion": {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "decay": 0.0},
    "adagrad": {"lr": 0.1, "eps": 1e-8, "decay": 0.0},
}


class Compiled:
    """As the C++: it takes the tensors' memory as it is, and subtracts from parameters, which come first."""

    def __getattr__(self, name):
        kind, _, what = name.partition("_")
        if what in ("update", "rollback"):
            return lambda _id, _step, *rest: rest[len(NUMBERS[kind])].sub_(0.5)
        if name == "multi_tensor_adam":
            return lambda _size, _flag, lists, *_: [parameter.sub_(0.5) for parameter in lists[1]]
        return lambda *given: given


def ones(count=8, dtype=torch.float32):
    return torch.ones(count, dtype=dtype)


@pytest.fixture(params=NUMBERS)
def update(request):
    """`update(tensors)`: a step of that optimizer."""
    kind = request.param
    op = CheckedOperator(f"cpu_{kind}", Compiled())
    getattr(op, f"create_{kind}")(5, 0.1)
    states = {"adam": 2}.get(kind, 1)

    def step(parameter=None, gradient=None, *, name="update", optimizer_id=5, step=1, last=None, **changed):
        made = [tensor if tensor is not None else ones() for tensor in (parameter, gradient)]
        tensors = [*made, *([ones()] * states)]
        tensors[-1] = tensors[-1] if last is None else last
        numbers = {**NUMBERS[kind], **changed}.values()
        return getattr(op, f"{kind}_{name}")(optimizer_id, step, *numbers, *tensors)

    step.op, step.kind = op, kind
    return step


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"optimizer_id": 77}, r"optimizer 77 was not created. Call create_\w+\(77, …\)"),
        ({"gradient": ones(7)}, "grads has 7 elements"),
        ({"gradient": ones(dtype=torch.float16)}, "grads are torch.float16"),
        ({"last": ones(dtype=torch.bfloat16)}, "torch.bfloat16"),
        ({"step": 0}, "step is 0"),
        ({"decay": -1.0}, "weight_decay is -1.0"),
    ],
)
def test_a_wrong_update_changes_nothing(update, changed, said):
    weight = ones()
    with pytest.raises(OpInputError, match=f"cpu_{update.kind}: .*{said}"):
        update(weight, **changed)
    assert weight.tolist() == [1.0] * 8


def test_a_step_reaches_every_memory_and_autograd(update):
    weight, strided = ones().requires_grad_(), ones(16)[::2]
    loss = (weight * weight).sum()
    update(weight)
    update(strided)
    assert set(weight.tolist() + strided.tolist()) == {0.5}
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    getattr(update.op, f"destroy_{update.kind}")(5)
    with pytest.raises(OpInputError, match="optimizer 5 was not created"):
        update()
    with pytest.raises(OpInputError, match=r"optimizer_id is 2147483648, .* in 32 bits"):
        getattr(update.op, f"create_{update.kind}")(2**31)
    assert copy.deepcopy(update.op) is update.op
    assert update.op.zenflow_create(1) == (1,)


@pytest.mark.parametrize("update", ["adam"], indirect=True)
def test_only_steps_in_float32_are_undone(update):
    half = ones(dtype=torch.bfloat16)
    for tensors, changed, said in (
        ([half, half], {"last": half}, "float32 can be"),
        ([], {"beta1": 0}, "undone"),
    ):
        with pytest.raises(OpInputError, match=said):
            update(*tensors, name="rollback", **changed)
    update(weight := ones(), name="rollback")
    assert set(weight.tolist()) == {0.5}


def test_lists_of_tensors_are_checked_row_by_row():
    adam = CheckedOperator("fused_adam", Compiled()).multi_tensor_adam

    def fused(lists, beta1=0.9, step=1, mode=1):
        return adam(1, None, lists, 0.1, beta1, 0.999, 1e-8, step, mode, 1, 0.0)

    kept = ones()
    second = [[ones(), ones(3)], [kept, ones()], [ones()] * 2, [ones()] * 2]
    for lists, changed, said in (
        (second, {}, r"gradients\[1\] has 3 elements"),
        ([[ones()]] * 3, {}, "3 lists of tensors"),
        ([[ones()]] * 4, {"mode": 7}, "mode is 7"),
        ([[ones()]] * 4, {"beta1": 1}, "beta1 is 1"),
        ([[ones()]] * 4, {"step": 2**31}, "in 32 bits"),
    ):
        with pytest.raises(OpInputError, match=f"fused_adam: .*{said}"):
            fused(lists, **changed)
    assert kept.tolist() == [1.0] * 8
    fused([[ones()], [kept], [ones()], [ones()]])
    assert set(kept.tolist()) == {0.5}
    fused([[]] * 4)
