"""DeepSpeed with the patches of contrib/: which accelerator it finds by itself, without `activate()`.

`training/test_training.py` trains on it.
"""

from __future__ import annotations

import json

import pytest
from accel_tests import layouts
from accel_tests.ports import free_port
from patched import PATCHES, with_copy

LOOK = """
import json, os, sys
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)

import accel_core, deepspeed
from accel_core.errors import AccelError
from deepspeed.accelerator import DeepSpeedAccelerator, get_accelerator, is_current_accelerator_supported
from deepspeed.accelerator import real_accelerator, set_accelerator
assert deepspeed.__file__.startswith(sys.path[0] or os.environ["PYTHONPATH"].split(os.pathsep)[0])

def look():
    theirs = deepspeed.get_accelerator()
    ours = isinstance(theirs, accel_core.Accelerator)
    same = ours and theirs is get_accelerator() is accel_core.get_accelerator()
    assert isinstance(theirs, DeepSpeedAccelerator) and is_current_accelerator_supported()
    return [theirs.device_name(), ("ours" if same else "another of ours") if ours else "theirs"]

known = list(real_accelerator.SUPPORTED_ACCELERATOR_LIST)
if "acme" in known:
    known.remove("acme")

def chosen(pin, **variables):
    "What a new process would choose: the modules stay, the choices are forgotten."
    os.environ.pop("ACCEL_INTEGRATIONS", None)
    os.environ.pop("DS_ACCELERATOR", None)
    os.environ.update(variables, **({} if pin is None else {"DS_ACCELERATOR": pin}))
    accel_core.set_accelerator(None)
    real_accelerator.ds_accelerator = None
    real_accelerator.SUPPORTED_ACCELERATOR_LIST[:] = known
    try:
        return look()
    except (AccelError, ValueError) as error:
        return [type(error).__name__, str(error)]
"""
#: A vendor with a class of its own and nothing of ours; and one whose device is absent.
STRANGERS = """
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

class Own(CPU_Accelerator):
    pass

def absent():
    return None
"""


@pytest.fixture
def on_patched(request, deepspeed_copy):
    """`on_patched(patch)`: variables of a process with that DeepSpeed and the simulated device."""
    variables = request.getfixturevalue("on_acme")
    return lambda patch: with_copy(variables, deepspeed_copy(patch))


