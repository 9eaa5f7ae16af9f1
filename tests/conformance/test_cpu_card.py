"""The score card of the built-in `cpu`: every check of the kit, ranks too, on what each machine has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accel_testing.children import clean_environment

pytest.importorskip("torch")

import accel_core
from accel_core.conformance.catalogue import checks

#: What the processor does not claim, beside a plugin's distribution: it is the host, and one device.
NOT_CLAIMED = {
    "declaration.entry_point_declares_it",
    "declaration.import_brings_no_torch",
    "declaration.import_writes_no_environment",
    "declaration.import_starts_no_thread",
    "declaration.import_is_quick",
    "declaration.distribution_needs_accel_core",
    "declaration.distribution_tells_about_itself",
    "declaration.wheel_holds_its_package_alone",
    "interface.selection.out_of_range_is_refused",
    "interface.selection.members_refuse_what_is_out_of_range",
    "compute.arithmetic.float64_is_refused_where_it_is_not",
    "compute.randomness.host_is_left_alone",
    "compute.queues.graph_replays_with_new_inputs",
    "compute.queues.capturing_is_told",
} | {check.name for check in checks() if check.group.name == "compute.amounts"}
#: Of host memory: held on the processor as elsewhere.
CLAIMED = {f"compute.amounts.{name}" for name in ("pinned_copies", "pinned_room", "loader_feeds_the_device")}


@pytest.mark.slow
def test_the_processor_keeps_every_promise_that_it_makes(tmp_path: Path) -> None:
    """In one process: importing torch five times, as `accel verify` does, takes longer than the checks."""
    results = tmp_path / "results"
    plugins = ("accel_core.conformance.option", "accel_core.conformance.reporting")
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, "--noconftest",
        *(part for plugin in plugins for part in ("-p", plugin)), "-p", "no:cacheprovider", "-W", "ignore",
        "--import-mode=importlib", "--accel", "cpu", "--accel-results", results,
        *dict.fromkeys(check.group.file for check in checks()),
    ]  # fmt: skip
    # Two devices, as a launcher of two ranks tells: also where all cores are of one NUMA node.
    environ = clean_environment(
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", OMP_NUM_THREADS="1", LOCAL_SIZE="2", LOCAL_RANK="0"
    )
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=400, check=False)
    ended = [line for line in map(json.loads, results.read_text().splitlines()) if "ended" in line]
    names = {check.node: check.name for check in checks()}
    by_outcome: dict[str, set[str]] = {}
    for line in ended:
        by_outcome.setdefault(line["outcome"], set()).add(names[line["ended"]])
    unclaimed = NOT_CLAIMED - CLAIMED
    if not accel_core.accelerator("cpu").is_fp16_supported():
        unclaimed.add("compute.arithmetic.scaled_losses")
    every = {check.name for check in checks()}
    assert by_outcome == {"passed": every - unclaimed, "not claimed": unclaimed}, done.stdout
