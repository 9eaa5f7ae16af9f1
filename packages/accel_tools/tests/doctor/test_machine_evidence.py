"""What is known of a device, its driver and its toolkit, on simulated file systems."""

from accel_core import Backend, Environment, Hardware
from accel_tools.doctor.evidence import (
    describe_hardware,
    find_libraries,
    toolkit_variables,
)

HARDWARE = {"pci_ids": ("19e5:d802",), "nodes": ("/dev/davinci[0-9]*",)}
NPU = Backend(
    name="npu", priority=1, device_type="npu", environment=Environment(forward=("ASCEND", "PATH")),
    hardware=Hardware(name="Ascend NPU", driver_file="/sys/module/drv/initstate", **HARDWARE),
)  # fmt: skip


def test_a_bare_machine_says_what_was_sought(tmp_path):
    assert dict(describe_hardware(NPU, {"PATH": "/bin"}, str(tmp_path))) == {
        "device nodes": "none (/dev/davinci[0-9]*)",
        "PCI devices": "none (19e5:d802)",
        "driver": "not loaded (/sys/module/drv/initstate is missing)",
        "toolkit": "ASCEND_HOME_PATH is not set, ASCEND_OPP_PATH is not set",
    }


def test_device_driver_and_toolkit_that_are_there(computer):
    computer.write("dev/davinci0")
    computer.pci("0000:c1:00.0", "19e5", "d802", "120000")
    computer.write("sys/bus/pci/devices/0000:c1:00.0/uevent", "DRIVER=devdrv\n")
    computer.write("sys/module/drv/initstate", "live\n")
    computer.write("sys/module/drv/version", "24.1.0\n")
    root = computer.path
    environ = {
        "ASCEND_HOME_PATH": root,
        "ASCEND_OLD_HOME": "/no/such",
        "ASCEND_LOG_PATH": "/no/log",
    }
    assert dict(describe_hardware(NPU, environ, root)) == {
        "device nodes": "/dev/davinci0",
        "PCI devices": "19e5:d802 at 0000:c1:00.0 (driver devdrv)",
        "driver": "drv 24.1.0",
        "toolkit": f"ASCEND_HOME_PATH={root}, ASCEND_OPP_PATH is not set, "
        "ASCEND_OLD_HOME=/no/such (missing)",
    }


def test_one_name_of_two_makers_has_each_makers_toolkit():
    def of(hardware):
        given = {
            "name": "cuda",
            "priority": 1,
            "device_type": "cuda",
            "hardware": Hardware(hardware),
        }
        return [*toolkit_variables(Backend(**given), {})]

    assert of("NVIDIA GPU") == ["CUDA_HOME", "CUDA_PATH"]
    assert of("AMD GPU") == ["ROCM_HOME", "ROCM_PATH"]


def test_a_library_that_lies_in_the_toolkit_is_found_and_a_circle_ends(computer):
    computer.write("usr/local/Ascend/toolkit/latest/lib64/libhccl.so")
    computer.write("elsewhere/lib/libascendcl.so")
    root = computer.path
    (computer.root / "usr/local/Ascend/again").symlink_to(computer.root / "usr/local")
    found = find_libraries(
        ["libhccl.so", "libascendcl.so", "libnone.so"], [f"{root}/elsewhere"], root
    )
    assert found == {
        "libhccl.so": f"{root}/usr/local/Ascend/toolkit/latest/lib64",
        "libascendcl.so": f"{root}/elsewhere/lib",
    }
