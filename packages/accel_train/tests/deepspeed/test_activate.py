"""`activate()` before and after `import deepspeed`: whose accelerator DeepSpeed uses then."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

ANSWER = """
import json, sys
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)
"""
LOOK = (
    ANSWER
    + """
def look():
    import accel_core, deepspeed
    from deepspeed.accelerator.real_accelerator import get_accelerator
    from deepspeed.accelerator import is_current_accelerator_supported
    ours, theirs = accel_core.get_accelerator(), get_accelerator()
    answer(name=ours.name, same=theirs is ours is deepspeed.get_accelerator(),
           accelerator=isinstance(theirs, accel_core.Accelerator),
           valid=isinstance(theirs, deepspeed.accelerator.DeepSpeedAccelerator),
           supported=is_current_accelerator_supported())
"""
)
GOOD = {"same": True, "accelerator": True, "valid": True, "supported": True}
#: On a device by day, on the processor by night.
ON = pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.nightly(reason="the same on the CPU; by day on a device")),
        "acme",
    ],
)


@pytest.fixture
def variables(request, device):
    return request.getfixturevalue(f"on_{device}")


def test_importing_the_integration_imports_neither_torch_nor_deepspeed(child, on_cpu):
    code = (
        "import sys, accel_train.deepspeed, accel_train.deepspeed._launcher\n"
        "assert not {'torch', 'deepspeed', 'numpy'} & set(sys.modules)"
    )
    assert child(["-c", code], on_cpu).returncode == 0


@ON
def test_before_the_import(child, variables, device):
    code = """
from accel_train.deepspeed import activate
found = activate()
assert "deepspeed" not in sys.modules, "activating imports nothing of DeepSpeed"
look()
assert activate() == found, "a second time is the same"
"""
    assert child(["-c", LOOK + code], variables).answers == [{"name": device, **GOOD}]


def test_after_the_import_deepspeeds_own_is_replaced_everywhere(child, on_cpu):
    code = """
import deepspeed
old = deepspeed.get_accelerator()
from deepspeed.ops.op_builder import FusedLambBuilder as before
from deepspeed.accelerator import set_accelerator
import accel_core
try:
    set_accelerator(accel_core.get_accelerator())
except AssertionError as error:
    answer(said=str(error))
assert deepspeed.get_accelerator() is old
from accel_train.deepspeed import activate
activate()
look()
set_accelerator(accel_core.get_accelerator())
look()
from deepspeed.ops.op_builder import FusedLambBuilder
from deepspeed.runtime import utils
ours = accel_core.get_accelerator()
answer(builder=FusedLambBuilder is ours.get_op_builder("FusedLambBuilder") is not before,
       kept=utils.torch_memory_reserved == ours.memory_reserved,
       left=[name for name, module in sys.modules.items() if name.startswith("deepspeed.")
             for value in vars(module).values() if value is old or getattr(value, "__self__", None) is old],
       compatible=deepspeed.ops.__compatible_ops__["deepspeed_not_implemented"])
"""
    refused, looked, again, rest = child(["-c", LOOK + code], on_cpu).answers
    assert "is not subclass of DeepSpeedAccelerator" in refused["said"], (
        "docs/howto/deepspeed.md has these words"
    )
    assert looked == again == {"name": "cpu", **GOOD}
    assert rest == {"builder": True, "kept": True, "left": [], "compatible": False}


def test_the_pin_alone_is_refused_by_deepspeed_itself(child, on_acme):
    """What the activation is for: without it DeepSpeed does not start."""
    ended = child(["-c", "import deepspeed"], on_acme)
    assert ended.returncode != 0
    assert 'Value "acme" is not supported' in ended.stderr


def test_another_choice_of_deepspeeds_is_refused_and_explained(child, on_acme):
    code = """
import os, deepspeed
os.environ["DS_ACCELERATOR"] = "acme"
from accel_core import AccelError
from accel_train.deepspeed import activate
try:
    activate()
except RuntimeError as error:
    assert isinstance(error, AccelError)
    answer(said=str(error), kept=deepspeed.get_accelerator().device_name(),
           told="ACCEL_INTEGRATIONS" in os.environ)
activate(force=True)
look()
"""
    refused, forced = child(["-c", LOOK + code], {**on_acme, "DS_ACCELERATOR": "cpu"}).answers
    assert "has chosen cpu (deepspeed.accelerator.cpu_accelerator.CPU_Accelerator)" in refused["said"]
    ours = "accel-core has chosen <TorchAccelerator 'acme' (accel-acme 1.0), simulated: acme:2 by accel-sim"
    assert ours in refused["said"]
    assert "before `import deepspeed`" in refused["said"]
    assert "force=True" in refused["said"]
    assert refused["kept"] == "cpu", "a refusal changes nothing"
    assert not refused["told"]
    assert forced == {"name": "acme", **GOOD}


def test_a_pin_that_cannot_be_honoured_changes_nothing(child, on_cpu):
    code = """
