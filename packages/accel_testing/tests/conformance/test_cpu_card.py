"""The score card of the built-in `cpu`, ranks too, as `accel verify` gives it and the docs tell it."""

import pytest

pytest.importorskip("torch")

from accel_tests.cards import on_record, require_as_recorded, run_processor

import accel_core

pytestmark = pytest.mark.nightly(
    reason="all checks of the kit on the CPU; by day session simulated has three cards"
)

#: Claimed where the CPU computes in float16.
OF_FLOAT16 = "compute.arithmetic.scaled_losses"


def test_the_processor_keeps_every_promise_that_it_makes():
    card = run_processor()
    claimed = accel_core.accelerator("cpu").is_fp16_supported()
    assert card["outcomes"][OF_FLOAT16] == ("passed" if claimed else "not claimed")
    card["outcomes"][OF_FLOAT16] = on_record("cpu")["outcomes"][OF_FLOAT16]
    require_as_recorded(card, "cpu")


def test_no_gradient_is_all_zeros():
    """It would be the same on every device, whatever the kernel."""
    import torch

    from accel_testing.conformance.compute import test_forms as forms

    given = torch.sin(torch.arange(30.0) * 1.7 + 0.25).reshape(5, 6) * 2.3
    assert [
        name
        for name, work in forms.DIFFERENTIABLE.items()
        if not forms._weighted_gradient(work)(given).any()
    ] == []
