"""Plugins on disk become candidates."""

import pytest
from accel_tests import layouts, plugins
from accel_tests.asking import discovered, names
from accel_tests.plugins import arguments, declaring

from accel_core import Provenance, discover


def test_without_plugins_there_are_the_two_built_in_backends(world):
    assert names(discover()) == ["generic", "cpu"]
    assert all(c.builtin and c.distribution == "accel-core" for c in discover())


@pytest.mark.parametrize(
    "layout",
    [layouts.dist_info, layouts.egg_info, layouts.editable],
    ids=lambda layout: layout.__name__,
)
def test_a_plugin_becomes_a_candidate_with_its_provenance(world, layout):
    world.plugin("npu", declaring(arguments("npu")), version="1.2", layout=layout)
    world.set_path([world.site, world.root / "accel-npu-checkout" / "src"])
    found = discovered("npu")
    assert found.provenance == Provenance("accel-npu", "1.2", "npu", "accel_npu")
    assert found.backend.provenance == found.provenance
    assert not found.builtin
    assert str(found) == "npu (accel-npu 1.2): not probed"


def test_one_plugin_may_declare_several_backends_and_one_alone(world):
    world.plugin(
        "xpu",
        declaring(
            arguments("xpu", 800), arguments("xpu", 790), arguments("xpu.external", 900)
        ),
    )
    one = f"{plugins.HEAD}\n@hookimpl\ndef accel_backends():\n    return Backend({arguments('npu', 1)})\n"
    world.plugin("npu", one)
    ranked = [f"{c.name} {c.priority}" for c in discover()]
    assert ranked[:4] == ["xpu.external 900", "xpu 800", "xpu 790", "generic 100"]
    assert discovered("npu").priority == 1


def test_one_declaration_given_twice_is_one_candidate(world):
    world.plugin("npu", declaring(arguments("npu"), arguments("npu")))
    assert names(discover()).count("npu") == 1


def test_an_entry_point_may_name_an_object_in_a_module(world):
    source = declaring(arguments("npu")).replace(
        "@hookimpl\ndef accel_backends():",
        "class Hooks:\n  @staticmethod\n  @hookimpl\n  def accel_backends():",
    )
    world.plugin("npu", source, value="accel_npu:Hooks")
    assert discovered("npu").backend is not None
