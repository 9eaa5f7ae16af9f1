"""accel-cuda on a real device: the kit's checks, and what the kit cannot know of the vendors' software."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")

from accel_core import hint_for  # noqa: E402
from accel_cuda import CUDA, ROCM  # noqa: E402
from accel_cuda.accelerator import CUDAAccelerator  # noqa: E402
from accel_testing.conformance import AcceleratorTests  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="torch reports no CUDA or ROCm device here",
    ),
]

IS_ROCM = torch.version.hip is not None
BACKEND = ROCM if IS_ROCM else CUDA
on_nvidia = pytest.mark.skipif(IS_ROCM, reason="NVIDIA only")


@pytest.fixture(scope="module")
def acc():
    return CUDAAccelerator(BACKEND)


# torch 2.11's inductor still uses torch.jit, and the kit captures nothing to see whether a capture is told.
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method", "ignore:The CUDA Graph is empty"
)
class TestCUDA(AcceleratorTests):
    """Levels 0 to 3, as `accel verify cuda` runs them."""

    backend = "cuda"


class TestTorchsWords:
    def test_members_are_torchs_own_functions(self, acc):
        assert acc.current_device is torch.accelerator.current_device_index
        assert acc.Stream is torch.cuda.Stream
        assert acc.Event is torch.cuda.Event

    def test_running_out_is_explained(self, acc):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(4 * acc.total_memory(), dtype=torch.uint8, device="cuda")
        assert "nvidia-smi" in hint_for(caught.value, BACKEND.hints)

    @on_nvidia
    def test_data_types_by_capability(self, acc):
        capability = torch.cuda.get_device_capability()
        assert acc.is_fp16_supported() is (capability >= (7, 0))
        assert acc.is_bf16_supported() is True  # emulated below 8.0
        assert acc.is_bf16_native() is (capability >= (8, 0))
        assert acc.is_fp8_supported() is (capability >= (8, 9))
        assert acc.is_triton_supported() is (
            capability >= (8, 0) and find_spec("triton") is not None
        )

    @pytest.mark.skipif(sys.platform == "win32", reason="there is no NCCL on Windows")
    def test_the_version_of_nccl(self, acc):
        version = acc.communication_backend_version()
        assert len(version) == 3
        assert version >= (2, 0, 0)

    @pytest.mark.skipif(
        find_spec("nvtx") is None, reason="the nvtx package is not installed"
    )
    def test_nvtx_domains(self, acc):
        assert acc.supports_nvtx_domain is True
        acc.range_push("forward", domain="accel-tests", category="engine")
        acc.range_pop(domain="accel-tests")


class TestNvidiaSmi:
    @pytest.mark.skipif(
        shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi"
    )
    def test_the_uuid_and_address_are_nvidia_smis(self, acc):
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True
        ).stdout
        assert acc.device_uuid(0) in listed
        query = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
        addresses = subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.lower()
        address = acc.device_properties(0).pci_address
        assert (
            address is None or address in addresses
        )  # nvidia-smi writes a longer domain before it

    def test_properties_are_torchs(self, acc):
        ours, theirs = acc.device_properties(0), torch.cuda.get_device_properties(0)
        assert ours.name == theirs.name
        assert ours.total_memory == theirs.total_memory
        assert ours.multiprocessors == theirs.multi_processor_count
        assert ours.multiprocessors > 0
        assert re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z-]+", ours.uuid)


# What a child chooses and sees through CUDA_VISIBLE_DEVICES, and whether it can work there.
SEE = """
import json, warnings
warnings.simplefilter("ignore")  # the fallback, where every device is hidden
import accel_core
acc = accel_core.get_accelerator()
import torch
reasons = [v.reason for v in accel_core.selection().verdicts if v.provenance.entry_point == "cuda"]
on_device = acc.name == "cuda"
print(json.dumps({
    "chosen": acc.name,
    "ids": acc.visible_device_ids() if on_device else [],
    "sum": torch.ones(8, device=acc.device()).sum().item() if on_device else 0,
    "uuid": acc.device_uuid(0) if on_device else None,
    "reasons": reasons,
}))
"""
UNSET = dict.fromkeys(
    (
        "DS_ACCELERATOR",
        "ACCEL_ALLOW",
        "ACCEL_BLOCK",
        "ACCEL_PROBE",
        "CUDA_VISIBLE_DEVICES",
    )
)


class TestVisibleDevices:
    def see(self, child, value):
        variable = "HIP_VISIBLE_DEVICES" if IS_ROCM else "CUDA_VISIBLE_DEVICES"
        return json.loads(child(SEE, {**UNSET, variable: value}).splitlines()[-1])

    @pytest.mark.parametrize("form", ["{0}", "{0},-1", "{0},nonsense,0"])
    def test_by_uuid(self, acc, child, form):
        uuid = acc.device_uuid(0)
        seen = self.see(child, form.format(uuid))
        assert seen["chosen"] == "cuda"
        assert seen["ids"] == [uuid]
        assert seen["uuid"] == uuid
        assert seen["sum"] == 8

    @pytest.mark.parametrize("value", ["0", "0,-1"])
    def test_by_index(self, acc, child, value):
        if acc.device_uuid(0).startswith("MIG-"):
            pytest.skip("MIG devices have no index")
        seen = self.see(child, value)
        assert seen["chosen"] == "cuda"
        assert seen["ids"] == [0]
        assert seen["sum"] == 8

    @pytest.mark.parametrize("value", ["", "-1", "nonsense", "0,0"])
    def test_hidden(self, child, value):
        seen = self.see(child, value)
        assert seen["chosen"] == "cpu"
        assert any(
            f"{value!r} hides every device" in reason for reason in seen["reasons"]
        )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.skipif(
    IS_ROCM or "MIG" in os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    reason="torch can count these devices only by starting the driver",
)
def test_choosing_and_asking_start_no_device(child):
    """After them a forked child can start the device, and then the parent as well."""
    code = (
        "import os, accel_core\n"
        "acc = accel_core.get_accelerator()\n"
        "assert acc.name == 'cuda', accel_core.selection()\n"
        "assert acc.device_count() >= 1 and acc.is_available()\n"
        "acc.visible_device_ids(), acc.communication_backend_version(), acc.memory_allocated()\n"
        "acc.device_name(0), acc.device(0), acc.is_current_stream_capturing()\n"
        "acc.lazy_call(lambda: None)\n"
        "assert not acc.is_initialized()\n"
        "def use():\n"
        "    import torch\n"
        "    return torch.ones(8, device=acc.device()).sum().item() == 8\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if use() else 3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), use(), acc.is_initialized())\n"
    )
    assert child(code, UNSET).splitlines()[-1] == "0 True True"
