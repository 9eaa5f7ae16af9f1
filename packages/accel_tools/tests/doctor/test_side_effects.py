"""What a plugin does too early, each with its line and what to write instead."""

from accel_core import Provenance
from accel_tools.doctor.side_effects import find_side_effects

EARLY = '''"""A plugin that cannot wait."""
import os
import subprocess
import threading
from early_helper import torch_of_mine
import early_vendor
os.environ["EARLY"] = "/opt/early"
try:
    import a_module_that_is_missing
except ImportError:
    pass
from accel_core import Backend, hookimpl


@hookimpl
def accel_backends():
    threading.Thread(target=print).start()
    os.environ.pop("EARLY")
    subprocess.run(["true"])
    return [
        Backend(
            name="early", priority=990, device_type="early",
            vendor_import=("early_vendor", "a_module_that_is_missing"),
        )
    ]
'''


def test_a_plugin_that_does_more_than_declare_is_told_what_and_where(torch_world):
    torch_world.module(
        "early_helper",
        "import torch\nimport os\nos.environ['OF_TORCH'] = '1'\ntorch_of_mine = torch",
    )
    torch_world.module(
        "early_vendor", "import threading\nthreading.Thread(target=print).start()"
    )
    torch_world.plugin("early", EARLY)
    torch_world.backend("npu")
    side_effects = find_side_effects(
        Provenance("accel-early", "1.0", "early", "accel_early"), 20
    )
    later = (
        "the plugin should import other packages in the module of the accelerator's class, "
        "or inside accel_probe"
    )
    started = (
        "the plugin should start threads and processes where the accelerator is built, "
        "or inside accel_probe"
    )
    declare, leave = (
        "the plugin should declare the variable in Backend.environment.defaults",
        "the plugin should not change the environment of the user's program",
    )
    assert [tuple(side_effect) for side_effect in side_effects] == [
        ("imports torch", "accel_early.py, line 5", later),
        ("imports early_vendor", "accel_early.py, line 6", later),
        ("writes the environment variable EARLY", "accel_early.py, line 7", declare),
        ("starts a thread", "accel_early.py, line 17", started),
        ("removes the environment variable EARLY", "accel_early.py, line 18", leave),
        ("starts the process true", "accel_early.py, line 19", started),
    ]
    assert (
        find_side_effects(Provenance("accel-npu", "1.0", "npu", "accel_npu"), 20) == ()
    )
