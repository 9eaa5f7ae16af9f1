"""What the portable operators refuse, and in which words."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accel_tests.optimizers import op  # noqa: E402


def adam_lists(**changes):
    lists = {name: [torch.zeros(3)] for name in ("g", "p", "m", "v")}
    return [*{**lists, **changes}.values()]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (adam_lists(m=[torch.zeros(3)] * 2), "2 exp_avg, but 1 gradients"),
        (adam_lists(v=[]), "0 exp_avg_sq, but 1 gradients"),
        (adam_lists()[:3], "3 lists of tensors, expected 4"),
        (
            adam_lists(p=[torch.zeros(3, dtype=torch.int64)]),
            r"parameters\[0\] is torch.int64, expected one of",
        ),
        (adam_lists(g=[torch.zeros(3, dtype=torch.complex64)]), r"gradients\[0\] is torch.complex64"),
        (adam_lists(g=[torch.zeros(3).to_sparse()]), r"gradients\[0\] is torch.sparse_coo"),
        (adam_lists(m=[torch.zeros(3, device="meta")]), r"exp_avg\[0\] is on meta, .* on cpu"),
        (adam_lists(v=[torch.zeros(4)]), r"exp_avg_sq\[0\] has 4 elements, but its gradient has 3"),
    ],
)
def test_tensors_that_do_not_match_are_refused(lists, message):
    with pytest.raises(ValueError, match=f"fused_adam: .*{message}") as refused:
        op("FusedAdamBuilder").multi_tensor_adam(1, None, lists, 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    assert type(refused.value).__name__ == "OpInputError"


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0.1, 1.0, 0.9, 1e-8, 1, 1, 1, 0.0), "beta1 is 1.0, expected 0 <= beta1 < 1"),
        ((0.1, 0.9, -0.1, 1e-8, 1, 1, 1, 0.0), "beta2 is -0.1"),
        ((0.1, 0.9, 0.9, 1e-8, 0, 1, 1, 0.0), "step is 0, expected 1 or more"),
        ((0.1, 0.9, 0.9, 1e-8, 1, 2, 1, 0.0), "mode is 2, expected 0 .* or 1"),
    ],
)
def test_numbers_out_of_range_are_refused_and_nothing_is_changed(numbers, message):
    lists = adam_lists(p=[torch.ones(3)], g=[torch.ones(3)])
    with pytest.raises(ValueError, match=message):
        op("FusedAdamBuilder").multi_tensor_adam(1, None, lists, *numbers)
    assert lists[1][0].tolist() == [1.0, 1.0, 1.0]


def test_lions_lists_are_counted_too():
    with pytest.raises(ValueError, match="fused_lion: 4 lists of tensors, expected 3"):
        op("FusedLionBuilder").multi_tensor_lion(1, None, adam_lists(), 0.1, 0.9, 0.99, 1, 0.0)


def test_an_optimizer_that_was_not_created_is_named():
    one = torch.ones(2)
    calls = {
        "cpu_adam": lambda: op("CPUAdamBuilder").adam_update(
            9, 1, 0.1, 0.9, 0.9, 1e-8, 0, True, one, one, one.clone(), one.clone()
        ),
        "cpu_adagrad": lambda: op("CPUAdagradBuilder").adagrad_update(
            9, 1, 0.1, 1e-8, 0, one, one, one.clone()
        ),
        "cpu_lion": lambda: op("CPULionBuilder").lion_update(9, 1, 0.1, 0.9, 0.9, 0, one, one, one.clone()),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name}: optimizer 9 was not created. Call create_"):
            call()
    assert one.tolist() == [1.0, 1.0]


def test_an_optimizer_is_gone_once_it_is_destroyed_and_destroying_twice_is_no_error(caplog):
    host, one = op("CPUAdagradBuilder"), torch.ones(2)
    with caplog.at_level("INFO", logger="accel_train.ops"):
        assert host.create_adagrad(10, 0.1, 1e-8, 0, True) == 0
    assert caplog.messages == ["cpu_adagrad 10: portable, on torch's operators"]
    with pytest.raises(ValueError, match="step is 0"):
        host.adagrad_update(10, 0, 0.1, 1e-8, 0, one, one, one.clone())
    assert host.destroy_adagrad(10) == 0
    assert host.destroy_adagrad(10) == 0
    with pytest.raises(ValueError, match="optimizer 10 was not created"):
        host.adagrad_update(10, 1, 0.1, 1e-8, 0, one, one, one.clone())


def test_lamb_refuses_another_mode_and_a_copy_of_another_size():
    ones = [torch.ones(3) for _ in range(4)]
    p, m, v, g = ones
    numbers = (0.1, 0.9, 0.99, 10.0, 0.01, 1e-8, 1.0, 1)
    with pytest.raises(ValueError, match="fused_lamb: mode is 3"):
        op("FusedLambBuilder").lamb(p, torch.tensor([]), m, v, g, *numbers, 3, 1, 0.0)
    with pytest.raises(ValueError, match="p_copy has 2 elements, expected 3 or none"):
        op("FusedLambBuilder").lamb(p, torch.zeros(2), m, v, g, *numbers, 1, 1, 0.0)
    assert p.tolist() == [1.0, 1.0, 1.0]
