"""Every call that DeepSpeed's interface accepts, ours accepts too: it may widen, never narrow."""

import inspect
import json
from pathlib import Path
from types import MethodType

import pytest

from accel_core import (
    Accelerator,
    Backend,
    TorchAccelerator,
)

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
    assert cpu._name == "cpu"
    assert cpu.name == "cpu"
    assert isinstance(backend(), Backend)
