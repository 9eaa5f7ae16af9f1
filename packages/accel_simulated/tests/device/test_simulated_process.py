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
def test_the_command_gives_the_device_to_all_that_it_starts(
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
        "-c",
        PROGRAMS / "chosen_device.py",
    ]
    ended = run_python(words, clean_environment()).succeeded()
    chosen, last, shown, called, text, described, *told = json.loads(ended.stdout)
    assert (chosen, last, shown) == (name, f"{device}:2", f"{device}:0")
    assert called == product
    assert text.endswith(f", simulated: {device}:3 by accel-simulated 0.1.0>")
    assert described.endswith(f"; simulated, no real device: {device}:3")
    assert told == [f"{device}:3", True]


TAKEN = """
import torch
torch.utils.rename_privateuse1_backend("tpu")
try: import torch_acme
except RuntimeError as error: print(type(error).__name__, error)
"""


def test_another_package_has_torchs_one_place(simulated):
    said = (
        simulated("acme", TAKEN, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
        .ended[0]
        .stdout
    )
    assert said.startswith(
        "BackendConflictError ACCEL_SIMULATE='acme:2': another package has registered its "
    )
    assert "(tpu)" in said
