"""What is Metal's own: its declaration, which machines and torches it is for, the next step after its errors.

What its members do is told by its score card and by `packages/accel_simulated/tests/device/test_metal.py`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from accel_tests import layouts

from accel_core import hint_for
from accel_mps import BACKEND

MAC = (
    "import platform; sys.platform = 'darwin'; platform.machine = lambda: {machine!r}; "
    "host.on_linux = lambda: False"
)


def test_the_declaration():
    assert BACKEND.requires == ("torch>=2.6",)
    assert BACKEND.hardware.platforms == ("darwin-arm64",)
    assert BACKEND.visibility.variables == BACKEND.hardware.nodes == BACKEND.hardware.pci_ids == ()
    assert (BACKEND.communication_backend, BACKEND.compile_backend) == ("", "inductor")


class TestVerdicts:
    @pytest.fixture(autouse=True)
    def install(self, site):
        layouts.dist_info(site, "accel-mps", "0.1.0", {layouts.GROUP: {"mps": "accel_mps"}})

    @pytest.mark.parametrize("code", ["", MAC.format(machine="x86_64"), "sys.platform = 'win32'"])
    def test_anywhere_but_on_apple_silicon(self, judge, code):
        (found,), imported = judge("mps", code=code)
        assert (found["status"], found["reason"]) == ("no_device", "this device exists on darwin-arm64 only")
        assert imported == []

    def test_without_torch(self, site, judge):
        (site / "torch").unlink()
        (found,), _ = judge("mps", code=MAC.format(machine="arm64") + "; sys.modules['torch'] = None")
        assert (found["status"], found["reason"]) == ("not_installed", "torch is not installed")
        assert "arm64" in found["hint"]

    def test_a_torch_without_the_module(self, judge):
        (found,), _ = judge("mps", code=MAC.format(machine="arm64"))
        assert found["status"] == "broken"
        assert "torch has no module torch.mps" in found["reason"]


SEEN = [
    ("The operator 'aten::foo' is not currently implemented for the MPS device.", "FALLBACK=1"),
    ("MPS backend out of memory (MPS allocated: 17.9 GB, max allowed: 18.1 GB)", "WATERMARK"),
    ("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.", "float32"),
    ("BFloat16 is not supported on MPS", "macOS to 14"),
    (
        "The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using `sw_vers`",
        "macOS to 14",
    ),
    ("module 'torch._C' has no attribute '_mps_deviceSynchronize'", "arm64"),
    ("PyTorch is not linked with MPS", "arm64"),
]


@pytest.mark.parametrize(("message", "hint"), SEEN, ids=[message[:30] for message, _ in SEEN])
def test_known_errors(message, hint):
    assert hint in hint_for(RuntimeError(message), BACKEND.hints)


@pytest.mark.parametrize(
    "message", ["", "list index out of range", "expected scalar type Half but found Float"]
)
def test_other_errors_get_no_hint(message):
    assert hint_for(RuntimeError(message), BACKEND.hints) is None


@pytest.mark.parametrize("since_14", [True, False])
def test_bfloat16_is_known_from_the_release_of_macos(since_14):
    """Without a start of the device, which a trial would be."""
    pytest.importorskip("torch")
    from accel_mps.accelerator import MPSAccelerator

    asked = []
    metal = SimpleNamespace(is_macos_or_newer=lambda *release: not asked.append(release) and since_14)
    torch = SimpleNamespace(backends=SimpleNamespace(mps=metal))
    mac = SimpleNamespace(_torch=torch, is_available=lambda: True)
    assert MPSAccelerator.is_bf16_supported(mac) is since_14
    assert asked == [(14, 0)]
