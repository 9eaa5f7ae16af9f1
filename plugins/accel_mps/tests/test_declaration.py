"""What is Metal's own: its declaration, which machines and torches it is for, the next step after its errors.

What its members do is told by its score card and by `packages/accel_simulated/tests/device/test_metal.py`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from accel_tests import layouts

MAC = (
    "import platform; sys.platform = 'darwin'; platform.machine = lambda: {machine!r}; "
    "machine.on_linux = lambda: False"
)


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
        assert found["hint"].endswith("accel setup mps")

    def test_a_torch_without_the_module(self, judge):
        (found,), _ = judge("mps", code=MAC.format(machine="arm64"))
        assert found["status"] == "broken"
        assert "torch has no module torch.mps" in found["reason"]


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
