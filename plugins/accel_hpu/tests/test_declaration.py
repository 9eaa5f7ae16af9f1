"""What is Intel Gaudi's own: its declaration, the next step after its errors, its package's namespace."""

from __future__ import annotations

import pytest
from accel_tests import layouts

PCI = (("0000:3b:00.0", "1da3", "1020", "120000"),)
#: A machine with a Gaudi whose driver is loaded.
GAUDI = {"pci": PCI, "nodes": ("/dev/hl0",)}


def bridge(site, source: str, version: str = "1.22.0") -> None:
    layouts.dist_info(site, "habana-torch-plugin", version)
    layouts._write(site, {"habana_frameworks/torch/__init__.py": source})


class TestVerdicts:
    @pytest.fixture
    def one(self, site, judge):
        layouts.dist_info(site, "accel-hpu", "0.1.0", {layouts.GROUP: {"hpu": "accel_hpu"}})

        def run(**given):
            (verdict,), imported = judge("hpu", **given)
            assert imported == []
            return verdict

        return run

    def test_another_package_in_the_same_namespace(self, site, one):
        layouts._write(site, {"habana_frameworks/mediapipe/__init__.py": ""})
        found = one(**GAUDI)
        assert found["status"] == "not_installed"
        assert found["reason"].startswith("habana_frameworks.torch is not installed, though the hardware is")
        assert "accel setup hpu" in found["hint"]

    def test_a_package_that_is_too_old(self, site, one):
        bridge(site, "raise SystemExit('imported')", version="1.16.2")
        found = one(**GAUDI)
        assert found["status"] == "incompatible"
        assert "habana-torch-plugin 1.16.2" in found["reason"]

    def test_without_hardware(self, site, one):
        bridge(site, "raise SystemExit('imported')")
        assert one()["status"] == "no_device"
