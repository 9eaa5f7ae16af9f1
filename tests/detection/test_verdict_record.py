"""A verdict in words and as JSON."""

import json
from dataclasses import replace

from accel_tests.asking import judge

from accel_core import discover
from accel_core.verdict import Reason, Status, Why


def test_a_verdict_is_printable_and_json(torch_world):
    torch_world.backend(
        "npu",
        description="a device",
        url="https://example.org",
        vendor_import=("json", "torch"),
    )
    found = judge()
    record = json.loads(json.dumps(found.to_dict()))
    assert record["name"] == "npu"
    assert record["distribution"] == "accel-npu"
    assert record["entry_point"] == "accel_npu"
    assert record["vendor_import"] == ["json", "torch"]
    assert record["status"] == "usable"
    assert record["description"] == "a device"
    assert record["url"] == "https://example.org"
    assert str(found) == "npu (accel-npu 1.0): usable"
    backend = next(v for v in discover() if v.name == "npu")
    why = Why(Reason.PLUGIN_ANSWERS, {"text": "none", "step": "look again"})
    answered = replace(backend, status=Status.NO_DEVICE, why=why)
    assert str(answered) == "npu (accel-npu 1.0): no device: none. look again"
