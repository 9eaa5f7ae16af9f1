"""What needs a real device and a process of its own: visible devices, forks, communication."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata

import pytest

torch = pytest.importorskip("torch")

from accel_cuda import CUDA, ROCM  # noqa: E402
from accel_cuda.accelerator import CUDAAccelerator  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch reports no CUDA or ROCm device here"),
]

BACKEND = ROCM if torch.version.hip else CUDA
#: The same in a child's source.
DECLARED = f"accel_cuda.{'ROCM' if torch.version.hip else 'CUDA'}"
on_nvidia = pytest.mark.skipif(torch.version.hip is not None, reason="NVIDIA only")


@pytest.fixture(scope="module")
def acc():
    return CUDAAccelerator(BACKEND)


class TestCommunication:
    @pytest.mark.skipif(sys.platform == "win32", reason="there is no NCCL on Windows")
    def test_the_version_of_nccl(self, acc):
        version = acc.communication_backend_version()
        assert len(version) == 3
        assert version >= (2, 0, 0)
        assert {type(part) for part in version} == {int}

    def test_a_group_of_one(self, child, tmp_path):
        code = (
            "import torch, torch.distributed as dist\n"
            "import accel_cuda\n"
            "from accel_cuda.accelerator import CUDAAccelerator\n"
            f"acc = CUDAAccelerator({DECLARED})\n"
            "acc.set_device(0)\n"
            "dist.init_process_group(acc.communication_backend_name(),"
            f" init_method='file://{tmp_path}/rendezvous', rank=0, world_size=1)\n"
            "ones = torch.ones(4, device=acc.device())\n"
            "dist.all_reduce(ones)\n"
            "acc.synchronize()\n"
            "print(ones.sum().item())\n"
            "dist.destroy_process_group()\n"
        )
        assert child(code).splitlines()[-1] == "4.0"


# What a child sees through CUDA_VISIBLE_DEVICES, and whether it can work there.
SEE = (
    "import json, torch\n"
    "from accel_cuda.accelerator import CUDAAccelerator\n"
    f"backend = {DECLARED}\n"
    "outcome = examine(backend, accel_core.evidence(backend))\n"
    "acc = CUDAAccelerator(backend)\n"
    "count, ids = acc.device_count(), acc.visible_device_ids()\n"
    "flags = acc.capabilities().to_dict()\n"
    "total = torch.ones(8, device=acc.device()).sum().item() if count else 0\n"
    "uuid = acc.device_uuid(0) if count else None\n"
    "free = acc.available_memory(0) if count else 0\n"
    "print(json.dumps([count, ids, flags, total, uuid, free, outcome and outcome.reason]))\n"
)


class TestVisibleDevices:
    def see(self, child, examine, value):
        names = ("count", "ids", "flags", "total", "uuid", "free", "reason")
        # Only this one: the parent may be restricted by another, and children on ROCm heed them all.
        variable = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"
        printed = child(examine + SEE, {"CUDA_VISIBLE_DEVICES": None, variable: value})
        return dict(zip(names, json.loads(printed.splitlines()[-1]), strict=True))

    @pytest.mark.parametrize("form", ["{0}", "{0},-1", "{0},nonsense,0"])
    def test_by_uuid(self, acc, child, examine, form):
        uuid = acc.device_uuid(0)
        seen = self.see(child, examine, form.format(uuid))
        assert (seen["count"], seen["ids"], seen["uuid"]) == (1, [uuid], uuid)
        assert (seen["total"], seen["reason"]) == (8, None)
        assert seen["free"] > 0
        assert seen["flags"]["is_available"]

    @on_nvidia
    def test_by_abbreviated_uuid(self, acc, child, examine):
        uuid = acc.device_uuid(0)
        if not uuid.startswith("GPU-"):
            pytest.skip("MIG devices are not abbreviated")
        seen = self.see(child, examine, uuid[:-4])
        assert (seen["count"], seen["ids"], seen["uuid"], seen["total"]) == (1, [uuid[:-4]], uuid, 8)

    @pytest.mark.parametrize("value", ["0", "0,-1"])
    def test_by_index(self, acc, child, examine, value):
        if acc.device_uuid(0).startswith("MIG-"):
            pytest.skip("MIG devices have no index")
        seen = self.see(child, examine, value)
        assert (seen["count"], seen["ids"], seen["total"]) == (1, [0], 8)

    @pytest.mark.parametrize("value", ["", "-1", "nonsense", "0,0"])
    def test_hidden(self, child, examine, value):
        seen = self.see(child, examine, value)
        assert (seen["count"], seen["ids"]) == (0, [])
        assert f"{value!r} hides every device" in seen["reason"]
        allowed = ("is_fp64_supported", "supports_nvtx_domain")
        assert [name for name, flag in seen["flags"].items() if flag and name not in allowed] == []

    def test_a_repeated_uuid_hides_every_device(self, acc, child, examine):
        uuid = acc.device_uuid(0)
        assert self.see(child, examine, f"{uuid},{uuid}")["count"] == 0

    def test_a_running_device_is_not_hidden_any_more(self, child, examine):
        code = (
            "import os, torch\n"
            "torch.ones(1, device='cuda')\n"
            "os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
            f"print(examine({DECLARED}))\n"
        )
        assert child(examine + code).splitlines()[-1] == "None"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
class TestFork:
    # The child must be able to start the device, and then the parent as well.
    USE = (
        "def use():\n"
        "    import torch\n"
        "    return torch.ones(8, device=acc.device()).sum().item() == 8\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        os._exit(0 if use() else 3)\n"
        "    except BaseException as error:\n"
        "        print(error, flush=True)\n"
        "        os._exit(4)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), use(), acc.is_initialized())\n"
    )
    #: torch has to ask the driver for MIG devices, and on ROCm where amdsmi is missing.
    counts_without_driver = pytest.mark.skipif(
        torch.version.hip is not None or "MIG" in os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        reason="torch can count these devices only by starting the driver",
    )

    @counts_without_driver
    def test_everything_that_starts_no_device(self, child, examine):
        code = (
            "import os\n"
            "from accel_cuda.accelerator import CUDAAccelerator\n"
            f"assert examine({DECLARED}) is None\n"
            f"acc = CUDAAccelerator({DECLARED})\n"
            "assert acc.device_count() >= 1 and acc.is_available()\n"
            "acc.visible_device_ids(), acc.communication_backend_version(), acc.memory_allocated()\n"
            "acc.device_name(0), acc.device(0), acc.is_current_stream_capturing()\n"
            "acc.lazy_call(lambda: None)\n"
            "assert not acc.is_initialized()\n"
        )
        assert child(examine + code + self.USE).splitlines()[-1] == "0 True True"

    @counts_without_driver
    def test_choosing(self, child):
        try:
            metadata.distribution("accel-cuda")
        except metadata.PackageNotFoundError:
            pytest.skip("accel-cuda is not installed here, so it cannot be chosen")
        code = (
            "import os, accel_core\n"
            "acc = accel_core.get_accelerator()\n"
            "assert acc.name == 'cuda', accel_core.selection()\n"
            "assert accel_core.selection() is not None\n"
        )
        unset = dict.fromkeys(("DS_ACCELERATOR", "ACCEL_ALLOW", "ACCEL_BLOCK", "ACCEL_PROBE"))
        assert child(code + self.USE, unset).splitlines()[-1] == "0 True True"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="device nodes are looked for on Linux only")
def test_the_hardware_is_seen_without_torch(child):
    code = (
        "import sys, accel_core, accel_cuda\n"
        f"found = accel_core.evidence({DECLARED})\n"
        "print(len(found.nodes) > 0, 'torch' in sys.modules)\n"
    )
    assert child(code) == "True False"
