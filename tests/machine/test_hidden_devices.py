"""Which variable hides every device."""

from dataclasses import replace

import pytest

from accel_core.backend import Backend, Visibility
from accel_core.hardware.visible_devices import (
    hidden_by,
)

NAMES = ("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
CARD = Backend(
    name="mlu",
    priority=1,
    device_type="mlu",
    visibility=Visibility(NAMES, grammar="mlu"),
)
GAUDI = replace(
    CARD, visibility=Visibility(("HABANA_VISIBLE_MODULES",), grammar="modules")
)


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"PATH": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides every device"),
        (
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "CUDA_VISIBLE_DEVICES='-1' hides every device: '-1' ends the list",
        ),
        ({"CUDA_VISIBLE_DEVICES": "0,-1"}, None),
        # The first variable that is set counts.
        ({"CN_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""}, None),
        (
            {"MLU_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "0"},
            "MLU_VISIBLE_DEVICES='' hides every device",
        ),
    ],
)
def test_the_variable_that_hides_every_device_is_named(environ, reason):
    assert hidden_by(CARD, environ) == reason


def test_a_value_that_the_vendor_refuses_hides_every_device():
    reason = hidden_by(GAUDI, {"HABANA_VISIBLE_MODULES": ""})
    assert reason.startswith("HABANA_VISIBLE_MODULES='' is not valid: ")
    assert "module ids from 0 to 7" in reason
