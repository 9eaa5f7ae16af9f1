"""The number and size of the devices, and the vendors' visible-devices variables."""

from pathlib import Path

import pytest
from accel_tests.ports import free_port

from accel_simulated import VENDORS

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


def test_sizes(simulated):
    """The sizes that a test may choose, and the vendor's own variable."""
    code = "import torch, torch_mlu; print(torch.mlu.device_count())"
    sizes = "import torch, torch_mlu; print([torch.mlu.mem_get_info(i)[1] >> 20 for i in range(5)])"
    unlike = {"ACCEL_SIMULATE_MEMORY_MB": "64, 32,16"}
    assert simulated("mlu:5", sizes, environ=unlike).answer == [64, 32, 16, 16, 16]
    assert simulated("mlu", code, environ={"MLU_VISIBLE_DEVICES": "1"}).answer == 1
    assert simulated("mlu", code, environ={"MLU_VISIBLE_DEVICES": ""}).answer == 0


DEVICE_OF_A_RANK = """
import json
from accel_train import init_process_group
with init_process_group(timeout=30) as rank:
    print(json.dumps(str(rank.device)))
"""


def test_a_rank_with_a_device_of_its_own_uses_that(simulated):
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
def test_the_mask_is_read_when_the_runtime_starts(vendor, simulated):
    code = f"import torch, {VENDORS[vendor].package}\n{MASK}"
    told = simulated(
        vendor, code, environ={"VARIABLE": VENDORS[vendor].visible[0]}
    ).answer
    assert told == [
        1,
        2 if vendor == "cuda" else 1,
    ]  # PROGRAMS / "cuda_mask_changes.py" has not started CUDA's runtime


def test_cuda_counts_by_the_mask_as_it_is_until_it_starts(simulated):
    """And a change after that is told, once, as it has no effect any more."""
    *counts, warned, found, notes = simulated(
        "cuda", PROGRAMS / "cuda_mask_changes.py"
    ).answer
    assert counts == [2, 0, 1, 0, 1]
    assert warned.startswith(
        "CUDA_VISIBLE_DEVICES was None when cuda was chosen and is '0,1' now, which has no"
    )
    assert notes == [warned] == [f"{found}. Next step: set it before Python starts"]
