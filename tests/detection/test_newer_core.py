"""A plugin for a newer accel-core than this: whatever it uses, the verdict says what to install."""

import pytest
from accel_tests.asking import judge, only
from accel_tests.plugins import arguments, declaring

from accel_core import __version__
from accel_core.detection import Status

UPGRADE = "pip install --upgrade accel-core"


@pytest.mark.parametrize(
    "source",
    [
        "from accel_core import Heat",
        "import accel_core\nHEAT = accel_core.Heat",
        "from accel_core.heat import Heat",
        "try:\n    from accel_core import Heat\nexcept ImportError as e:\n    raise ValueError('no') from e",
    ],
    ids=["from", "attribute", "module", "in a chain"],
)  # fmt: skip
def test_a_name_that_this_core_does_not_have(torch_world, source):
    torch_world.plugin("npu", f"{source}\n{declaring(arguments('npu'))}")
    found = only("npu")
    assert (found.outcome.status, found.outcome.hint) == (Status.INCOMPATIBLE, UPGRADE)
    assert found.outcome.reason.startswith(f"it needs another accel-core than {__version__}: ")
    assert "eat" in found.outcome.reason
    # The same in the module of its class, which is imported when the device is asked.
    torch_world.module("mlu_device", source)
    torch_world.backend("mlu", accelerator="mlu_device:Device")
    verdict = judge("mlu")
    assert (verdict.status, verdict.hint) == (Status.INCOMPATIBLE, UPGRADE)
    assert "accelerator='mlu_device:Device'" in verdict.reason


@pytest.mark.parametrize("field", ["heat=1", "hardware=Hardware(heat=1)"])
def test_a_field_that_this_core_does_not_have(torch_world, field):
    torch_world.plugin("npu", declaring(f"{arguments('npu')}, {field}"))
    found = only("npu")
    assert (found.outcome.status, found.outcome.hint) == (Status.INCOMPATIBLE, UPGRADE)
    assert "unexpected keyword argument 'heat'" in found.outcome.reason


def test_what_anothers_package_lacks_is_no_matter_of_the_core(world):
    world.plugin("npu", f"from json import heat\n{declaring(arguments('npu'))}")
    assert only("npu").outcome.status is Status.BROKEN
