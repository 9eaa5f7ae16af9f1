"""The real TorchTPU without its plugin: torch.accelerator serves what TorchTPU keeps for torch."""

import os

import pytest
from accel_tests.children import run_python
from tpu_card import HERE, variables


def trained(**more):
    """Give what `generic_training.py` prints."""
    environ = {**os.environ, **variables(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return run_python([str(HERE / "generic_training.py")], {**environ, **more}).answer


@pytest.fixture(scope="module")
def report():
    """What the program reports of its accelerator and its training."""
    return trained()


def test_the_device_is_torchtpus(report):
    assert report["name"] == "generic"
    assert report["device"] == "tpu"
    assert report["devices"] == 4


def test_the_compiler_is_torchtpus(report):
    assert report["compiler"] == "tpu"


def test_a_model_trains(report):
    first, second, third = report["losses"]
    assert first > second
    assert second > third


def test_what_torchtpu_refuses_is_listed(report):
    assert {"device_count", "get_rng_state"} <= set(report["refused"])


def test_legacy_device_apis_are_not_needed(report):
    again = trained(TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS="1")
    for key in ("name", "device", "devices", "compiler"):
        assert again[key] == report[key]
