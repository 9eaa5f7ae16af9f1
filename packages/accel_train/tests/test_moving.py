"""`keep_parameters` where nothing is to be done; session tpu_real has the device that needs it."""

import pytest

pytest.importorskip("torch")

from accel_tests.on_simulated import run_on

from accel_simulated import CannotBuildError

MOVED = """
import json, torch
import accel_core
from accel_train.moving import keep_parameters
before = torch.get_rng_state()
for acc in (accel_core.accelerator("cpu"), accel_core.get_accelerator()):
    keep_parameters(acc)
untouched = bool((torch.get_rng_state() == before).all())
print(json.dumps([acc.device_type, torch.__future__.get_swap_module_params_on_conversion(), untouched]))
"""


def test_a_device_that_keeps_parameters_leaves_torchs_setting_and_draws_nothing():
    try:
        device, swaps, untouched = run_on("acme", MOVED).answer
    except CannotBuildError as error:
        pytest.skip(str(error))
    assert (device, swaps, untouched) == ("acme", False, True)
