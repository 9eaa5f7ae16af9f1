"""A device is named by an index, a string, a `torch.device` or `None`, everywhere; one check, one message."""

import contextlib

import pytest
import torch

from accel_core import (
    Accelerator,
    InvalidArgumentError,
    InvalidDeviceError,
)

STATE = torch.Generator().get_state()


#: Members that look whether the device is there.
CHECKED = {
    "set_device": lambda a, d: a.set_device(d),
    "device_guard": lambda a, d: a.device_guard(d).__enter__(),
    "set_rng_state": lambda a, d: a.set_rng_state(STATE, d),
    "fork_rng": lambda a, d: contextlib.ExitStack().enter_context(a.fork_rng([d])),
    "default_generator": lambda a, d: a.default_generator(d),
    **{
        name: lambda a, d, name=name: getattr(a, name)(d)
        for name in (
            "synchronize", "device_properties", "device_uuid", "total_memory", "available_memory",
            "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
            "memory_cached", "max_memory_cached", "reset_peak_memory_stats", "reset_max_memory_allocated",
            "reset_max_memory_cached", "reset_accumulated_memory_stats", "memory_stats", "memory_summary",
            "mem_get_info", "get_rng_state", "initial_seed", "current_stream", "default_stream",
            "get_device_capability",
        )
    },
}  # fmt: skip
#: Members that make a value of it.
NAMED = {
    "device": lambda a, d: a.device(d),
    "device_name": lambda a, d: a.device_name(d),
}
WRONG = [
    (
        "cuda:0",
        InvalidDeviceError,
        r"{0}: cuda:0 is not a device of type '{1}': expected an index, a torch.device",
    ),
    (
        torch.device("xpu", 1),
        InvalidDeviceError,
        r"{0}: xpu:1 is not a device of type '{1}'",
    ),
    (
        "gpu 1",
        InvalidDeviceError,
        r"{0}: 'gpu 1' is not a device: expected .* torch.device .* such as '{1}:0'",
    ),
    (
        1.5,
        InvalidArgumentError,
        r"{0}: 1.5 \(float\) is not a device: expected an index",
    ),
    ([0], InvalidArgumentError, r"{0}: \[0\] \(list\) is not a device"),
]


def test_every_member_that_takes_a_device_is_here():
    taking = {
        name
        for name in dir(Accelerator)
        if "device_index"
        in getattr(
            getattr(getattr(Accelerator, name), "__code__", None), "co_varnames", ()
        )
        and not name.startswith("_")
    }
    assert taking - {"set_per_process_memory_fraction"} == (
        CHECKED.keys() | NAMED.keys()
    ) - {"fork_rng"}


@pytest.fixture
def initialized(simulated, vendor, monkeypatch):
    """The simulated device after its vendor's `init()`, with every member."""
    vendor.init()
    # No tensor can be made on the simulated device.
    monkeypatch.setattr(
        "accel_core.interface.devices._convertible_dtypes", lambda *_: {torch.float32}
    )
    return simulated


@pytest.mark.parametrize("name", CHECKED)
def test_a_devices_module_sees_an_index_however_the_device_is_named(
    initialized, vendor, name
):
    seen = []
    # "1": DeepSpeed names a rank's device so, by os.environ["LOCAL_RANK"].
    for device in (1, "maia:1", torch.device("maia", 1), "1", "maia", None):
        if device is None and name in ("set_device", "fork_rng"):
            continue
        vendor.asked.clear()
        CHECKED[name](initialized, device)
        seen.append(vendor.asked[:])
        vendor.current = 0
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
    assert seen[3] == seen[0]


@pytest.mark.parametrize("name", CHECKED)
def test_a_device_that_is_not_there_is_out_of_range(initialized, name):
    for device in (2, "maia:2", torch.device("maia", 2)):
        with pytest.raises(
            InvalidDeviceError,
            match=r"simulated: device index 2 is out of range: this process sees 2 devices",
        ):
            CHECKED[name](initialized, device)


