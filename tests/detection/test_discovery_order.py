"""Candidates stand in a total order, which nothing about the machine changes."""

import itertools
import random

import pytest
from accel_tests.asking import names, verdict_on

from accel_core import Backend, Provenance, TorchIntegration, builtin, discover
from accel_core.plugins import rank


def candidate(
    name, priority=100, *, device_type="", takes_over="", distribution="", value="v"
):
    provenance = Provenance(distribution or f"accel-{name}", "1.0", name, value)
    backend = Backend(
        name=name,
        priority=priority,
        device_type=device_type or name.partition(".")[0],
        torch_integration=TorchIntegration(takes_over=takes_over),
        provenance=provenance,
    )
    return verdict_on(backend)


def orders(candidates):
    """The ranked names, for many orders in which the candidates may be found."""
    shuffler = random.Random(0)
    if len(candidates) <= 4:
        ways = [list(p) for p in itertools.permutations(candidates)]
    else:
        ways = [shuffler.sample(candidates, len(candidates)) for _ in range(50)]
    return {
        tuple(
            f"{c.name}@{c.distribution}" if c.name == "same" else c.name
            for c in rank(way)
        )
        for way in ways
    }


def test_priority_then_name_then_distribution():
    """Equal priorities must not change from run to run."""
    same = [candidate("same", distribution=d) for d in ("b", "a")]
    assert orders(
        [candidate("zeta", 300), candidate("beta"), candidate("alpha"), *same]
    ) == {("zeta", "alpha", "beta", "same@a", "same@b")}


def test_the_builtin_cpu_is_below_every_plugin_of_its_priority():
    """The CPU, which is always usable, is the fallback and never makes a conflict."""
    cpu = builtin.builtin_verdicts()[0]
    assert cpu.name == "cpu"
    assert orders([cpu, candidate("zzz", 0), candidate("aaa", 0)]) == {
        ("aaa", "zzz", "cpu")
    }


def test_a_broken_plugin_ranks_above_the_cpu_so_that_it_is_reported(world):
    world.plugin("zzz", "raise ImportError")
    assert names(discover()) == ["generic", "zzz", "cpu"]


#: Each name with its priority and what it takes over, in the order of their rank.
RANKED = {
    # What it takes over looks usable when it is not.
    "before what it takes over": [("npu", 700), ("supa", 50, "cuda"), ("cuda", 200), ("mps", 150)],
    "where its own number puts it": [("supa", 900, "cuda"), ("npu", 700), ("cuda", 200)],
    "before every backend of that device type": [("spoof", 1, "xpu"), ("xpu.external", 900), ("xpu", 800)],
    "by their numbers among themselves": [("zz", 20, "cuda"), ("aa", 10, "cuda"), ("cuda", 200)],
    "nothing that is taken over is there": [("npu", 700), ("supa", 50, "cuda")],
}  # fmt: skip


@pytest.mark.parametrize("ranked", RANKED.values(), ids=RANKED.keys())
def test_the_rank_of_a_backend_that_takes_over_another(ranked):
    found = [
        candidate(name, number, takes_over="".join(taken))
        for name, number, *taken in ranked
    ]
    assert orders(found) == {tuple(name for name, *_ in ranked)}


#: Names with priorities, and what each takes_over: no order satisfies all of them.
CIRCLES = {
    "two take over each other": [("a", 10, "b"), ("b", 20, "a")],
    "a pair, and one that takes over itself": [
        ("a", 10, "b"),
        ("b", 20, "a"),
        ("self", 15, "self"),
    ],
    "three in a circle, and one from outside": [
        ("a", 1, "b"),
        ("b", 2, "c"),
        ("c", 3, "a"),
        ("d", 4, "a"),
    ],
}


@pytest.mark.parametrize("circle", CIRCLES.values(), ids=CIRCLES.keys())
def test_a_circle_of_takeovers_has_one_order_whichever_is_found_first(circle):
    found = [candidate(name, priority, takes_over=of) for name, priority, of in circle]
    assert len(orders(found)) == 1


@pytest.mark.parametrize("seed", ["0", "1", "42"])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_depends_on_neither_hash_seed_nor_install_order(
    world, seed, backwards
):
    """Else a machine would choose another backend from run to run."""
    some = [
        ("npu", {}),
        ("mlu", {}),
        (
            "supa",
            {"priority": 1, "torch_integration": TorchIntegration(takes_over="mlu")},
        ),
        ("sdaa", {}),
    ]
    for name, fields in reversed(some) if backwards else some:
        world.backend(name, **{"priority": 500, **fields})
    world.backend("npu", distribution="zz-npu")
    code = """
import json
from accel_core import discover
print(json.dumps([(each.name, each.distribution) for each in discover()]))
"""
    if backwards:  # and the directory's own order reversed
        code = (
            "import os\nreal = os.listdir\nos.listdir = lambda p='.': sorted(real(p), reverse=True)\n"
            + code
        )
    found = world.child(code, variables={"PYTHONHASHSEED": seed}).answer
    assert found == [
        ["supa", "accel-supa"],
        ["mlu", "accel-mlu"],
        ["npu", "accel-npu"],
        ["npu", "zz-npu"],
        ["sdaa", "accel-sdaa"],
        ["generic", "accel-core"],
        ["cpu", "accel-core"],
    ]
