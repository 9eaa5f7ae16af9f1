"""A plugin for a newer accel-core than this: whatever it uses, the verdict says what to install."""

import pytest
from accel_tests.asking import discovered, judge
from accel_tests.plugins import arguments, declaring

from accel_core import Status, Verdict, __version__

UPGRADE = "pip install --upgrade accel-core"


#: Source that uses a name of a newer accel-core, and the part of the error that names it.
NEWER = {
    "from": ("from accel_core import Heat", "'Heat'"),
    "attribute": ("import accel_core\nHEAT = accel_core.Heat", "'Heat'"),
    "module": ("from accel_core.heat import Heat", "'accel_core.heat'"),
    "in a chain": (
        "try:\n    from accel_core import Heat\nexcept ImportError as e:\n    raise ValueError('no') from e",
        "'Heat'",
    ),
}


@pytest.mark.parametrize(("source", "missing"), NEWER.values(), ids=NEWER)
def test_a_plugin_that_needs_a_newer_core_is_incompatible(torch_world, source, missing):
    torch_world.plugin("npu", f"{source}\n{declaring(arguments('npu'))}")
    found = discovered("npu")
    assert found.backend is None
    assert found.status is Status.INCOMPATIBLE
    assert found.reason.startswith(
        f"needs a version of accel-core other than {__version__} ("
    )
    assert missing in found.reason
    assert found.hint == UPGRADE


@pytest.mark.parametrize(("source", "missing"), NEWER.values(), ids=NEWER)
def test_an_accelerator_class_that_needs_a_newer_core_is_incompatible(
    torch_world, source, missing
):
    torch_world.module("mlu_device", source)
    torch_world.backend("mlu", accelerator="mlu_device:Device")
    assert isinstance(discovered("mlu"), Verdict), (
        "the declaration alone needs nothing newer"
    )
    verdict = judge("mlu")
    assert verdict.status is Status.INCOMPATIBLE
    assert "accelerator='mlu_device:Device'" in verdict.reason
    assert missing in verdict.reason
    assert verdict.hint == UPGRADE


@pytest.mark.parametrize("field", ["heat=1", "hardware=Hardware(heat=1)"])
def test_a_field_that_this_core_does_not_have(torch_world, field):
    torch_world.plugin("npu", declaring(f"{arguments('npu')}, {field}"))
    found = discovered("npu")
    assert found.backend is None
    assert found.status is Status.INCOMPATIBLE
    assert found.hint == UPGRADE
    assert "unexpected keyword argument 'heat'" in found.reason


def test_what_anothers_package_lacks_is_no_matter_of_the_core(world):
    world.plugin("npu", f"from json import heat\n{declaring(arguments('npu'))}")
    assert discovered("npu").status is Status.BROKEN
