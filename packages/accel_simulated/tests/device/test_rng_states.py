"""Random states that come from another type of device, or are set under fake tensors."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
NEXT_STEP = (
    "so the state is from another type of device. Seed the device instead: "
    "set_rng_state(state, strict=False), or manual_seed(seed)"
)


@pytest.fixture(scope="session")
def answer(simulated, shared_by_workers):
    """What one process prints."""
    return shared_by_workers(
        "rng-states", lambda: simulated("acme", PROGRAMS / "rng_states.py").answer
    )


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("CPU state on acme", "generic: this state has 5056 bytes, but a state of this device has 16, "),
        ("acme state on CPU", "cpu: this state has 16 bytes, but a state of this device has 5056, "),
    ],
)  # fmt: skip
def test_a_state_of_another_device_raises_an_error_with_the_next_step(
    answer, case, error
):
    assert answer[case] == error + NEXT_STEP


def test_without_strict_a_state_of_the_cpu_seeds_the_device(answer):
    assert answer["the same CPU seed draws the same"] is True
    assert answer["another CPU seed draws the same"] is False


def test_a_state_that_lies_on_the_device_is_restored(answer):
    """`torch.load(..., map_location=acme.device())` returns such a state."""
    assert answer["a state on the device is restored"] is True


def test_an_index_out_of_range_is_named(answer):
    assert (
        answer["index out of range"]
        == "generic: device index 7 is out of range: this process sees 2 devices"
    )


def test_a_state_is_set_under_fake_tensors(simulated):
    """DTensor's random operators set a state while torch's tensors are fake."""
    program = PROGRAMS / "state_under_fake_tensors.py"
    assert simulated("acme", program).answer is True
