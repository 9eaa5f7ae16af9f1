"""The simulated torch_npu returns what the real package returns."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


#: The same of torch_npu 2.13.0: `npu/__init__.py`, `npu/memory.py`, `npu/amp/`.
REAL_ASCEND = {
    "torch_npu.npu is torch.npu": True,
    "capability": None,
    "capability that the variable sets": [8, 0],
    "memory_cached": 0,
    "max_memory_cached": 0,
    "old names of memory warn": ["DeprecationWarning", "DeprecationWarning"],
    "old names of amp warn": ["FutureWarning", "FutureWarning"],
    "fixed scale after an overflow": 8.0,
    "scale after an overflow": 4.0,
    "devices reach each other": True,
    "default generator's device": 1,
    "properties of a device that is not there": "Invalid device id",
    "name of a device that is not there": "Invalid device id",
    "graphs have a debug mode": False,
    "name": "Simulated NPU",
    "type under autocast": "torch.bfloat16",
}


@pytest.fixture(scope="session")
def ascend(simulated, shared_by_workers):
    """The answers of one process."""
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    return shared_by_workers(
        "ascend",
        lambda: (
            simulated("npu", PROGRAMS / "ascend_package.py", environ=variables).answer
        ),
    )


@pytest.mark.parametrize(("member", "expected"), REAL_ASCEND.items(), ids=REAL_ASCEND)
def test_ascends_package_answers_as_the_real_one(ascend, member, expected):
    assert ascend[member] == expected


def test_each_answer_of_ascends_package_is_compared(ascend):
    assert ascend.keys() == REAL_ASCEND.keys()
