"""Plugins on disk become candidates, and a pin imports as few of them as can be."""

import sys

import pytest
from accel_tests import layouts, plugins
from accel_tests.asking import look, names, only
from accel_tests.plugins import arguments, declaring

from accel_core.backend import Provenance
from accel_core.detection import Status
from accel_core.detection.select import discover
from accel_core.settings import parse_pin


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
