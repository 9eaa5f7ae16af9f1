"""docs/reference/torch-accelerator.md: every member once, and what it says of torch is what torch has."""

from __future__ import annotations

from operator import attrgetter
from types import ModuleType

import pytest
from accel_tests import surfaces
from accel_tests.tools import load

from accel_core.accelerators.torch_device import ROWS

_TOOL = load("member_page")


def version(text: str) -> tuple[int, ...]:
    """The first two numbers."""
    return tuple(map(int, text.split(".")[:2]))


@pytest.fixture
def tool() -> ModuleType:
    return _TOOL


def test_facts_that_do_not_fit_are_told(tool):
    known = tool.facts()
    members = {name for names in tool.sections().values() for name in names}
    assert tool.faults(known, members) == []
    known["members"]["mem_get_inf"] = known["members"].pop("mem_get_info")
    known["since"]["new_function"] = "2.14"
    assert tool.faults(known, members) == [
        "mem_get_inf: is no member of the interface",
        "torch.accelerator.new_function: no member is said to do this",
    ]


def test_they_are_those_of_the_surface_and_of_what_is_bound(tool):
    known = tool.facts()
    surface = surfaces.load("torch_accelerator").modules["torch.accelerator"]
    public = {n for n, entry in surface.items() if n[0] != "_" and entry.kind != "module"}
    since = known["since"]
    assert public == {
        name for name in since if version(since[name]) <= (2, 13)
    }  # the surface is of torch 2.13
    assert {row.name: row.in_torch for row in ROWS if row.in_torch}.items() <= known["members"].items()


def test_they_are_those_of_the_torch_that_is_here(tool):
    torch = pytest.importorskip("torch")
    known = tool.facts()
    here = version(torch.__version__)
    expected = {name for name, since in known["since"].items() if version(since) <= here}
    random = [f"random.{name}" for name in getattr(getattr(torch.accelerator, "random", None), "__all__", ())]
    found = {*torch.accelerator.__all__, *random}
    assert expected <= found
    if here <= version(known["read_to"]):
        assert found == expected
    for path in known["elsewhere"].values():
        attrgetter(path.removeprefix("torch."))(torch)
