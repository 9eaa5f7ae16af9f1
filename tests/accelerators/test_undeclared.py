"""A class that no plugin declares: DeepSpeed's own example on our base, with only its import changed."""

import pickle

import pytest
import torch

import accel_core
from accel_core import Accelerator as DeepSpeedAccelerator
from accel_core import (
    TorchAccelerator,
    UnsupportedError,
)


class MyCustomAccelerator(DeepSpeedAccelerator):
    def __init__(self):
        super().__init__()
        self._name = "custom"
        self._communication_backend_name = "nccl"
        self._compile_backend = "inductor"

    def device_name(self, device_index=None):
        return "custom" if device_index is None else f"custom:{device_index}"

    def device_count(self):
        return 1

    def is_bf16_supported(self):
        return True


@pytest.fixture(autouse=True)
def nothing_set():
    yield
    accel_core.set_accelerator(None)


@pytest.fixture(
    params=[MyCustomAccelerator, MyCustomAccelerator()], ids=["class", "object"]
)
def custom(request):
    accel_core.set_accelerator(request.param)
    return accel_core.get_accelerator()


@pytest.mark.parametrize(
    ("member", "answer"),
    [
        ("name", "custom"),
        ("_name", "custom"),
        ("device_type", "custom"),
        ("device_name", "custom"),
        ("device_count", 1),
        ("is_available", True),
        ("communication_backend_name", "nccl"),
        ("_communication_backend_name", "nccl"),
        ("get_compile_backend", "inductor"),
        ("is_bf16_supported", True),
        ("supported_dtypes", [torch.float32, torch.bfloat16]),
        ("training_dtype", torch.bfloat16),
        ("visible_devices_envs", []),
    ],
)
def test_answers_of_the_users_class_are_believed(custom, member, answer):
    stated = getattr(custom, member)
    assert (stated() if callable(stated) else stated) == answer


@pytest.mark.parametrize(
    ("use", "member"),
    [
        (lambda acc: acc.current_device(), "current_device"),
        (lambda acc: acc.synchronize(), "synchronize"),
        (lambda acc: acc.memory_allocated(0), "memory_allocated"),
        (lambda acc: acc.manual_seed_all(1), "default_generator"),
        (lambda acc: acc.total_memory(0), "total_memory"),
        (lambda acc: acc.device(0), "device"),
    ],
)
def test_a_member_that_the_users_class_lacks_is_named(custom, use, member):
    with pytest.raises(
        UnsupportedError,
        match=rf"^MyCustomAccelerator: {member} is not implemented[:;]",
    ):
        use(custom)


def test_a_pickle_of_the_users_object_is_of_its_class(custom):
    assert type(pickle.loads(pickle.dumps(custom))) is MyCustomAccelerator
    assert str(accel_core.selection()).startswith("custom: set by the program")
    with accel_core.use_accelerator(MyCustomAccelerator) as inner:
        assert inner is accel_core.get_accelerator() is not custom


class _Hidden(DeepSpeedAccelerator):
    pass


class Named(DeepSpeedAccelerator):
    pass


@pytest.mark.parametrize(("kind", "name"), [(Named, "named"), (_Hidden, "custom")])
def test_a_name_is_stated_or_made_of_the_class(kind, name):
    assert kind().name == name


def test_without_a_declaration_the_device_is_torchs(vendor, monkeypatch):
    class Maia(TorchAccelerator):
        pass

    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_: torch.device("maia")
    )
    accel_core.set_accelerator(Maia)
    made = accel_core.get_accelerator()
    assert made.name == "maia"
    assert made.device_name(1) == "maia:1"
    assert made.manual_seed == vendor.manual_seed


def test_a_plugin_may_declare_it(backend):
    declared = backend(
        name="custom", device_type="custom", communication_backend="acmeccl"
    )
    made = MyCustomAccelerator._from_backend(declared)
    assert made.backend == declared
    assert made.name == "custom"
    assert made.communication_backend_name() == "nccl"
    assert (
        TorchAccelerator._from_backend(backend(name="cpu", device_type="cpu")).name
        == "cpu"
    )
    with pytest.raises(
        UnsupportedError, match=r"^custom: current_device is not supported by torch "
    ):
        made.current_device()


def test_the_declared_compiler_is_used(backend):
    assert (
        DeepSpeedAccelerator(backend(compile_backend="acme")).get_compile_backend()
        == "acme"
    )
