"""Simulated modules have exactly the names and parameters in the vendors' surface files."""

import pytest

from accel_simulated import OWN_DEVICES

pytestmark = pytest.mark.nightly(
    reason="promises of the simulator, which nobody trains on"
)


@pytest.mark.parametrize("vendor", [name for name in OWN_DEVICES if name != "acme"])
def test_modules_have_the_names_and_parameters_of_the_vendor(vendor, life):
    problems = life(vendor)["offered"]
    assert not problems, "\n".join(problems)


def test_a_wrong_name_and_a_wrong_parameter_are_found():
    from simulated_checks.offered import beyond

    told = {"torch.mlu": {"no_such_name": 0, "set_device": lambda index: None}}
    missing, wrong = beyond("mlu", told)
    assert missing == "torch.mlu.no_such_name: not in the surface file"
    assert wrong.startswith("torch.mlu.set_device: has [('index', ")