import os
from accel_core import BackendNotFoundError
from accel_train.deepspeed import activate
finders = list(sys.meta_path)
try:
    activate()
except BackendNotFoundError as error:
    answer(said=str(error), told="ACCEL_INTEGRATIONS" in os.environ, hooked=sys.meta_path != finders)
"""
    [said] = child(["-c", ANSWER + code], {**on_cpu, "DS_ACCELERATOR": "nope"}).answers
    assert "nope" in said["said"]
    assert not said["told"]
    assert not said["hooked"]


def test_a_pin_that_cannot_be_honoured_stops_the_import_in_a_child_process(child, on_cpu):
    """There nobody calls `activate()`: DeepSpeed must not fall back to a choice of its own."""
    variables = {**on_cpu, "DS_ACCELERATOR": "nope", "ACCEL_INTEGRATIONS": "deepspeed"}
    ended = child(["-c", "import deepspeed"], variables)
    assert ended.returncode != 0
    assert "BackendNotFoundError" in ended.stderr.splitlines()[-1]


LIMITS = """
from accel_train.deepspeed import activate
answer(limits=activate().limits, version=activate().version, again=len(activate().limits))
"""


def test_the_limits_of_an_unknown_device_are_one_warning(child, on_acme):
    ended = child(["-c", ANSWER + LIMITS], on_acme)
    [said] = ended.answers
    assert sum("GPUDirect" in sentence or "enable_cuda_graph" in sentence for sentence in said["limits"]) == 2
    assert [ended.stderr.count(sentence) for sentence in said["limits"]] == [1] * said["again"]
    assert ended.stderr.count(f"DeepSpeed {said['version']} runs on acme.") == 1


def test_a_device_without_generators_is_told_of_activation_checkpointing(child, on_acme):
    """DeepSpeed restores the random state through them; the simulated device has them, so they are hidden."""
    said = []
    for first in ("", "import torch, torch_acme; del torch.acme.default_generators\n"):
        found = child(["-c", first + ANSWER + LIMITS], on_acme).answers[0]["limits"]
        said.append(any("default_generators" in sentence for sentence in found))
    assert said == [False, True]


def test_of_several_ranks_the_first_one_warns(child, on_acme):
    ended = child(["-c", ANSWER + LIMITS], {**on_acme, "RANK": "1"})
    assert ended.answers[0]["limits"]
    assert "It has these features on other devices only" not in ended.stderr


def test_a_known_device_needs_no_warning(child, on_cpu):
    code = """
from accel_train.deepspeed import activate
answer(limits=len(activate().limits))
"""
    ended = child(["-c", ANSWER + code], on_cpu)
    assert ended.answers[0]["limits"] > 0
    assert "It has these features on other devices only" not in ended.stderr


def test_members_that_a_newer_deepspeed_asks_for_are_named(child, on_cpu):
    """Intel's plugin died of 13 new abstract methods; ours starts, and says what may be missing."""
    code = """
import abc, deepspeed.accelerator
deepspeed.accelerator.DeepSpeedAccelerator.__abstractmethods__ |= {"from_the_future"}
from accel_train.deepspeed import activate
answer(limits=activate().limits)
look()
"""
    said, looked = child(["-c", LOOK + code], on_cpu).answers
    assert "from_the_future" in said["limits"][-1]
    assert looked == {"name": "cpu", **GOOD}


def test_the_package_that_its_build_imports_is_ours_too(child, on_acme, tmp_path):
    """DeepSpeed's setup.py imports the same files as a top-level package `accelerator`."""
    found = find_spec("deepspeed")  # imported in children only: it chooses an accelerator
    (tmp_path / "accelerator").symlink_to(Path(found.origin).parent / "accelerator")
    code = """
from accel_train.deepspeed import activate
activate()
import accel_core, accelerator
answer(same=accelerator.get_accelerator() is accel_core.get_accelerator())
"""
    assert child(["-c", ANSWER + code], on_acme, cwd=tmp_path).answers == [{"same": True}]


def test_a_stranger_of_that_name_is_left_alone(child, on_cpu, tmp_path):
    (tmp_path / "accelerator").mkdir()
    (tmp_path / "accelerator" / "real_accelerator.py").write_text("speed = 3\n")
    code = """
from accel_train.deepspeed import activate
activate()
import accelerator.real_accelerator as real
answer(held=[name for name in vars(real) if not name.startswith("_")])
"""
    assert child(["-c", ANSWER + code], on_cpu, cwd=tmp_path).answers == [{"held": ["speed"]}]


