"""Accelerator classes of DeepSpeed's interface, its own and a vendor's, as accelerators of ours."""

import pickle
from dataclasses import replace

import pytest
from accel_tests.forks import forked
from accel_tests.on_disk import install_strangers
from looks import activated

import accel_core
from accel_core import Backend, InvalidAcceleratorError

#: The class: DeepSpeed's own, as if it was written before some of what DeepSpeed asks for today.
CLASS = """
from deepspeed.accelerator.mlu_accelerator import DeepSpeedAccelerator, MLU_Accelerator

NEWER = ("total_memory", "supported_dtypes", "create_graph", "FloatTensor")
left_out = (*NEWER, "__abstractmethods__", "_abc_impl")
members = {n: v for n, v in vars(MLU_Accelerator).items() if n not in left_out}
Old = type("Old", (DeepSpeedAccelerator,), {**members, "chips": 3, "__module__": __name__})
"""


@pytest.fixture(scope="session")
def on_mlu(simulated, tmp_path_factory):
    """The simulated device and the plugin around the class."""
    folder = tmp_path_factory.mktemp("plugin")
    install_strangers(
        folder,
        "mlu",
        "accel-of-vendor",
        {"mlu_of_old": CLASS},
        accelerator="mlu_of_old:Old",
    )
    return simulated("mlu", folder, DS_ACCELERATOR="mlu@accel-of-vendor")


@forked("mlu")
def test_a_plugin_around_a_class_of_deepspeeds_interface():
    import torch

    acc = accel_core.get_accelerator()
    import mlu_of_old

    # DeepSpeed alone cannot make one.
    assert {"total_memory", "FloatTensor"} <= mlu_of_old.Old.__abstractmethods__
    assert isinstance(acc, accel_core.Accelerator)
    assert [type(acc).__name__, acc.name, acc.chips, acc._name] == [
        "Old",
        "mlu",
        3,
        "mlu",
    ]
    assert acc.backend.distribution == "accel-of-vendor"
    assert acc.communication_backend_name() == "cncl"
    assert acc.total_memory() > 0
    assert acc.supported_dtypes()[0] == torch.float32
    assert str(acc.FloatTensor([1]).device) == "mlu:0"
    assert acc.device_properties().name != ""
    assert pickle.loads(pickle.dumps(acc)) is acc
    activated()
    import deepspeed
    from deepspeed.ops.lion import FusedLion
    from deepspeed.ops.op_builder import FusedAdamBuilder

    layer = torch.nn.Linear(4, 2).to(acc.device_name())
    optimizer = FusedLion(layer.parameters(), lr=0.1)
    before = layer.weight.detach().cpu().clone()
    layer(torch.ones(3, 4, device=acc.current_device_name())).sum().backward()
    optimizer.step()
    assert deepspeed.get_accelerator() is acc
    assert (layer.weight.detach().cpu() != before).any()
    assert FusedAdamBuilder is acc.get_op_builder("FusedAdamBuilder")
    assert FusedAdamBuilder.__module__ == "deepspeed.ops.op_builder.mlu.fused_adam"


@forked("cpu")
def test_one_of_deepspeeds_own_is_set_as_it_is():
    import deepspeed
    import torch
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    accel_core.set_accelerator(CPU_Accelerator)
    acc = accel_core.get_accelerator()
    deepspeed.accelerator.set_accelerator(acc)
    assert isinstance(acc, accel_core.Accelerator)
    assert deepspeed.get_accelerator() is acc
    home = "deepspeed.ops.op_builder.cpu"
    assert [acc.name, acc.current_stream(), acc.op_builder_dir()] == ["cpu", None, home]
    homes = [
        acc.get_op_builder(f"Fused{name}Builder").__module__
        for name in ("Adam", "Lamb")
    ]
    assert homes == [
        "deepspeed.ops.op_builder.cpu.fused_adam",
        "accel_train.ops.portable",
    ]
    used = acc.operators()["FusedAdamBuilder"].used.provider
    assert used == "deepspeed.accelerator.cpu_accelerator.CPU_Accelerator"
    assert acc.capabilities().is_synchronized_device
    assert type(pickle.loads(pickle.dumps(acc))) is type(acc)
    assert acc.FloatTensor([1.0]).dtype == torch.float32


@forked("cpu")
def test_a_class_for_another_device_than_the_plugin_declares_is_refused():
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    from accel_train.deepspeed.adapter import adapt

    class Awkward(CPU_Accelerator):
        def __init__(self, chips):
            super().__init__()

    backend = Backend(name="acme", priority=1, device_type="acme")
    words = r"declared for the device type 'acme'.*is for 'cpu'. Next step: declare device_type='cpu'"
    with pytest.raises(InvalidAcceleratorError, match=words):
        adapt(CPU_Accelerator, backend)
    with pytest.raises(
        InvalidAcceleratorError,
        match="Awkward cannot be created without arguments: TypeError",
    ):
        adapt(Awkward, backend)
    fitting = replace(backend, name="mine", device_type="cpu")
    assert adapt(CPU_Accelerator, fitting).device_name() == "cpu"
    assert adapt(Awkward(2), fitting).device_name() == "cpu"
    assert adapt(3, backend) is None


@forked("acme")
def test_a_half_written_class_is_of_use():
    """Its builders are missing, its device is a block, and it keeps the name of its collectives alone."""
    import torch
    from training.ds_training.shapes import MUSA_Accelerator

    from accel_train.deepspeed.adapter import adapt

    half = type(
        "Half",
        (MUSA_Accelerator,),
        {"KIND": "acme", "_communication_backend_name": "accl"},
    )
    for_metal = type("ForMetal", (half,), {"_communication_backend_name": "gloo"})
    backend = Backend(
        name="acme", priority=1, device_type="acme", communication_backend="nobodys"
    )
    given = [
        adapt(kind, backend).communication_backend_name() for kind in (half, for_metal)
    ]
    assert given == ["accl", "staged"]
    accel_core.set_accelerator(half)
    acc = activated()[0].accelerator
    assert torch.nn.Linear(1, 1).to(acc.device(0)).weight.device.type == "acme"
    with pytest.warns(UserWarning, match=r"device_guard\(0\)"), acc.device(0):
        pass
    assert acc.operators()["FusedLambBuilder"].used.provider == "accel-train portable"