@pytest.mark.parametrize("name", CHECKED)
def test_a_value_that_names_no_device_is_refused(initialized, name):
    for device, error, words in WRONG:
        with pytest.raises(error, match=words.format("simulated", "maia")):
            CHECKED[name](initialized, device)


def test_the_cpu_is_one_device_under_any_number(cpu):
    """What is no number of a device is refused by every member: `interface.selection` of the kit."""
    with cpu.fork_rng():
        for ask in CHECKED.values():
            ask(cpu, 3)
            ask(cpu, "cpu:3")
    with pytest.raises(InvalidDeviceError, match="cpu: device index -1 is negative"):
        cpu.set_device(-1)


#: What a member needs beside the device.
OTHERS = {"set_rng_state": {"new_state": STATE}}
BY_KEYWORD = [*(name for name in CHECKED if name != "fork_rng"), *NAMED]


@pytest.mark.parametrize("name", BY_KEYWORD)
def test_torchs_keyword_names_the_same_device(initialized, vendor, name):
    asked = []
    for keyword in ("device_index", "device"):
        vendor.asked.clear()
        getattr(initialized, name)(**{keyword: "maia:1"}, **OTHERS.get(name, {}))
        asked.append((vendor.asked[:], vendor.current))
        vendor.current = 0
    assert asked[0] == asked[1]


@pytest.mark.parametrize("name", BY_KEYWORD)
def test_a_device_can_be_named_by_both_keywords_if_it_is_the_same(
    initialized, cpu, name
):
    others = OTHERS.get(name, {})
    getattr(initialized, name)(device_index=1, device=torch.device("maia", 1), **others)
    for accelerator in (initialized, cpu):
        with pytest.raises(
            InvalidArgumentError,
            match=r": device_index=1 and device=0 are different devices: pass one",
        ):
            getattr(accelerator, name)(device_index=1, device=0, **others)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_made_of_what_torch_takes(simulated, name):
    ask = NAMED[name]
    assert ask(simulated, "maia:7") == ask(simulated, 7)
    assert ask(simulated, torch.device("maia", 7)) == ask(simulated, 7)
    # So DeepSpeed asks, with os.environ["LOCAL_RANK"].
    assert ask(simulated, "7") == ask(simulated, 7)
    # A value, as torch.device: nobody looks for it.
    assert str(ask(simulated, "maia:7")) == "maia:7"


@pytest.mark.parametrize("name", NAMED)
def test_a_name_without_an_index_is_the_device_types(simulated, name):
    ask = NAMED[name]
    assert ask(simulated, None) == ask(simulated, "maia")
    assert ask(simulated, torch.device("maia")) == ask(simulated, "maia")


@pytest.mark.parametrize("name", NAMED)
def test_the_cpus_name_has_no_index(cpu, name):
    ask = NAMED[name]
    assert str(ask(cpu, "cpu:0")) == "cpu"
    assert str(ask(cpu, 5)) == "cpu"


@pytest.mark.parametrize("name", NAMED)
def test_a_float_that_equals_an_index_is_refused(simulated, name):
    ask = NAMED[name]
    ask(simulated, 7)  # a key that 7.0 equals
    with pytest.raises(InvalidArgumentError, match=r"7.0 \(float\) is not a device"):
        ask(simulated, 7.0)


@pytest.mark.parametrize("name", NAMED)
def test_no_name_is_made_of_what_names_no_device(simulated, cpu, name):
    ask = NAMED[name]
    for accelerator in (simulated, cpu):
        with pytest.raises(InvalidDeviceError, match="device index -1 is negative"):
            ask(accelerator, -1)
        for device, error, words in WRONG:
            message = words.format(accelerator.name, accelerator.device_type)
            with pytest.raises(error, match=message):
                ask(accelerator, device)


def test_the_errors_are_the_builtins_that_a_caller_expects(simulated):
    with pytest.raises(ValueError, match="out of range"):
        simulated.set_device(9)
    with pytest.raises(
        TypeError, match=r"simulated: None \(NoneType\) is not a device"
    ):
        simulated.set_device(None)
