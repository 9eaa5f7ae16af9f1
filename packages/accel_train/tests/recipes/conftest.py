"""Programs of libraries on the CPU, on the simulated `acme` and on the real TorchTPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accel_tests.children import without

HERE = Path(__file__).parent
#: The arguments of `accel` that give a program its device.
DEVICES = {
    "cpu": (),
    "acme": ("simulate", "acme", "--"),
    "tpu": ("try", "tpu", "--"),
}


@pytest.fixture(scope="session")
def ran() -> Callable[..., dict[str, Any]]:
    """`ran("of_kornia", "acme")`: what the program of that name reports; it runs once a device."""
    answers: dict[tuple[str, str], dict[str, Any]] = {}

    def run(program: str, device: str) -> dict[str, Any]:
        if (program, device) not in answers:
            answers[program, device] = _run(program, device)
        return answers[program, device]

    return run


def _run(program: str, device: str) -> dict[str, Any]:
    environ = without("ACCEL_", "DS_") | {
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "ACCEL_SIMULATE_RANDOM": "host",
    }
    if device != "tpu":  # torch would load TorchTPU, which takes the device type that acme needs
        environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if device == "cpu":
        environ["DS_ACCELERATOR"] = "cpu"
    found = (str(Path(sys.executable).with_name("accel")), *DEVICES[device]) if DEVICES[device] else ()
    done = subprocess.run(
        [*found, sys.executable, str(HERE / f"{program}.py")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{program} on {device}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
