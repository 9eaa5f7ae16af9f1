"""The plugin for mps on simulated Metal, of torch 2.13 and of older releases."""

from pathlib import Path

import pytest
from accel_tests.cards import run_card
from accel_tests.on_disk import install_real_plugin
from accel_tests.on_simulated import environment

PROGRAMS = Path(__file__).with_name("programs")

MEGABYTE = 1 << 20


@pytest.fixture
def on_metal(tmp_path, simulated):
    """`on_metal(code, old=...)`: the answer of a process on simulated Metal, of an old or a new torch."""
    install_real_plugin(tmp_path, "mps")

    def run(code, *, old):
        environ = {"ACCEL_SIMULATE_OLD_METAL": "1"} if old else {}
        return simulated("mps", code, environ=environ, path=[tmp_path]).answer

    return run


def test_an_old_metal_counts_no_peaks_and_its_drivers_cache_stays_after_a_reset(
    on_metal,
):
    found = on_metal(PROGRAMS / "metal_peaks.py", old=True)
    assert min(found["peaks"]) >= MEGABYTE
    assert found["after reset"] >= MEGABYTE
    assert found["keys of peaks"] == []


def test_a_new_metal_counts_peaks_which_start_again_after_a_reset(on_metal):
    found = on_metal(PROGRAMS / "metal_peaks.py", old=False)
    assert min(found["peaks"]) >= MEGABYTE
    assert found["after reset"] < MEGABYTE
    assert found["keys of peaks"] != []


@pytest.mark.parametrize("old", [True, False], ids=["old", "new"])
def test_pinned_host_memory_on_metal_is_on_the_cpu_and_equal(on_metal, old):
    found = on_metal(PROGRAMS / "metal_pinned_memory.py", old=old)
    assert found["pinned"] == [True, True, True, True, True]
    assert found["devices"] == ["cpu", "cpu", "cpu", "cpu", "cpu"]
    assert found["copies are equal"] == [True, True]


def test_a_known_wrong_gradient_is_expected_by_the_kit_and_told_by_the_frameworks(
    simulated,
):
    check = "compute.randomness.checkpointing_draws_the_same"
    card = run_card("mps", environment("mps"), only=(check,))
    assert card["outcomes"] == {check: "expected failure"}
    words = card["reasons"][check]
    said = simulated("mps", PROGRAMS / "metal_checkpoint_warning.py").answer
    assert said["warnings of Transformers"] == [
        f"gradient_checkpointing=True on mps: {words}"
    ]
    assert words in said["limits for DeepSpeed"]


def test_the_gradient_is_wrong_with_dropout_inside_of_a_checkpoint_and_right_outside_as_advised(
    simulated,
):
    assert simulated("mps", PROGRAMS / "metal_checkpointed_dropout.py").answer == {
        "inside": False,
        "outside": True,
    }
