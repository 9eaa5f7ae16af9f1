"""Accelerator classes of DeepSpeed's interface, its own and a vendor's, as accelerators of ours."""

from __future__ import annotations

import pytest
from accel_tests import layouts

START = """
import json, pickle, sys
def answer(**values):
    print("ANSWER", json.dumps(values), flush=True)
"""
#: A vendor with a class of its own: all that its plugin has to say.
PLUGIN = """
from accel_core import Backend, InTorch, hookimpl

@hookimpl
def accel_backends():
    return Backend(
        name="mlu", priority=950, device_type="mlu", vendor_import="torch_mlu",
        in_torch=InTorch(private_use1=True), accelerator="mlu_of_old:Old",
    )
"""
#: The class: DeepSpeed's own, as if it was written before some of what DeepSpeed asks for today.
CLASS = """
from deepspeed.accelerator.mlu_accelerator import DeepSpeedAccelerator, MLU_Accelerator

NEWER = ("total_memory", "supported_dtypes", "create_graph", "FloatTensor")
left_out = (*NEWER, "__abstractmethods__", "_abc_impl")
members = {n: v for n, v in vars(MLU_Accelerator).items() if n not in left_out}
Old = type("Old", (DeepSpeedAccelerator,), {**members, "chips": 3, "__module__": __name__})
"""


