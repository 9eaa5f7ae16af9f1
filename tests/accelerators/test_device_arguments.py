"""Every call that DeepSpeed's interface accepts, with a device named in every way that is accepted."""

import contextlib
import inspect
import json
from pathlib import Path
from types import MethodType

import pytest
import torch

from accel_core import (
    Accelerator,
    Backend,
    InvalidArgumentError,
    InvalidDeviceError,
    TorchAccelerator,
)

# ---------------------------------------------------------------------------- device arguments
# A device is named by an index, a string, a `torch.device` or `None`, everywhere; one check, one message.


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
        r"{0}: cuda:0 is not a device of type '{1}': expected an index, a string",
    ),
    (
        torch.device("xpu", 1),
        InvalidDeviceError,
        r"{0}: xpu:1 is not a device of type '{1}'",
    ),
    (
        "gpu 1",
        InvalidDeviceError,
        r"{0}: 'gpu 1' is not a device: expected .* such as '{1}:0' or a torch",
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
def whole(simulated, vendor, monkeypatch):
    vendor.init()
    # No tensor can be made on the simulated device.
    monkeypatch.setattr(
        "accel_core.interface.devices._convertible_dtypes", lambda *_: {torch.float32}
    )
    return simulated


@pytest.mark.parametrize("name", CHECKED)
def test_a_devices_module_sees_an_index_however_the_device_is_named(
    whole, vendor, name
):
    seen = []
    # "1": DeepSpeed names a rank's device so, by os.environ["LOCAL_RANK"].
    for device in (1, "maia:1", torch.device("maia", 1), "1", "maia", None):
        if device is None and name in ("set_device", "fork_rng"):
            continue
        vendor.asked.clear()
        CHECKED[name](whole, device)
        seen.append(vendor.asked[:])
        vendor.current = 0
    assert seen[0] == seen[1] == seen[2] == seen[3]
    for device in (2, "maia:2", torch.device("maia", 2)):
        with pytest.raises(
            InvalidDeviceError,
            match=r"simulated: device index 2 is out of range, 2 devices",
        ):
            CHECKED[name](whole, device)
    for device, error, words in WRONG:
        with pytest.raises(error, match=words.format("simulated", "maia")):
            CHECKED[name](whole, device)


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
def test_torchs_keyword_names_the_same_device(whole, vendor, name):
    asked = []
    for keyword in ("device_index", "device"):
        vendor.asked.clear()
        getattr(whole, name)(**{keyword: "maia:1"}, **OTHERS.get(name, {}))
        asked.append((vendor.asked[:], vendor.current))
        vendor.current = 0
    assert asked[0] == asked[1]


@pytest.mark.parametrize("name", BY_KEYWORD)
def test_a_device_can_be_named_by_both_keywords_if_it_is_the_same(whole, cpu, name):
    others = OTHERS.get(name, {})
    getattr(whole, name)(device_index=1, device=torch.device("maia", 1), **others)
    for accelerator in (whole, cpu):
        with pytest.raises(
            InvalidArgumentError,
            match=r": device_index=1 and device=0 name different devices: pass one",
        ):
            getattr(accelerator, name)(device_index=1, device=0, **others)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_made_of_what_torch_takes(simulated, cpu, name):
    ask = NAMED[name]
    assert (
        ask(simulated, 7)
        == ask(simulated, "maia:7")
        == ask(simulated, torch.device("maia", 7))
    )
    assert ask(simulated, 7) == ask(
        simulated, "7"
    )  # so DeepSpeed asks, with os.environ["LOCAL_RANK"]
    assert (
        str(ask(simulated, "maia:7")) == "maia:7"
    )  # a value, as torch.device: nobody looks for it
    assert (
        ask(simulated, "maia")
        == ask(simulated, None)
        == ask(simulated, torch.device("maia"))
    )
    with pytest.raises(InvalidArgumentError, match=r"7.0 \(float\) is not a device"):
        ask(simulated, 7.0)  # equal to a key that is there
    assert str(ask(cpu, "cpu:0")) == str(ask(cpu, 5)) == "cpu"
    for accelerator in (simulated, cpu):
        with pytest.raises(InvalidDeviceError, match="device index -1 is negative"):
            ask(accelerator, -1)
        for device, error, words in WRONG:
            with pytest.raises(
                error, match=words.format(accelerator.name, accelerator.device_type)
            ):
                ask(accelerator, device)


def test_the_errors_are_the_builtins_that_a_caller_expects(simulated):
    with pytest.raises(ValueError, match="out of range"):
        simulated.set_device(9)
    with pytest.raises(
        TypeError, match=r"simulated: None \(NoneType\) is not a device"
    ):
        simulated.set_device(None)


# ---------------------------------------------------------------------------- deepspeed calls
# Every call that DeepSpeed's interface accepts, ours accepts too: it may widen, never narrow.


SNAPSHOT = json.loads(
    Path(__file__)
    .with_name("data")
    .joinpath("deepspeed_members.json")
    .read_text("utf-8")
)
#: Its own machinery for counting pinned memory, which nobody calls or overrides from outside.
PRIVATE = {
    "_pin_fresh",
    "_require_host_device",
    "_shape_numel",
    "_torch_pins_host_memory",
}
MEMBERS = {
    name: member for name, member in SNAPSHOT["members"].items() if name not in PRIVATE
}
METHODS = sorted(name for name, member in MEMBERS.items() if "parameters" in member)
KINDS = inspect.Parameter
VARIADIC = (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD)


def narrowings(function, theirs):
    """What `function`, bound, would refuse of the calls that `theirs` allows."""
    ours = list(inspect.signature(function).parameters.values())
    named = {p.name: p for p in ours}
    faults = []
    for place, parameter in enumerate(theirs):
        mine = named.get(parameter["name"])
        if mine is None:
            faults.append(f"has no {parameter['name']}")
        elif parameter["kind"] == "POSITIONAL_OR_KEYWORD":
            if (
                mine.kind is not KINDS.POSITIONAL_OR_KEYWORD
                or ours.index(mine) != place
            ):
                faults.append(
                    f"{mine.name} is not in place {place} by position and by name"
                )
        elif mine.kind.name not in (parameter["kind"], "POSITIONAL_OR_KEYWORD"):
            faults.append(f"{mine.name} is {mine.kind.name}")
        optional = (
            mine is None or mine.default is not KINDS.empty or mine.kind in VARIADIC
        )
        if not parameter["required"] and not optional:
            faults.append(f"{parameter['name']} has no default")
    known = {parameter["name"] for parameter in theirs}
    for mine in ours:
        if (
            mine.name not in known
            and mine.default is KINDS.empty
            and mine.kind not in VARIADIC
        ):
            faults.append(f"needs {mine.name}")
    return faults


def test_the_snapshot_is_of_the_version_we_say():
    assert SNAPSHOT["provenance"]["sdist"] == "deepspeed-0.19.8.tar.gz"
    assert len(MEMBERS) == 80


def test_every_member_is_there(cpu, simulated):
    for accelerator in (cpu, simulated):
        assert [name for name in MEMBERS if not hasattr(accelerator, name)] == []


@pytest.mark.parametrize("name", METHODS)
def test_no_call_is_narrowed(name, cpu, simulated, backend):
    theirs = MEMBERS[name]["parameters"]
    everything = [cpu, simulated, Accelerator(backend())]
    everything += [
        TorchAccelerator(backend(name=kind, device_type=kind))
        for kind in ("cuda", "xpu", "mps")
    ]
    for accelerator in everything:
        assert narrowings(getattr(accelerator, name), theirs) == [], accelerator


@pytest.mark.parametrize("name", METHODS)
def test_no_class_narrows_a_call(name, classes):
    theirs = MEMBERS[name]["parameters"]
    for kind in classes:
        bound = MethodType(getattr(kind, name), kind)
        assert narrowings(bound, theirs) == [], kind


@pytest.mark.parametrize("name", METHODS)
def test_an_override_may_call_up_with_the_same_arguments(name, simulated):
    assert (
        narrowings(
            getattr(super(type(simulated), simulated), name),
            MEMBERS[name]["parameters"],
        )
        == []
    )


def test_a_narrowed_call_would_be_noticed():
    def without_index(): ...

    def other_name(device=None): ...

    def needs_more(device_index, more): ...

    theirs = MEMBERS["synchronize"]["parameters"]
    assert narrowings(without_index, theirs) == ["has no device_index"]
    assert narrowings(other_name, theirs) == ["has no device_index"]
    assert narrowings(needs_more, theirs) == [
        "device_index has no default",
        "needs more",
    ]


def test_the_name_that_deepspeed_reads_is_the_backends(cpu, backend):
    assert cpu._name == cpu.name == "cpu"
    assert isinstance(backend(), Backend)
