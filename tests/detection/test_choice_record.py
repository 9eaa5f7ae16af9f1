"""What the record of a choice says."""

import json
import os

import pytest
from accel_tests.asking import chosen

import accel_core
from accel_core.hardware import bus, vendors


@pytest.fixture
def record(several, monkeypatch):
    """The record of a choice of mlu, where npu has no device and sdaa is blocked."""
    monkeypatch.setenv("ACCEL_BLOCK", "sdaa")
    accel_core.get_accelerator()
    return accel_core.selection()


def test_the_record_is_kept(record):
    assert accel_core.selection() is record


def test_the_record_as_json_says_what_was_chosen_when_and_in_which_environment(record):
    """A run that went to the CPU can be explained later."""
    data = json.loads(json.dumps(record.to_dict()))
    assert data["chosen"] == "mlu"
    assert data["how"] == "ranked"
    assert data["distribution"] == "accel-mlu"
    assert data["version"] == "1.0"
    assert data["pid"] == os.getpid()
    assert data["environ"] == {"ACCEL_BLOCK": "sdaa"}
    assert data["ms"] > 0


def test_the_verdicts_of_the_record_are_in_the_order_of_their_rank(record):
    """Of sdaa, which is blocked, the plugin is not imported: its priority is not known."""
    verdicts = record.to_dict()["verdicts"]
    ranked = ["npu", "mlu", "generic", "sdaa", "cpu"]
    assert [verdict["name"] for verdict in verdicts] == ranked


@pytest.mark.parametrize(
    "line",
    [
        "mlu (accel-mlu 1.0): the usable backend with the highest priority.",
        "  npu (accel-npu 1.0): no device: nothing on the bus",
        "  sdaa (accel-sdaa 1.0): blocked: excluded by ACCEL_BLOCK.",
        "Variables: ACCEL_BLOCK='sdaa'",
        f"Chosen by process {os.getpid()} in ",
    ],
    ids=["chosen", "no device", "blocked", "variables", "process"],
)
def test_the_printed_record_has_a_line_on(record, line):
    assert line in str(record)


def test_the_printed_record_names_what_was_chosen_in_its_first_line_alone(record):
    assert "mlu (accel-mlu 1.0): usable" not in str(record)


@pytest.mark.parametrize(
    ("pin", "how"),
    [
        ("mlu", "pinned by DS_ACCELERATOR"),
        ("npu,mlu", "the first usable backend in DS_ACCELERATOR"),
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
