"""Plugins on disk become candidates, in a total order, and a pin imports as few of them as can be."""

import itertools
import random
import re
import sys

import pytest
from accel_tests import layouts, plugins
from accel_tests.asking import look, names, only
from accel_tests.plugins import arguments, declaring

from accel_core import Backend, InTorch, Provenance, discover
from accel_core.detection import Candidate, Status, discovery
from accel_core.detection.discovery import rank
from accel_core.settings import parse_pin

# ---------------------------------------------------------------------------- discovery
# Plugins on disk become candidates, and a pin imports as few of them as can be.


def test_without_plugins_there_are_the_two_built_in_backends(world):
    assert names(discover()) == ["generic", "cpu"]
    assert all(c.builtin and c.distribution == "accel-core" for c in discover())


@pytest.mark.parametrize(
    "layout", [layouts.dist_info, layouts.egg_info, layouts.editable], ids=lambda layout: layout.__name__
)
def test_a_plugin_becomes_a_candidate_with_its_provenance(world, layout):
    world.plugin("npu", declaring(arguments("npu")), version="1.2", layout=layout)
    world.set_path([world.site, world.root / "accel-npu-checkout" / "src"])
    found = only("npu")
    assert found.provenance == Provenance("accel-npu", "1.2", "npu", "accel_npu")
    assert found.backend.provenance == found.provenance
    assert not found.builtin
    assert str(found) == "npu (accel-npu 1.2)"


def test_one_plugin_may_declare_several_backends_and_one_alone(world):
    world.plugin(
        "xpu", declaring(arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900))
    )
    one = f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return Backend({arguments('npu', 1)})\n"
    world.plugin("npu", one)
    ranked = [f"{c.name} {c.priority}" for c in discover()]
    assert ranked[:4] == ["xpu.external 900", "xpu 800", "xpu 790", "generic 100"]
    assert only("npu").priority == 1


def test_one_declaration_given_twice_is_one_candidate(world):
    world.plugin("npu", declaring(arguments("npu"), arguments("npu")))
    assert names(discover()).count("npu") == 1


def test_an_entry_point_may_name_an_object_in_a_module(world):
    source = declaring(arguments("npu")).replace(
        "@hookimpl\ndef accel_backends():",
        "class Hooks:\n  @staticmethod\n  @hookimpl\n  def accel_backends():",
    )
    world.plugin("npu", source, value="accel_npu:Hooks")
    assert only("npu").backend is not None


# ---------------------------------------------------------------------------- find: as few imports as can be


def imported(*modules):
    return [m for m in modules if m in sys.modules]


def test_a_pin_imports_the_one_plugin_of_that_name(world):
    """USERS 22, 28: a pin means that the others are not even imported."""
    world.backend("npu")
    world.backend("mlu")
    assert names(look(parse_pin("npu"))) == ["npu"]
    assert imported("accel_npu", "accel_mlu") == ["accel_npu"]


def test_a_pin_to_a_built_in_imports_no_plugin(world):
    world.backend("npu")
    world.backend("cpu", distribution="fast-cpu")
    assert [c.distribution for c in look(parse_pin("cpu"))] == ["accel-core"]
    assert imported("accel_npu", "fast_cpu") == []
    assert [c.distribution for c in look(parse_pin("cpu@fast-cpu"))] == ["fast-cpu"]


def test_a_broken_plugin_that_is_pinned_comes_back_alone(world):
    world.plugin("npu", "raise ImportError('broken')")
    world.backend("mlu")
    (found,) = look(parse_pin("npu"))
    assert found.outcome.status is Status.BROKEN
    assert imported("accel_mlu") == []


def test_a_backend_under_another_entry_point_is_still_found(world):
    world.plugin(
        "intel", declaring(arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900))
    )
    assert names(look(parse_pin("xpu.external"))) == ["xpu.external"]
    assert [c.priority for c in look(parse_pin("xpu"))] == [800, 790]


def test_two_claims_to_a_pinned_name_come_back_without_an_import(world):
    world.backend("npu", distribution="accel-npu")
    world.backend("npu", distribution="better-npu")
    found = look(parse_pin("npu"))
    assert sorted(c.distribution for c in found) == ["accel-npu", "better-npu"]
    assert imported("accel_npu", "better_npu") == []
    assert [c.distribution for c in look(parse_pin("npu@Better.NPU"))] == ["better-npu"]
    assert imported("accel_npu", "better_npu") == ["better_npu"]


def test_an_entry_point_in_capitals_is_found_by_the_forgiving_pin(world):
    world.plugin("NPU", declaring(arguments("npu")), distribution="accel-npu")
    assert names(look(parse_pin("Npu"))) == ["npu"]


