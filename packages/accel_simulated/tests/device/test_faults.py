"""Injected faults: each occurs at the requested point, and is gone after its block."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator: the faults that it can play"
)


@pytest.fixture(scope="session")
def in_blocks(simulated, shared_by_workers):
    """The errors of the calls in each block of one process."""
    program = PROGRAMS / "faults_in_blocks.py"
    return shared_by_workers("faults", lambda: simulated("acme", program).answer)


def test_the_requested_allocation_runs_out_of_memory(in_blocks):
    before, error, after = in_blocks["oom"]
    assert before == ""
    assert error.startswith(
        "OutOfMemoryError: simulated device 0 out of memory (requested)"
    )
    assert after == ""


def test_the_requested_kernel_fails_at_the_next_wait_and_only_there(in_blocks):
    """As on a real device: the error is raised by the next wait for the stream, and then is gone."""
    first_add, second_add, first_wait, second_wait = in_blocks["kernel"]
    assert first_add == second_add == ""
    assert first_wait == (
        "RuntimeError: simulated device: asynchronous work failed: kernel 2 failed (requested)"
    )
    assert second_wait == ""


def test_a_lost_device_raises_an_error_at_every_use(in_blocks):
    before, *after = in_blocks["lost"]
    assert before == ""
    assert len(after) == 4
    assert all("the device is lost (requested)" in error for error in after)


def test_a_slow_device_takes_longer_and_raises_no_error(in_blocks):
    assert in_blocks["slow"]["errors"] == ["", ""]
    assert in_blocks["slow"]["seconds"] >= 0.03


def test_a_device_disappears_at_the_requested_kernel(in_blocks):
    count = dict(in_blocks["count"])
    (error,) = count.pop("errors of device 1")
    assert "invalid device ordinal 1, there are 1" in error
    assert count == {
        "devices before": 2,
        "errors": ["", ""],
        "devices after": 1,
        "devices of torch.acme": 1,
    }


def test_after_the_blocks_no_fault_is_left(in_blocks):
    assert in_blocks["after the blocks"] == {"errors": ["", "", ""], "devices": 2}


def test_with_a_driver_that_is_too_old_no_device_is_available(simulated):
    answer = simulated(
        "cuda",
        PROGRAMS / "driver_too_old.py",
        environ={"ACCEL_SIMULATE_FAULTS": "driver"},
    ).answer
    too_old = "The Simulated CUDA driver on your system is too old (requested by ACCEL_SIMULATE_FAULTS)"
    assert answer == {"available": False, "count": 0, "error": too_old}


def test_a_collective_hangs_in_the_requested_rank(simulated):
    """In the rank that was asked to; the other one runs into its time limit, or sees that one go."""
    first, second = simulated(
        "acme", PROGRAMS / "hanging_collective.py", processes=2, check=False
    ).ended
    assert "count_collective" in second.stderr
    assert first.returncode != 0


@pytest.mark.parametrize(
    ("vendor", "device"), [("cuda", "cuda"), ("plain", "plain"), ("plain", "cpu")]
)
def test_a_group_whose_threads_are_late_ends_without_a_deadlock(
    vendor, device, simulated
):
    """DistributedDataParallel's reducer, which has Python's lock; they need it to drop the last tensors.

    A busy machine gives them, as they are idle, a minute or two later what they need.
    """
    ended = simulated(
        vendor,
        PROGRAMS / "late_threads.py",
        environ={"DS_ACCELERATOR": device},
        timeout=600,
    ).ended
    assert f"all groups ended on {device}" in ended[0].stdout
