"""What is Metal's own: its declaration, which machines and torches it is for, the next step after its errors.

What its members do is told by its score card and by `packages/accel_simulated/tests/device/test_plain.py`.
"""

from types import SimpleNamespace

import pytest
from accel_tests.machines import Machine


def test_the_device_exists_on_apple_silicon_only(tmp_path):
    machine = Machine(tmp_path, "accel_mps", "torch")
    assert machine.probe()["reason"] == "this device exists on darwin-arm64 only"


def test_on_apple_silicon_a_torch_without_the_module_is_broken(tmp_path):
    machine = Machine(tmp_path, "accel_mps", "torch")
    mac = "import platform; sys.platform = 'darwin'; platform.machine = lambda: 'arm64'"
    mac += "; from accel_core import hardware; hardware.on_linux = lambda: False"
    found = machine.probe(before=mac)
    assert found["status"] == "broken"
    assert "torch has no module torch.mps" in found["reason"]


@pytest.mark.parametrize("since_14", [True, False])
def test_bfloat16_is_known_from_the_release_of_macos(since_14):
    """Without a start of the device, which a trial would be."""
    pytest.importorskip("torch")
    from accel_mps.accelerator import MPSAccelerator

    asked = []
    metal = SimpleNamespace(
        is_macos_or_newer=lambda *release: not asked.append(release) and since_14
    )
    torch = SimpleNamespace(backends=SimpleNamespace(mps=metal))
    mac = SimpleNamespace(_torch=torch, is_available=lambda: True)
    assert MPSAccelerator.is_bf16_supported(mac) is since_14
    assert asked == [(14, 0)]
