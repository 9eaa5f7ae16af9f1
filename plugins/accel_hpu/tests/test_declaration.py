"""What is Intel Gaudi's own: its package's namespace."""

from accel_tests import layouts
from accel_tests.machines import Machine


def test_another_package_in_the_same_namespace(tmp_path):
    machine = Machine(tmp_path, "accel_hpu", "habana_frameworks.torch")
    layouts._write(machine.site, {"habana_frameworks/mediapipe/__init__.py": ""})
    found = machine.probe("/dev/hl0")
    assert (found["status"], found["vendor_imported"]) == ("not_installed", False)
    assert found["reason"].startswith(
        "habana_frameworks.torch is not installed, though the hardware is"
    )
    assert "accel setup hpu" in found["hint"]
    layouts._write(machine.site, {"habana_frameworks/torch/__init__.py": ""})
    machine.distribution("habana-torch-plugin", "1.16.2")
    assert machine.probe("/dev/hl0")["status"] == "incompatible"
