"""`accel bench` on simulated devices: one with all that a GPU has, one with less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_tests.on_disk import install_plugin

from accel_simulated import DEVICES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly(reason="runs accel bench, whose parts accel-tools tests by day, on devices"),
]

RUN = """
import sys
from accel_tests.bench_effort import TINY
from accel_core.cli import main
from accel_tools.commands import bench
bench.QUICK = TINY
sys.argv = ["accel", "bench", "--quick", "--json", *sys.argv[1:]]
main()
"""


@pytest.fixture
def measured(simulated: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`measured(vendor, *arguments)`: the measurements by name."""

    def run(vendor: str, *arguments: str) -> dict[str, Any]:
        name = install_plugin(tmp_path, DEVICES[vendor])
        done = simulated(vendor, RUN, *arguments, environ={"DS_ACCELERATOR": name}, path=[tmp_path])
        document = json.loads(done.ended[0].stdout)
        assert document["accelerator"]["device"] == f"{vendor}:0"
        return {row["name"]: row for row in document["measurements"]}

    return run


def test_everything_is_measured_and_three_ranks_share_two_devices(measured: Callable[..., Any]) -> None:
    rows = measured("acme", "--ranks", "3")
    assert {name: row["reason"] for name, row in rows.items() if row["value"] is None} == {}
    assert rows["copy.both_ways"]["work"] == 2 * 65536
    assert rows["copy.to_next"]["size"] == "64 KiB, 0 to 1"
    shared = {rows[f"collective.{kind}"]["note"] for kind in ("all_reduce", "broadcast")}
    assert shared == {"3 ranks over accl on 2 devices, which they share"}
    assert rows["collective.all_reduce"]["work"] == pytest.approx(4 / 3 * 4096)


def test_what_a_device_lacks_is_a_row_with_the_reason(measured: Callable[..., Any]) -> None:
    rows = measured("plain", "--ranks", "1")
    locked = "simulated_plain has no page-locked memory"
    assert {name: row["reason"] for name, row in rows.items() if row["value"] is None} == {
        "copy.to_device.pinned": locked,
        "copy.to_host.pinned": locked,
        "copy.both_ways": "simulated_plain has one queue, so copies do not overlap",
        "collective.all_reduce": "one rank has no other rank to send to",
        "collective.broadcast": "one rank has no other rank to send to",
    }
