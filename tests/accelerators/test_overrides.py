"""Classes written for DeepSpeed's interface know no `device`; an unexpected keyword names the member."""

import pytest
import torch

from accel_core import Accelerator


class Own(Accelerator):
    def device_count(self):
        return 3

    def synchronize(self, device_index=None):
        return device_index

    def set_rng_state(self, new_state, device_index=None):
        return new_state, device_index

    def is_bf16_supported(self):
        return True

    def is_bf16_native(self):
        return False


class Mixin:
    def memory_allocated(self, device_index):
        return device_index


class Mixed(Mixin, Accelerator):
    pass


def test_an_override_takes_torchs_keyword_and_gets_an_index(backend):
    own = Own(backend())
    assert own.synchronize() is None
    for device in (2, "2", "maia:2", torch.device("maia", 2)):
        assert own.synchronize(device=device) == 2
        assert own.set_rng_state("state", device=device) == ("state", 2)
    assert own.set_rng_state("state", 1) == ("state", 1)
    assert own.set_rng_state("state", device_index=1, device="maia:1") == ("state", 1)
    assert own.is_bf16_supported(including_emulation=True) is True
    assert own.is_bf16_supported(including_emulation=False) is False


def test_an_override_of_a_base_outside_the_interface_takes_it_too(backend):
    assert Mixed(backend()).memory_allocated(device=1) == 1


def test_an_override_that_takes_it_is_left_alone(backend):
    def synchronize(self, device_index=None, device=None): ...

    kind = type("Whole", (Own,), {"synchronize": synchronize})
    assert vars(kind)["synchronize"] is synchronize


@pytest.mark.parametrize(
    "synchronize",
    [
        lambda self, device_index=None, **options: options,
        lambda self, *args: args,
        lambda self, device_index=None, *, timeout=1: timeout,
    ],
)
def test_an_override_of_another_shape_is_left_alone(synchronize):
    kind = type("Other", (Accelerator,), {"synchronize": synchronize})
    assert vars(kind)["synchronize"] is synchronize


@pytest.mark.parametrize(
    "member",
    [
        "synchronize", "memory_allocated", "mem_get_info", "memory_summary", "get_rng_state", "set_rng_state",
        "current_stream", "set_device", "is_bf16_supported", "autocast",
    ],
)  # fmt: skip
def test_an_unexpected_keyword_names_the_member(member, cpu, simulated, backend):
    arguments = {"new_state": None} if member == "set_rng_state" else {}
    for accelerator in (cpu, simulated, Own(backend())):
        with pytest.raises(
            TypeError,
            match=rf"^get_accelerator\(\)\.{member}\(\) got an unexpected keyword argument 'devcie'",
        ):
            getattr(accelerator, member)(**arguments, devcie=1)
