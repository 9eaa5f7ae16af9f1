"""Whatever is in the files that `accel setup` reads: a plan, or why there is none."""

import itertools

from accel_tests.fuzzing import fuzzed
from hypothesis import strategies as st

from accel_core.hardware import bus
from accel_tools.setup.machines import Machine
from accel_tools.setup.planning import make_plan

_runs = itertools.count()

FILES = {
    "sys/bus/pci/devices/0000:17:00.0/modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
    "sys/module/nvidia/version": "550.54.15",
    "proc/version": "Linux version 6.8.0 aarch64",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402",
    "usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info": "version=8.5.0",
    "etc/alpine-release": "3.22.1",
}
STRANGE = [
    "9" * 5000,
    "9" * 300 + ".1",
    "1.2.3.RC1",
    "\0",
    "\ud800",
    "\x1b]0;x\x07",
    "12.8",
    "a" * 300,
]
TEXT = st.text(max_size=12) | st.sampled_from([*STRANGE, *FILES.values()])
TREES = st.fixed_dictionaries(
    {}, optional={path: st.just(text) | TEXT for path, text in FILES.items()}
)


@fuzzed(files=TREES)
def test_any_files_of_a_machine_give_a_plan_or_a_reason(tmp_path, files):
    bus.pci_devices.cache_clear()
    root = tmp_path / str(next(_runs))
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("utf-8", "surrogatepass"))
    plan = make_plan(Machine(str(root), "linux", "x86_64", "3.12"))
    assert bool(plan.torch) is not bool(plan.why_no_command)
