"""What is Intel Gaudi's own: its package's namespace."""

import pytest
from accel_tests import layouts
from accel_tests.machines import Machine


@pytest.fixture
def machine(tmp_path):
    """A machine with another package in the namespace of Gaudi's."""
    made = Machine(tmp_path, "accel_hpu", "habana_frameworks.torch")
    layouts._write(made.site, {"habana_frameworks/mediapipe/__init__.py": ""})
    return made


def test_another_package_in_the_same_namespace_is_not_gaudis(machine):
    found = machine.probe("/dev/hl0")
    assert found["status"] == "not_installed"
    assert found["vendor_imported"] is False
    assert found["reason"].startswith(
        "habana_frameworks.torch is not installed, though the hardware is"
    )
    assert "accel setup hpu" in found["hint"]


def test_an_older_bridge_is_incompatible(machine):
    layouts._write(machine.site, {"habana_frameworks/torch/__init__.py": ""})
    machine.distribution("habana-torch-plugin", "1.16.2")
    assert machine.probe("/dev/hl0")["status"] == "incompatible"