BROKEN = "raise RuntimeError('two accelerators at the same time')"


@ON
def test_a_torch_npu_that_is_not_chosen_is_not_imported(child, variables, device, tmp_path):
    """DeepSpeed imports its builders for npu on every machine, and they import torch_npu."""
    (tmp_path / "torch_npu.py").write_text(BROKEN)
    path = f"{tmp_path}:{variables.get('PYTHONPATH', '')}"
    theirs = child(["-c", "import deepspeed"], {**variables, "DS_ACCELERATOR": "cpu", "PYTHONPATH": path})
    assert "two accelerators" in theirs.stderr, "the danger is real"
    code = """
from accel_train.deepspeed import activate
activate()
look()
answer(npu="torch_npu" in sys.modules)
"""
    looked, npu = child(["-c", LOOK + code], {**variables, "PYTHONPATH": path}).answers
    assert looked == {"name": device, **GOOD}
    assert npu == {"npu": False}


def test_a_torch_npu_that_the_user_imported_is_left_there(child, on_acme, tmp_path):
    code = """
import torch_npu
from accel_train.deepspeed import activate
activate()
look()
answer(npu=sys.modules["torch_npu"] is torch_npu)
"""
    (tmp_path / "torch_npu.py").touch()
    variables = {**on_acme, "PYTHONPATH": f"{tmp_path}:{on_acme['PYTHONPATH']}"}
    looked, npu = child(["-c", LOOK + code], variables).answers
    assert looked == {"name": "acme", **GOOD}
    assert npu == {"npu": True}


def test_operators_that_deepspeed_has_asked_about_are_asked_again(child, on_acme):
    """LAMB has no builder for the CPU among DeepSpeed's, and a portable one of ours for acme."""
    code = """
import os
import deepspeed
from deepspeed.ops.op_builder import all_ops
before = sorted(all_ops.ALL_OPS)
from accel_train.deepspeed import activate
os.environ["DS_ACCELERATOR"] = "acme"
activate(force=True)
answer(before="fused_lamb" in before, after="fused_lamb" in all_ops.ALL_OPS,
       compatible=deepspeed.ops.__compatible_ops__.get("fused_lamb"))
"""
    ended = child(["-c", ANSWER + code], {**on_acme, "DS_ACCELERATOR": "cpu"})
    assert ended.answers == [{"before": False, "after": True, "compatible": True}]


def test_its_source_is_still_found_and_a_reload_keeps_ours(child, on_cpu):
    code = """
from accel_train.deepspeed import activate
activate()
import importlib, inspect
import deepspeed.accelerator.real_accelerator as real
assert "def set_accelerator" in inspect.getsource(real)
importlib.reload(real)
look()
"""
    assert child(["-c", LOOK + code], on_cpu).answers == [{"name": "cpu", **GOOD}]


def test_a_copy_of_accel_core_that_was_loaded_anew_takes_over(child, on_cpu):
    """Two hooks must not ask each other, nor may somebody's who asks every finder as they do."""
    code = """
import importlib, importlib.util
asked = set()
class Somebodys:
    def find_spec(self, name, path=None, target=None):
        if name in asked or not name.startswith("deepspeed.accelerator"):
            return None
        asked.add(name)
        return importlib.util.find_spec(name)

import accel_core
from accel_train.deepspeed import _placing, activate
first = activate().accelerator
importlib.reload(_placing)
activate()
for name in [name for name in sys.modules if name.partition(".")[0] in ("accel_core", "accel_train")]:
    del sys.modules[name]
from accel_train.deepspeed import _placing, activate
sys.meta_path.insert(0, Somebodys())
second = activate().accelerator
around, home, made = _placing._hook._around, "deepspeed.accelerator.real_accelerator", []
put = around[home]
around[home] = lambda module: (made.append(module.__name__), put(module))[1]
look()
answer(new=second is not first, put=made, asked=home in asked,
       hooks=[type(finder).__name__ for finder in sys.meta_path].count("ImportHook"))
"""
    looked, rest = child(["-c", LOOK + code], on_cpu).answers
    assert looked == {"name": "cpu", **GOOD}
    assert rest == {"new": True, "put": ["deepspeed.accelerator.real_accelerator"], "asked": True, "hooks": 1}


def test_a_communication_backend_that_torch_has_not_is_said_at_activation(child, on_cpu):
    code = "from accel_train.deepspeed import activate\nactivate()"
    ended = child(["-c", code], {**on_cpu, "ACCEL_COMMUNICATION_BACKEND": "smoke"})
    assert ended.returncode == 1
    assert "LaunchError: torch.distributed has no communication backend 'smoke' here" in ended.stderr
