"""`accel bench` on a simulated device with all that a GPU has."""

import json
from pathlib import Path

import pytest
from accel_tests.on_disk import install_plugin

from accel_simulated import DEVICES

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.nightly(
    reason="runs accel bench, whose parts accel-tools tests by day, on devices"
)


def test_everything_is_measured_and_three_ranks_share_two_devices(simulated, tmp_path):
    variables = {"DS_ACCELERATOR": install_plugin(tmp_path, DEVICES["acme"])}
    done = simulated(
        "acme",
        PROGRAMS / "tiny_bench.py",
        "--ranks",
        "3",
        environ=variables,
        path=[tmp_path],
    )
    document = json.loads(done.ended[0].stdout)
    assert document["accelerator"]["device"] == "acme:0"
    rows = {row["name"]: row for row in document["measurements"]}
    assert {
        name: row["reason"] for name, row in rows.items() if row["value"] is None
    } == {}
    assert rows["copy.both_ways"]["work"] == 2 * 65536
    assert rows["copy.to_next"]["size"] == "64 KiB, 0 to 1"
    shared = {
        rows[f"collective.{kind}"]["note"] for kind in ("all_reduce", "broadcast")
    }
    assert shared == {"3 ranks over accl, sharing 2 devices"}
    assert rows["collective.all_reduce"]["work"] == pytest.approx(4 / 3 * 4096)
