"""A verdict in words and as JSON."""

import json
from dataclasses import replace

import pytest
from accel_tests.asking import judge

from accel_core import discover
from accel_core.verdict import Reason, Status, Why


@pytest.fixture
def usable(torch_world):
    torch_world.backend(
        "npu",
        description="a device",
        url="https://example.org",
        vendor_import=("json", "torch"),
    )
    return judge()


def test_a_verdict_as_json_has_the_plugin_and_what_it_declares(usable):
    record = json.loads(json.dumps(usable.to_dict()))
    assert record["name"] == "npu"
    assert record["distribution"] == "accel-npu"
    assert record["entry_point"] == "accel_npu"
    assert record["vendor_import"] == ["json", "torch"]
    assert record["status"] == "usable"
    assert record["description"] == "a device"
    assert record["url"] == "https://example.org"


def test_a_usable_verdict_prints_its_plugin(usable):
    assert str(usable) == "npu (accel-npu 1.0): usable"


def test_a_verdict_without_a_device_prints_the_reason_and_the_next_step(torch_world):
    torch_world.backend("npu")
    backend = next(v for v in discover() if v.name == "npu")
    why = Why(Reason.PLUGIN_ANSWERS, {"text": "none", "step": "look again"})
    answered = replace(backend, status=Status.NO_DEVICE, why=why)
    assert (
        str(answered) == "npu (accel-npu 1.0): no device: none. Next step: look again"
    )
