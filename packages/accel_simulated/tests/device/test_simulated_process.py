"""A process with a simulated device: how it shows the device, and when it cannot have it."""

import json
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.parametrize(
    ("device", "name", "product"),
    [("acme", "generic", "Simulated ACME"), ("cuda", "cuda", "Simulated CUDA")],
)
def test_a_command_that_accel_simulate_starts_has_the_device(
    device, name, product, built
):
    """Chosen without a pin, though this machine has no sign of such hardware."""
    built(device)
    words = [
        "-m",
        "accel_core",
        "simulate",
        f"{device}:3",
        "--",
        "python",
        str(PROGRAMS / "chosen_device.py"),
    ]
    ended = run_python(words, clean_environment()).succeeded()
    reported = json.loads(ended.stdout)
    assert reported["name"] == name
    assert reported["device 2"] == f"{device}:2"
    assert reported["device name 0"] == f"{device}:0"
    assert reported["product"] == product
    assert reported["repr"].endswith(
        f", simulated: {device}:3 by accel-simulated 0.1.0>"
    )
    assert reported["description"].endswith(f"; simulated, no real device: {device}:3")
    assert reported["recorded variable"] == f"{device}:3"
    assert reported["selection shows the variable"] is True


TAKEN = """
import torch
torch.utils.rename_privateuse1_backend("tpu")
try: import torch_acme
except RuntimeError as error: print(type(error).__name__, error)
"""


def test_a_device_that_another_package_has_registered_is_named(simulated):
    said = (
        simulated("acme", TAKEN, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        .ended[0]
        .stdout
    )
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='acme:2': another package has registered its "
    )
    assert "(tpu)" in said
