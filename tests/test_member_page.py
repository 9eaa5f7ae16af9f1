"""The table of `torch.accelerator` in docs/reference/accelerator.md lists the functions that torch has."""

from operator import attrgetter

import pytest
from accel_tests import surfaces
from accel_tests.tools import load

from accel_core.interface.torch_device import FORWARDED

TOOL = load("member_page")


def version(text):
    """The first two numbers."""
    return tuple(map(int, text.split(".")[:2]))


def test_they_are_those_of_the_surface_and_of_what_is_bound():
    known = TOOL.facts()
    surface = surfaces.load("torch_accelerator").modules["torch.accelerator"]
    public = {
        n for n, entry in surface.items() if n[0] != "_" and entry.kind != "module"
    }
    since = known["since"]
    assert public == {
        name for name in since if version(since[name]) <= (2, 13)
    }  # the surface is of torch 2.13
    assert {
        name: torchs for name, torchs in FORWARDED.items() if torchs
    }.items() <= known["members"].items()


def test_they_are_those_of_the_torch_that_is_here():
    torch = pytest.importorskip("torch")
    known = TOOL.facts()
    here = version(torch.__version__)
    expected = {
        name for name, since in known["since"].items() if version(since) <= here
    }
    random = [
        f"random.{name}"
        for name in getattr(getattr(torch.accelerator, "random", None), "__all__", ())
    ]
    found = {*torch.accelerator.__all__, *random}
    assert found == expected if here <= version(known["read_to"]) else found >= expected
    # Torch 2.6 lacks both, 2.10 the second.
    newer = {"torch.Stream.__enter__": (2, 7), "torch.Stream.is_capturing": (2, 12)}
    for path in known["elsewhere"].values():
        assert here < newer.get(path, here) or attrgetter(path.removeprefix("torch."))(
            torch
        )
