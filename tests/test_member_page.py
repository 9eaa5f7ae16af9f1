"""docs/reference/torch-accelerator.md: every member once, and what it says of torch is what torch has."""

from __future__ import annotations

from operator import attrgetter
from types import ModuleType

import pytest
from accel_tests import surfaces
from accel_tests.tools import load

from accel_core.accelerators._binding import ROWS

_TOOL = load("member_page")


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
    assert public == set(known["since"])
    assert {row.name: row.in_torch for row in ROWS if row.in_torch}.items() <= known["members"].items()


def test_they_are_those_of_the_torch_that_is_here(tool):
    torch = pytest.importorskip("torch")
    known = tool.facts()
    here = tuple(map(int, torch.__version__.split(".")[:2]))

    def is_there(since: str) -> bool:
        return tuple(map(int, since.split("."))) <= here

    expected = {name for name, since in known["since"].items() if is_there(since)}
    found = set(torch.accelerator.__all__)
    assert expected <= found
    if not is_there(known["read_to"]) or here == tuple(map(int, known["read_to"].split("."))):
        assert found == expected
    for path in known["elsewhere"].values():
        attrgetter(path.removeprefix("torch."))(torch)
