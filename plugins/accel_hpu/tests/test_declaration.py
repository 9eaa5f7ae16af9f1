"""What is Intel Gaudi's own: its package's namespace."""

from __future__ import annotations

from accel_tests import layouts


def test_another_package_in_the_same_namespace(site, judge):
    layouts.dist_info(site, "accel-hpu", "0.1.0", {layouts.GROUP: {"hpu": "accel_hpu"}})
    layouts._write(site, {"habana_frameworks/mediapipe/__init__.py": ""})
    # A machine with a Gaudi whose driver is loaded.
    (found,), imported = judge("hpu", pci=(("0000:3b:00.0", "1da3", "1020", "120000"),), nodes=("/dev/hl0",))
    assert (found["status"], imported) == ("not_installed", [])
    assert found["reason"].startswith("habana_frameworks.torch is not installed, though the hardware is")
    assert "accel setup hpu" in found["hint"]