@pytest.fixture
def on_vendors_class(tmp_path):
    """Variables of a process with the simulated device and the plugin around the class."""
    from accel_tests.on_simulated import environment

    from accel_simulated import VENDORS, CannotBuildError, build

    try:
        build(VENDORS["mlu"].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    groups = {layouts.GROUP: {"mlu": "accel_of_vendor"}}
    modules = {"accel_of_vendor": PLUGIN, "mlu_of_old": CLASS}
    layouts.dist_info(tmp_path, "accel-of-vendor", "2.0", groups, modules)
    variables = {"DS_ACCELERATOR": "mlu@accel-of-vendor", "OMP_NUM_THREADS": "1"}
    chosen = environment("mlu", variables, path=[tmp_path])
    return {name: value for name, value in chosen.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}


def test_a_plugin_around_a_class_of_deepspeeds_interface(child, on_vendors_class):
    code = """
import accel_core
acc = accel_core.get_accelerator()
import mlu_of_old
missing = {"total_memory", "FloatTensor"}
assert missing <= mlu_of_old.Old.__abstractmethods__, "DeepSpeed alone cannot make one"
answer(kind=type(acc).__name__, ours=isinstance(acc, accel_core.Accelerator), name=acc.name, chips=acc.chips,
       distribution=acc.backend.distribution, inner=acc._name, asked=acc.communication_backend_name(),
       memory=acc.total_memory() > 0, dtype=str(acc.supported_dtypes()[0]),
       tensor=str(acc.FloatTensor([1]).device),
       more=acc.device_properties().name != "", again=pickle.loads(pickle.dumps(acc)) is acc)
from accel_train.deepspeed import activate
activate()
import deepspeed, torch
from deepspeed.ops.op_builder import FusedAdamBuilder
layer = torch.nn.Linear(4, 2).to(acc.device_name())
from deepspeed.ops.lion import FusedLion
optimizer = FusedLion(layer.parameters(), lr=0.1)
before = layer.weight.detach().cpu().clone()
layer(torch.ones(3, 4, device=acc.current_device_name())).sum().backward()
optimizer.step()
answer(same=deepspeed.get_accelerator() is acc, moved=bool((layer.weight.detach().cpu() != before).any()),
       builder=FusedAdamBuilder is acc.get_op_builder("FusedAdamBuilder"), home=FusedAdamBuilder.__module__)
"""
    ended = child(["-c", START + code], on_vendors_class)
    assert ended.returncode == 0, ended.stderr
    first, trained = ended.answers
    assert first == {
        "kind": "Old", "ours": True, "name": "mlu", "chips": 3, "distribution": "accel-of-vendor",
        "inner": "mlu", "asked": "cncl", "memory": True, "dtype": "torch.float32", "tensor": "mlu:0",
        "more": True, "again": True,
    }  # fmt: skip
    home = "deepspeed.ops.op_builder.mlu.fused_adam"
    assert trained == {"same": True, "moved": True, "builder": True, "home": home}


@pytest.mark.parametrize(
    "given",
    [
        "CPU_Accelerator",
        pytest.param(
            "CPU_Accelerator()",
            marks=pytest.mark.nightly(reason="an instance in place of the class, which by day covers"),
        ),
    ],
)
def test_one_of_deepspeeds_own_is_set_as_it_is(child, asked, given):
    code = f"""
import accel_core
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
import deepspeed
accel_core.set_accelerator({given})
acc = accel_core.get_accelerator()
deepspeed.accelerator.set_accelerator(acc)
again = pickle.loads(pickle.dumps(acc))
builders = [acc.get_op_builder(f"Fused{{name}}Builder").__module__ for name in ("Adam", "Lamb")]
answer(ours=isinstance(acc, accel_core.Accelerator), name=acc.name, stream=acc.current_stream(),
       dir=acc.op_builder_dir(), builders=builders,
       used=acc.operators()["FusedAdamBuilder"].used.provider, same=deepspeed.get_accelerator() is acc,
       capable=acc.capabilities().is_synchronized_device, again=type(again) is type(acc),
       how=str(accel_core.selection().how.value), dtype=str(acc.FloatTensor([1.0]).dtype))
"""
    ended = child(["-c", START + code], asked)
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    own = "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
    assert found == {
        "ours": True, "name": "cpu", "stream": None, "dir": "deepspeed.ops.op_builder.cpu",
        "builders": ["deepspeed.ops.op_builder.cpu.fused_adam", "accel_train.ops.portable"], "used": own,
        "same": True, "capable": True, "again": True, "how": found["how"], "dtype": "torch.float32",
    }  # fmt: skip


def test_the_communication_backend_that_a_half_written_class_keeps_is_used(child, on_cpu):
    code = """
from accel_core import Backend
from accel_train.deepspeed.adapter import adapt
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator, DeepSpeedAccelerator

left_out = ("communication_backend_name", "__init__", "__abstractmethods__", "_abc_impl")
members = {n: v for n, v in vars(CPU_Accelerator).items() if n not in left_out}
def begin(self):
    self._name, self._communication_backend_name, self._compile_backend = "cpu", "gloo", "inductor"

Half = type("Half", (DeepSpeedAccelerator,), {**members, "__init__": begin})
backend = Backend(name="cpu", priority=1, device_type="cpu", communication_backend="nobodys")
answer(kept=adapt(Half, backend).communication_backend_name())
"""
    ended = child(["-c", START + code], on_cpu)
    assert ended.answers == [{"kept": "gloo"}], ended.stderr


def test_a_class_for_another_device_than_the_plugin_declares_is_refused(child, on_cpu):
    code = """
from accel_core import Backend, InvalidAcceleratorError
from accel_train.deepspeed.adapter import adapt
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

class Awkward(CPU_Accelerator):
    def __init__(self, chips):
        super().__init__()

backend = Backend(name="acme", priority=1, device_type="acme")
said = []
for given in (CPU_Accelerator, Awkward):
    try:
        adapt(given, backend)
    except InvalidAcceleratorError as error:
        said.append(str(error))
answer(said=said, stranger=adapt(3, backend))
"""
    ended = child(["-c", START + code], on_cpu)
    assert ended.returncode == 0, ended.stderr
    (found,) = ended.answers
    assert "declared for the device type 'acme'" in found["said"][0]
    assert "is for 'cpu': declare device_type='cpu'" in found["said"][0]
    assert "Awkward cannot be made without arguments: TypeError" in found["said"][1]
    assert found["stranger"] is None


def test_a_class_as_deepspeeds_documents_show_it_states_and_lacks_what_it_lacks(child, on_cpu):
    """On DeepSpeed's real base: given as the class, which is abstract, and as an object."""
    code = """
import accel_core
from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

class MyCustomAccelerator(DeepSpeedAccelerator):
    def __init__(self):
        super().__init__()
        self._name = 'custom'
        self._communication_backend_name = 'nccl'
        self._compile_backend = 'aot_eager'
    def device_name(self, device_index=None):
        return 'custom' if device_index is None else f'custom:{device_index}'
    def device_count(self): return 1
    def is_bf16_supported(self): return True

def raised(acc):
    try:
        acc.current_device()
    except accel_core.UnsupportedError as error:
        return str(error)

abstract = MyCustomAccelerator.__abstractmethods__
MyCustomAccelerator.__abstractmethods__ = frozenset()
an_object = MyCustomAccelerator()
MyCustomAccelerator.__abstractmethods__ = abstract
for given in (MyCustomAccelerator, an_object):
    accel_core.set_accelerator(given)
    acc = accel_core.get_accelerator()
    answer(name=acc.name, inner=acc._name, device=acc.device_name(0), ccl=acc.communication_backend_name(),
           compiler=acc.get_compile_backend(), dtypes=str(acc.supported_dtypes()), raised=raised(acc))
"""
    ended = child(["-c", START + code], on_cpu)
    assert ended.returncode == 0, ended.stderr
    stated = {
        "name": "custom", "inner": "custom", "device": "custom:0", "ccl": "nccl", "compiler": "aot_eager",
        "dtypes": "[torch.float32, torch.bfloat16]",
        "raised": "MyCustomAccelerator: current_device is not implemented; override it",
    }  # fmt: skip
    assert ended.answers == [stated, stated]
