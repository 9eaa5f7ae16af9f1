"""What goes wrong when it is asked to: each fault strikes where it was meant, and then all is well again."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator: the faults that it can play"
)


def test_in_blocks(simulated):
    told = simulated("acme", PROGRAMS / "faults_in_blocks.py").answer
    assert [bool(text) for text in told["oom"]] == [False, True, False]
    assert told["oom"][1].startswith(
        "OutOfMemoryError: simulated device 0 out of memory (requested)"
    )
    # As on a device: it shows when the stream is waited for, and is forgotten then.
    failed = "RuntimeError: simulated device: asynchronous work failed: kernel 2 failed (requested)"
    assert told["kernel"] == ["", "", failed, ""]
    assert all("the device is lost (requested)" in text for text in told["lost"][1:])
    assert (told["lost"][0], told["slow"][:2]) == ("", ["", ""])
    assert told["slow"][2] >= 0.03
    assert (told["count"][:5], told["after"]) == ([2, "", "", 1, 1], ["", "", "", 2])
    assert "invalid device ordinal 1, there are 1" in told["count"][5]


def test_a_driver_that_is_too_old(simulated):
    answer = simulated(
        "cuda",
        PROGRAMS / "driver_too_old.py",
        environ={"ACCEL_SIMULATE_FAULTS": "driver"},
    ).answer
    too_old = "The Simulated CUDA driver on your system is too old (requested by ACCEL_SIMULATE_FAULTS)"
    assert answer == [False, 0, too_old]


def test_a_collective_that_hangs(simulated):
    """In the rank that was asked to; the other one runs into its time limit, or sees that one go."""
    first, second = simulated(
        "acme", PROGRAMS / "hanging_collective.py", processes=2, check=False
    ).ended
    assert "count_collective" in second.stderr
    assert first.returncode != 0


@pytest.mark.parametrize(
    ("vendor", "device"), [("cuda", "cuda"), ("plain", "plain"), ("plain", "cpu")]
)
def test_a_group_whose_threads_are_late_ends_with_its_last_holder(
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
    assert f"[None, None] {device}" in ended[0].stdout
