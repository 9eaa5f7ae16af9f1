"""A device with less than a GPU, and `TorchAccelerator` over it without an override."""

import json

import pytest
from accel_tests.children import run_python
from accel_tests.on_disk import install_plugin
from accel_tests.on_simulated import environment

from accel_simulated import (
    DEVICES,
)


def test_the_device_has_what_the_page_lists(simulated, the_page_tells):
    """What stands in for the rest is told by its score card."""
    told = simulated("plain", "import json; from simulated_checks import capabilities as c\n"
                     "print(json.dumps([c.of('plain'), list(c.SLOW)]))").answer  # fmt: skip
    the_page_tells("plain", *told)


@pytest.mark.nightly(reason="a training whose device passes its score card by day")
def test_digits_equal_cpu(tmp_path, digits_on_cpu, train_digits):
    name = install_plugin(tmp_path, DEVICES["plain"])
    report = train_digits("plain", name, [tmp_path])
    assert report["backend"] == name
    assert report["parameters_sha256"] == digits_on_cpu["parameters_sha256"]
    assert report["test_accuracy"] == digits_on_cpu["test_accuracy"] > 0.8


def test_accel_info_names_the_replacements(built, tmp_path):
    built("plain")
    name = install_plugin(tmp_path, DEVICES["plain"])
    found = environment("plain", {"DS_ACCELERATOR": name}, path=[tmp_path])

    def info(*arguments, **more):
        return run_python(["-m", "accel_core", "info", *arguments], {**found, **more})

    document = json.loads(info("--json").stdout)
    said = [
        document[key]
        for key in ("streams", "communication_backend", "compile_backend", "problems")
    ]
    assert said == [False, "staged", "aot_eager", {}]
    page = " ".join(info().stdout.split())
    assert "streams not supported (the device has one queue" in page
    assert (
        "communication staged (the device has no collectives, so gloo sends copies in host memory)"
        in page
    )
    wrong = info(ACCEL_COMMUNICATION_BACKEND="gloo")
    assert wrong.returncode == 1
    refusal = " ".join(wrong.stdout.split())
    assert (
        "the communication backend 'gloo' is for cpu and cuda, not for plain" in refusal
    )
