"""The number and size of the devices, and the vendors' visible-devices variables."""

from pathlib import Path

import pytest
from accel_tests.ports import free_port

from accel_simulated import VENDORS

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


def test_devices_can_have_different_memory_sizes(simulated):
    """Devices beyond the list have the last size."""
    sizes = "import torch, torch_mlu; print([torch.mlu.mem_get_info(i)[1] >> 20 for i in range(5)])"
    unlike = {"ACCEL_SIMULATE_MEMORY_MB": "64, 32,16"}
    assert simulated("mlu:5", sizes, environ=unlike).answer == [64, 32, 16, 16, 16]


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("", 0)])
def test_the_vendors_variable_selects_the_devices(simulated, value, count):
    code = "import torch, torch_mlu; print(torch.mlu.device_count())"
    environ = {"MLU_VISIBLE_DEVICES": value}
    assert simulated("mlu", code, environ=environ).answer == count


DEVICE_OF_A_RANK = """
import json
from accel_train import init_process_group
with init_process_group(timeout=30) as rank:
    print(json.dumps(str(rank.device)))
"""


def test_a_rank_that_sees_one_device_uses_that_device(simulated):
    """Case 12: with `--gpus-per-task=1` each rank sees one device, whatever its LOCAL_RANK."""
    rank = {
        "CUDA_VISIBLE_DEVICES": "1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    assert simulated("cuda", DEVICE_OF_A_RANK, environ=rank).answer == "cuda:0"


MASK = """
import json, os, torch
counts, variable = [], os.environ["VARIABLE"]
for value in ("1", "0,1"):
    os.environ[variable] = value
    counts.append(torch.accelerator.device_count())
print(json.dumps(counts))
"""


@pytest.mark.parametrize(
    "vendor", [name for name, vendor in VENDORS.items() if vendor.visible]
)
def test_the_visible_devices_variable_is_read_when_the_runtime_starts(
    vendor, simulated
):
    code = f"import torch, {VENDORS[vendor].package}\n{MASK}"
    told = simulated(
        vendor, code, environ={"VARIABLE": VENDORS[vendor].visible[0]}
    ).answer
    assert told == [
        1,
        2 if vendor == "cuda" else 1,
    ]  # NVML has not started CUDA's runtime


def test_cuda_follows_changes_of_the_variable_until_the_runtime_starts(simulated):
    """And a change after that is told, once, as it has no effect any more."""
    answer = simulated("cuda", PROGRAMS / "cuda_mask_changes.py").answer
    assert answer["before the start"] == {
        "0,1": {"count": 2, "notes": 0},
        "1": {"count": 1, "notes": 0},
    }
    assert answer["after the start"]["count"] == 1
    warning = answer["after the start"]["warning"]
    assert warning.startswith(
        "CUDA_VISIBLE_DEVICES was changed from None to '0,1' after cuda was chosen, so the"
    )
    finding = answer["finding of accel doctor"]
    assert answer["notes"] == [warning]
    assert (
        warning
        == f"{finding}. Next step: set CUDA_VISIBLE_DEVICES before Python starts."
    )