def test_a_name_that_nobody_declares_finds_nothing(world):
    world.backend("npu")
    assert look(parse_pin("tpu")) == ()
    assert look(parse_pin("npu@other")) == ()


# ---------------------------------------------------------------------------- discovery order
# Candidates stand in a total order, which nothing about the machine changes.


def candidate(name, priority=100, *, device_type="", impersonates="", distribution="", value="v"):
    provenance = Provenance(distribution or f"accel-{name}", "1.0", name, value)
    backend = Backend(
        name=name,
        priority=priority,
        device_type=device_type or name.partition(".")[0],
        in_torch=InTorch(impersonates=impersonates),
        provenance=provenance,
    )
    return Candidate(backend)


def orders(candidates):
    """The ranked names, for many orders in which the candidates may be found."""
    shuffler = random.Random(0)
    if len(candidates) <= 4:
        ways = [list(p) for p in itertools.permutations(candidates)]
    else:
        ways = [shuffler.sample(candidates, len(candidates)) for _ in range(50)]
    return {
        tuple(f"{c.name}@{c.distribution}" if c.name == "same" else c.name for c in rank(way)) for way in ways
    }


def test_priority_then_name_then_distribution():
    """USERS 16: equal priorities must not change from run to run."""
    same = [candidate("same", distribution=d) for d in ("b", "a")]
    assert orders([candidate("zeta", 300), candidate("beta"), candidate("alpha"), *same]) == {
        ("zeta", "alpha", "beta", "same@a", "same@b")
    }


def test_the_builtin_cpu_is_below_every_plugin_of_its_priority():
    """USERS 13, 14: the CPU is the floor, never a rival."""
    cpu = discovery.builtin_candidates()[0]
    assert cpu.name == "cpu"
    assert orders([cpu, candidate("zzz", 0), candidate("aaa", 0)]) == {("aaa", "zzz", "cpu")}


def test_a_broken_plugin_ranks_above_the_cpu_so_that_it_is_reported(world):
    world.plugin("zzz", "raise ImportError")
    assert names(discover()) == ["generic", "zzz", "cpu"]


#: Each name with its priority and what it impersonates, in the order of their rank.
RANKED = {
    # USERS 11, 12: what it impersonates looks usable when it is not.
    "before what it impersonates": [("npu", 700), ("supa", 50, "cuda"), ("cuda", 200), ("mps", 150)],
    "where its own number puts it": [("supa", 900, "cuda"), ("npu", 700), ("cuda", 200)],
    "before every backend of that device type": [
        ("spoof", 1, "xpu"), ("xpu.external", 900), ("xpu", 800),
    ],
    "by their numbers among themselves": [("zz", 20, "cuda"), ("aa", 10, "cuda"), ("cuda", 200)],
    "nothing impersonated is there": [("npu", 700), ("supa", 50, "cuda")],
}  # fmt: skip


@pytest.mark.parametrize("ranked", RANKED.values(), ids=RANKED.keys())
def test_impersonators_stand(ranked):
    found = [candidate(name, number, impersonates="".join(taken)) for name, number, *taken in ranked]
    assert orders(found) == {tuple(name for name, *_ in ranked)}


@pytest.mark.parametrize("circle", ["a10b b20a self15self", "a1b b2c c3a d4a"])
def test_circles_and_selves_end_in_a_total_order(circle):
    rows = [re.fullmatch(r"(\D+)(\d+)(\D+)", each).groups() for each in circle.split()]
    assert len(orders([candidate(name, int(number), impersonates=of) for name, number, of in rows])) == 1


@pytest.mark.parametrize("seed", ["0", "1", "42"])
@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_depends_on_neither_hash_seed_nor_install_order(world, seed, backwards):
    """USERS 16."""
    some = [
        ("npu", {}),
        ("mlu", {}),
        ("supa", {"priority": 1, "in_torch": InTorch(impersonates="mlu")}),
        ("sdaa", {}),
    ]
    for name, fields in reversed(some) if backwards else some:
        world.backend(name, **{"priority": 500, **fields})
    world.backend("npu", distribution="zz-npu")
    code = "import json\nfrom accel_core import discover\nprint(json.dumps([str(c) for c in discover()]))"
    if backwards:  # and the directory's own order reversed
        code = (
            "import os\nreal = os.listdir\nos.listdir = lambda p='.': sorted(real(p), reverse=True)\n" + code
        )
    found = world.child(code, variables={"PYTHONHASHSEED": seed}).answer
    told = " ".join(c.split(" (")[0] + c.partition("(")[2][:2] for c in found)
    assert told == "supaac mluac npuac npuzz sdaaac genericac cpuac"
