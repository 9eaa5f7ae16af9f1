"""Each simulated device does what a device does: `simulated_checks/life.py` and `networks.py`."""

import pytest
from accel_tests.ports import free_port

from accel_simulated import OWN_DEVICES, VENDORS

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
print(json.dumps([*counts, next(found).what, accel_core.selection().notes]))
"""


def test_cuda_counts_by_the_mask_as_it_is_until_it_starts(simulated):
    """And a change after that is told, once, as it has no effect any more."""
    *counts, warned, found, notes = simulated("cuda", NVML).answer
    assert counts == [2, 0, 1, 0, 1]
    assert warned.startswith(
        "CUDA_VISIBLE_DEVICES was None when cuda was chosen and is '0,1' now, which has no"
    )
    assert notes == [warned] == [f"{found}. Next step: set it before Python starts"]


def test_gaudi_has_graphs_in_lazy_mode_only(simulated):
    code = "import habana_frameworks.torch.hpu as m; print(hasattr(m, 'HPUGraph'), hasattr(m, 'graph'))"
    assert simulated("hpu", code).ended[0].stdout.split() == ["True", "True"]
    eager = simulated("hpu", code, environ={"PT_HPU_LAZY_MODE": "0"})
    assert eager.ended[0].stdout.split() == ["False", "False"]
    refused = simulated(
        "hpu", code, environ={"ACCEL_SIMULATE_STOCK_TORCH": "1"}, check=False
    ).ended[0]
    assert "AssertionError" in refused.stderr


#: What Ascend's package answers; torch_npu, when imported before torch.
ASCEND = """
import torch_npu, json, os, warnings
import torch

def kinds_of_warnings(*calls):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls:
            call()
    return [warning.category.__name__ for warning in caught]

def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()

def scale_after_an_overflow(scaler):
    weight = torch.ones(1, device="npu", requires_grad=True)
    step = torch.optim.SGD([weight])
    scaler.scale((weight * torch.inf).sum()).backward()
    scaler.step(step)
    scaler.update()
    return scaler.get_scale()

def error_of(call, *arguments):
    try:
        call(*arguments)
    except AssertionError as error:
        return str(error)

npu = torch.npu
answer = {
    "torch_npu.npu is torch.npu": torch_npu.npu is npu,
    "capability": npu.get_device_capability(),
}
os.environ["TORCH_NPU_DEVICE_CAPABILITY"] = "8.0"
answer |= {
    "capability that the variable sets": npu.get_device_capability(),
    "memory_cached": quietly(npu.memory_cached),
    "max_memory_cached": quietly(npu.max_memory_cached),
    "old names of memory warn": kinds_of_warnings(npu.memory_cached, npu.max_memory_cached),
    "old names of amp warn": kinds_of_warnings(
        lambda: npu.amp.custom_fwd(lambda: None), lambda: npu.amp.custom_bwd(lambda: None)
    ),
    "fixed scale after an overflow": scale_after_an_overflow(npu.amp.GradScaler(8.0, dynamic=False)),
    "scale after an overflow": scale_after_an_overflow(npu.amp.GradScaler(8.0)),
    "devices reach each other": npu.can_device_access_peer(0, 1),
    "default generator's device": npu.get_default_generator(1).device.index,
    "properties of a device that is not there": error_of(npu.get_device_properties, 2),
    "name of a device that is not there": error_of(npu.get_device_name, 2),
    "graphs have a debug mode": hasattr(npu.NPUGraph(), "enable_debug_mode"),
    "name": npu.get_device_name(1),
}
with npu.amp.autocast(dtype=torch.bfloat16):
    product = torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")
answer["type under autocast"] = str(product.dtype)
print(json.dumps(answer))
"""
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
        "ascend", lambda: simulated("npu", ASCEND, environ=variables).answer
    )


@pytest.mark.parametrize(("member", "expected"), REAL_ASCEND.items(), ids=REAL_ASCEND)
def test_ascends_package_answers_as_the_real_one(ascend, member, expected):
    assert ascend[member] == expected


def test_each_answer_of_ascends_package_is_compared(ascend):
    assert ascend.keys() == REAL_ASCEND.keys()


@pytest.mark.parametrize("vendor", [name for name in OWN_DEVICES if name != "acme"])
def test_offers_what_the_vendor_does(vendor, life):
    problems = life(vendor)["offered"]
    assert not problems, "\n".join(problems)


def test_a_wrong_name_and_a_wrong_parameter_are_found():
    from simulated_checks.offered import beyond

    told = {"torch.mlu": {"no_such_name": 0, "set_device": lambda index: None}}
    missing, wrong = beyond("mlu", told)
    assert missing == "torch.mlu.no_such_name: not in the surface file"
    assert wrong.startswith("torch.mlu.set_device: has [('index', ")
