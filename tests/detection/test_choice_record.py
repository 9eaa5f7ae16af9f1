"""What the record of a choice says."""

import json
import os

import pytest
from accel_tests.asking import chosen

import accel_core
from accel_core.hardware import bus, vendors


def test_the_record_is_kept_printable_and_json(several, monkeypatch):
    """A run that went to the CPU can be explained later: what was chosen, when, in which environment."""
    monkeypatch.setenv("ACCEL_BLOCK", "sdaa")
    accel_core.get_accelerator()
    record = accel_core.selection()
    assert record is accel_core.selection()
    data = json.loads(json.dumps(record.to_dict()))
    assert data["chosen"] == "mlu"
    assert data["how"] == "ranked"
    assert data["distribution"] == "accel-mlu"
    assert data["version"] == "1.0"
    assert data["pid"] == os.getpid()
    assert data["environ"] == {"ACCEL_BLOCK": "sdaa"}
    assert data["ms"] > 0
    # Of sdaa, which is blocked, the plugin is not imported: its priority is not known.
    assert [v["name"] for v in data["verdicts"]] == [
        "npu",
        "mlu",
        "generic",
        "sdaa",
        "cpu",
    ]
    text = str(record)
    for line in (
        "mlu (accel-mlu 1.0): the highest-ranking usable one.",
        "  npu (accel-npu 1.0): no device: nothing on the bus",
        "  sdaa (accel-sdaa 1.0): blocked: ACCEL_BLOCK names it.",
        "Variables: ACCEL_BLOCK='sdaa'",
        f"Chosen by process {os.getpid()} in ",
    ):
        assert line in text
    assert "mlu (accel-mlu 1.0): usable" not in text


@pytest.mark.parametrize(
    ("pin", "how"),
    [
        ("mlu", "pinned by DS_ACCELERATOR"),
        ("npu,mlu", "the first usable one of DS_ACCELERATOR's list"),
    ],
)
def test_the_record_says_how(several, pin, how):
    assert how in str(chosen(DS_ACCELERATOR=pin))


def test_a_failed_choice_has_a_record_too(several):
    found = chosen(DS_ACCELERATOR="tpu")
    assert str(found).startswith(
        "No backend could be chosen. DS_ACCELERATOR='tpu': no installed"
    )
    assert json.loads(json.dumps(found.to_dict()))["chosen"] is None


def test_hardware_without_a_plugin_is_in_the_printed_record(torch_world, monkeypatch):
    known = vendors.Vendor(
        "NVIDIA GPU", "cuda", evidence=bus.Evidence(nodes=("/dev/nvidia0",))
    )
    monkeypatch.setattr(vendors, "known_hardware", lambda: (known,))
    assert "NVIDIA GPU is present" in str(chosen())