def test_a_deepspeed_that_asks_entry_points(child, on_patched, tmp_path):
    groups = {"deepspeed.accelerators": {"own": "strangers:Own", "absent": "strangers:absent"}}
    layouts.dist_info(tmp_path, "strangers", "1.0", groups, {"strangers": STRANGERS})
    code = """
answer(first=look())
answer(unset=chosen(None), acme=chosen("acme"), spelled=chosen(" Acme"), listed=chosen("nope,acme"))
answer(accel=chosen("accel"), left=os.environ.get("DS_ACCELERATOR"), told=os.environ["ACCEL_INTEGRATIONS"])
answer(cpu=chosen("cpu"), ours=chosen("cpu@accel-core"), unknown=chosen("nope"))
os.environ["ACCEL_BLOCK"] = "acme"
answer(unset=chosen(None), child=chosen(None, ACCEL_INTEGRATIONS="deepspeed"))
sys.path.insert(1, os.environ["STRANGERS"])
answer(own=chosen("own"), absent=chosen("absent"), unset=chosen(None), kind=type(get_accelerator()).__name__)
"""
    ended = child(["-c", LOOK + code], {**on_patched("entry points"), "STRANGERS": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    first, ours, named, pinned, cpu, strangers = ended.answers
    acme = ["acme", "ours"]
    assert first == {"first": acme}
    assert ours == {"unset": acme, "acme": acme, "spelled": acme, "listed": acme}
    assert named == {"accel": acme, "left": None, "told": "deepspeed"}
    kind, said = pinned.pop("unknown")
    assert kind == "BackendNotFoundError"
    assert "DS_ACCELERATOR='nope'" in said
    assert pinned == {"cpu": ["cpu", "theirs"], "ours": ["cpu", "ours"]}
    assert cpu == {"unset": ["cpu", "theirs"], "child": ["cpu", "ours"]}
    assert strangers["own"] == strangers["unset"] == ["cpu", "theirs"]
    assert strangers["absent"][0] == "ValueError"
    assert strangers["kind"] == "Own"


def test_a_deepspeed_that_asks_accel_core(child, on_patched):
    code = """
from accel_train.deepspeed import activate
answer(first=look(), how=accel_core.selection().how.value, children=activate().limits)
answer(unset=chosen(None), cpu=chosen("cpu"), unknown=chosen("nope"))
chosen("cpu")
acme = accel_core.accelerator("acme")
set_accelerator(acme)
kept = deepspeed.runtime.engine.get_accelerator()
answer(set=look(), activated=activate().accelerator is acme, kept=kept is acme)
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
set_accelerator(CPU_Accelerator())
answer(class_of_theirs=look(), activated=activate().accelerator.device_name())
try:
    set_accelerator(3)
except TypeError as error:
    answer(refused=str(error), kept=look())
"""
    # Its child processes need no entry point of torch's.
    variables = {**on_patched("native"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ended = child(["-c", LOOK + code], variables)
    assert ended.returncode == 0, ended.stderr
    first, pinned, ours, theirs, refused = ended.answers
    assert (first["first"], first["how"]) == (["acme", "ours"], "pinned")
    assert not any("AUTOLOAD" in sentence for sentence in first["children"])
    kind, said = pinned.pop("unknown")
    assert kind == "BackendNotFoundError"
    assert "DS_ACCELERATOR='nope'" in said
    assert pinned == {"unset": ["acme", "ours"], "cpu": ["cpu", "ours"]}
    assert ours == {"set": ["acme", "ours"], "activated": True, "kept": True}
    assert theirs == {"class_of_theirs": ["cpu", "ours"], "activated": "cpu"}
    assert "is not an accelerator" in refused["refused"]
    assert refused["kept"] == ["cpu", "ours"]


RANK = """
import json, os, sys, time
import torch, deepspeed, accel_core
theirs = deepspeed.get_accelerator()
torch.distributed.init_process_group(theirs.communication_backend_name())
total = torch.ones(1, device=theirs.current_device_name())
torch.distributed.all_reduce(total)
values = dict(same=theirs is accel_core.get_accelerator(), name=theirs.name, total=total.item(),
              activated="accel_train" in sys.modules, visible=os.environ["ACME_VISIBLE_DEVICES"])
sys.stdout.write(f"ANSWER {json.dumps(values)}\\n")
torch.distributed.destroy_process_group()
time.sleep(0.2)  # gloo's threads: pytorch#190489
"""


@pytest.mark.nightly(reason="launches two ranks for each patch; by day the launcher is ours")
@pytest.mark.parametrize("patch", PATCHES)
def test_its_own_launcher_and_report(child, on_patched, tmp_path, patch):
    (tmp_path / "rank.py").write_text(RANK)
    variables = on_patched(patch)
    launch = ["-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(free_port())]
    ended = child([*launch, "rank.py"], variables, cwd=tmp_path)
    expected = {"same": True, "name": "acme", "total": 2.0, "activated": True, "visible": "0,1"}
    assert ended.answers == [expected, expected], ended.stderr
    report = child(["-c", "from deepspeed.env_report import cli_main; cli_main()"], variables)
    assert "'acme' (accel-acme 1.0)" in report.stdout, report.stderr
    doctor = ["-m", "accel_core", "doctor", "--topic", "others", "--json", "--timeout", "200"]
    [topic] = json.loads(child(doctor, variables).stdout)["topics"]
    assert [finding["code"] for finding in topic["findings"]] == ["others.same"]
