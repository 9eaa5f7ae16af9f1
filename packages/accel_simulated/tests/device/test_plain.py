"""A device that has less than a GPU, and `TorchAccelerator` over it without an override."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_tests.on_disk import install_plugin
from accel_tests.on_simulated import environment

from accel_simulated import DEVICES

pytestmark = pytest.mark.slow


def test_stand_ins_serve_for_what_it_lacks(
    simulated: Callable[..., Any], the_page_tells: Callable[..., None]
) -> None:
    answer = simulated("plain", "simulated_checks.plain:stand_ins").answer
    the_page_tells("plain", answer.pop("rows"), answer.pop("more"))
    assert answer == {
        "started by construction": False,
        "elapsed": True,
        "query": True,
        "a stream of torch's": True,
        "pinned": [True, True, False, True],
        "compile": ["aot_eager", [2.0, 2.0, 2.0]],
        "graphs": False,
        "communication": "staged",
    }


@pytest.mark.nightly(reason="a training whose device passes its score card by day")
def test_digits_equal_cpu(
    tmp_path: Path, digits_on_cpu: dict[str, Any], train_digits: Callable[..., dict[str, Any]]
) -> None:
    name = install_plugin(tmp_path, DEVICES["plain"])
    report = train_digits("plain", name, [tmp_path])
    assert report["backend"] == name
    assert report["parameters_sha256"] == digits_on_cpu["parameters_sha256"]
    assert report["test_accuracy"] == digits_on_cpu["test_accuracy"] > 0.8


def test_accel_info_says_what_stands_in(simulated: Callable[..., Any], tmp_path: Path) -> None:
    simulated("plain", "print(0)")  # builds the device, or skips
    name = install_plugin(tmp_path, DEVICES["plain"])
    found = environment("plain", {"DS_ACCELERATOR": name}, path=[tmp_path])

    def info(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "accel_core", "info", *arguments]
        return subprocess.run(command, env={**found, **more}, capture_output=True, text=True, check=False)

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
