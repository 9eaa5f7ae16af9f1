"""Devices that have less than a GPU: `TorchAccelerator` over one without an override, and Metal."""

import json

import pytest
from accel_tests.cards import run_card
from accel_tests.children import run_python
from accel_tests.on_disk import install_plugin, install_real_plugin
from accel_tests.on_simulated import environment

from accel_simulated import DEVICES

# ---------------------------------------------------------------------------- plain
# A device that has less than a GPU, and `TorchAccelerator` over it without an override.


def test_the_page_tells_what_it_has(simulated, the_page_tells):
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


def test_accel_info_says_what_stands_in(built, tmp_path):
    built("plain")
    name = install_plugin(tmp_path, DEVICES["plain"])
    found = environment("plain", {"DS_ACCELERATOR": name}, path=[tmp_path])

    def info(*arguments, **more):
        return run_python(["-m", "accel_core", "info", *arguments], {**found, **more})

    document = json.loads(info("--json").stdout)
    said = [document[key] for key in ("streams", "communication_backend", "compile_backend", "problems")]
    assert said == [False, "staged", "aot_eager", {}]
    page = " ".join(info().stdout.split())
    assert "streams not supported (one queue" in page
    assert "communication staged (the device has no collectives: through host memory, over gloo)" in page
    wrong = info(ACCEL_COMMUNICATION_BACKEND="gloo")
    assert wrong.returncode == 1
    assert "the communication backend 'gloo' is for cpu and cuda, not for plain" in " ".join(
        wrong.stdout.split()
    )


# ---------------------------------------------------------------------------- metal
# The plugin for mps on Metal as torch has it from 2.13 on, and as it was before.


MEGABYTE = 1 << 20
CODE = """
import json
import torch
import accel_core

acc = accel_core.accelerator("mps")
torch.empty(1 << 20, dtype=torch.uint8, device="mps")
acc.memory_allocated()
peaks = [acc.max_memory_allocated(), acc.max_memory_reserved(), acc.max_memory_cached()]
acc.reset_peak_memory_stats()
acc.reset_max_memory_allocated()
acc.reset_max_memory_cached()
keys = [key for key in acc.memory_stats() if key.endswith("_bytes.all.peak")]
host = torch.arange(6.0).view(2, 3)
made = [acc.pin_memory(host), acc.pin_memory(host.to("mps")), acc.pin_memory(host, make_copy=False),
        acc.pin_empty(2, 3, dtype=torch.int8), acc.pin_empty_like(host)]
there = [acc.is_pinned(tensor) and tensor.device.type == "cpu" for tensor in made]
equal = [torch.equal(tensor, host) for tensor in made[:2]]
print(json.dumps([peaks, acc.max_memory_allocated(), bool(keys), there, equal]))
"""


@pytest.mark.parametrize("old", [True, False])
def test_peaks_and_host_memory(old, tmp_path, simulated):
    install_real_plugin(tmp_path, "mps")
    environ = {"ACCEL_SIMULATE_OLD_METAL": "1"} if old else {}
    peaks, after, has_keys, there, equal = simulated("mps", CODE, environ=environ, path=[tmp_path]).answer
    assert min(peaks) >= MEGABYTE
    # What the driver holds stays in its cache; a peak that is counted starts again.
    assert (after >= MEGABYTE) is old
    assert has_keys is not old
    assert there == [True] * 5
    assert equal == [True, True]


#: As a public report has it: https://github.com/pytorch/pytorch/issues/194478
WARNED = """
import accel_core, json, warnings
from accel_train.deepspeed._limits import limits
from accel_train.transformers import _warn_of_checkpointing

acc = accel_core.get_accelerator()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    _warn_of_checkpointing(acc)
print(json.dumps([[str(each.message) for each in caught], limits(acc)]))
"""


def test_a_known_wrong_gradient_is_told_and_the_kit_expects_it(simulated):
    check = "compute.randomness.checkpointing_draws_the_same"
    card = run_card("mps", environment("mps"), only=(check,))
    assert card["outcomes"] == {check: "expected failure"}
    words = card["reasons"][check]
    warned, limits = simulated("mps", WARNED).answer
    assert warned == [f"gradient_checkpointing=True on mps: {words}"]
    assert words in limits
