"""Each simulated device does what a real device does: `simulated_checks/life.py` and `networks.py`."""

import pytest

from accel_simulated import OWN_DEVICES

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


@pytest.mark.parametrize("vendor", OWN_DEVICES)
def test_life(vendor, life, the_page_tells):
    """And its column of docs/evidence/simulated-features.md is what it does."""
    answer = life(vendor)
    assert len(answer["problems"]) >= 6
    problems = {
        check: problem for check, problem in answer["problems"].items() if problem
    }
    assert not problems, "\n".join(
        f"{check}: {problem}" for check, problem in problems.items()
    )
    the_page_tells(vendor, answer["rows"], answer["more"])


<<<<<<< HEAD
=======
def test_sizes(simulated):
    """The sizes that a test may choose, and the vendor's own variable."""
    code = "import torch, torch_mlu; print(torch.mlu.device_count())"
    sizes = "import torch, torch_mlu; print([torch.mlu.mem_get_info(i)[1] >> 20 for i in range(5)])"
    unlike = {"ACCEL_SIMULATE_MEMORY_MB": "64, 32,16"}
    assert simulated("mlu:5", sizes, environ=unlike).answer == [64, 32, 16, 16, 16]
    assert simulated("mlu", code, environ={"MLU_VISIBLE_DEVICES": "1"}).answer == 1
    assert simulated("mlu", code, environ={"MLU_VISIBLE_DEVICES": ""}).answer == 0


#: DTensor's random operators set a state while torch's tensors are fake.
STATE_UNDER_FAKE_TENSORS = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
state = torch.acme.get_rng_state()
drawn = torch.rand(4, device="acme").tolist()
with FakeTensorMode():
    torch.acme.set_rng_state(state)
print("true" if torch.rand(4, device="acme").tolist() == drawn else "false")
"""


def test_a_state_of_random_numbers_is_set_under_fake_tensors(simulated):
    program = (
        f"import accel_core; accel_core.get_accelerator()\n{STATE_UNDER_FAKE_TENSORS}"
    )
    assert simulated("acme", program).answer is True


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
    ]  # NVML has not started CUDA's runtime


NVML = """
import accel_core, json, os, torch, warnings
from accel_core.settings import read as read_settings
from accel_tools.doctor.records import DiagnosticContext
from accel_tools.doctor.topics import visible_devices
warnings.simplefilter("error")
accel_core.get_accelerator()
counts = []
for value in ("0,1", "1"):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    counts += [torch.cuda.device_count(), len(accel_core.selection().notes)]
torch.ones(1, device="cuda")
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
try:
    accel_core.selection()
except accel_core.errors.SettingWarning as warned:
    counts += [torch.cuda.device_count(), str(warned)]
found = visible_devices.TOPIC.examine(DiagnosticContext(read_settings(), os.environ))
print(json.dumps([*counts, next(found).what, [str(note) for note in accel_core.selection().notes]]))
"""


def test_cuda_counts_by_the_mask_as_it_is_until_it_starts(simulated):
    """And a change after that is told, once, as it has no effect any more."""
    *counts, warned, found, notes = simulated("cuda", NVML).answer
    assert counts == [2, 0, 1, 0, 1]
    assert warned.startswith(
        "CUDA_VISIBLE_DEVICES was None when cuda was chosen and is '0,1' now, which has no"
    )
    assert notes == [warned] == [f"{found}. Next step: set it before Python starts."]


>>>>>>> main
def test_gaudi_has_graphs_in_lazy_mode_only(simulated):
    code = "import habana_frameworks.torch.hpu as m; print(hasattr(m, 'HPUGraph'), hasattr(m, 'graph'))"
    assert simulated("hpu", code).ended[0].stdout.split() == ["True", "True"]
    eager = simulated("hpu", code, environ={"PT_HPU_LAZY_MODE": "0"})
    assert eager.ended[0].stdout.split() == ["False", "False"]
    refused = simulated(
        "hpu", code, environ={"ACCEL_SIMULATE_STOCK_TORCH": "1"}, check=False
    ).ended[0]
    assert "AssertionError" in refused.stderr
