"""A pin imports as few plugins as can be."""

import sys

from accel_tests.asking import look, names
from accel_tests.plugins import arguments, declaring

from accel_core.settings import parse_pin
from accel_core.verdict import Status


def imported(*modules):
    return [m for m in modules if m in sys.modules]


def test_a_pin_imports_the_one_plugin_of_that_name(world):
    """On a CPU node another vendor's plugin prints driver errors, or takes minutes: it is not imported."""
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
    assert found.status is Status.BROKEN
    assert imported("accel_mlu") == []


def test_a_backend_under_another_entry_point_is_still_found(world):
    world.plugin(
        "intel",
        declaring(
            arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900)
        ),
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
