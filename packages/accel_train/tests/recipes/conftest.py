"""Programs of libraries on the CPU, on the simulated `acme` and on the real TorchTPU."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from accel_tests.children import without

HERE = Path(__file__).parent
#: The arguments of `accel` that give a program its device.
DEVICES = {
    "cpu": (),
    "acme": ("simulate", "acme", "--"),
    "tpu": ("try", "tpu", "--"),
}
#: Lie in a folder with torchvision, as other libraries would import it without our crutch (`vision.py`).
NEED_TORCHVISION = ("easyocr", "open_clip", "timm", "ultralytics")
VISION = os.environ.get("ACCEL_RECIPES_VISION", "nowhere")


@pytest.fixture(scope="session")
def ran():
    """`ran("kornia", "acme")`: what that library's program reports; it runs once a device."""
    answers = {}

    def run(library, device):
        if (library, device) not in answers:
            answers[library, device] = _run(library, device)
        return answers[library, device]

    return run


def _run(library, device):
    home = VISION if library in NEED_TORCHVISION else None
    if not PathFinder.find_spec(library, home and [home]):
        pytest.skip(f"{library} not installed; `./dev recipes` has an environment with it")
    environ = without("ACCEL_", "DS_") | {
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "YOLO_OFFLINE": "1",
        "ACCEL_SIMULATE_RANDOM": "host",
    }
    if device != "tpu":  # torch would load TorchTPU, which takes the device type that acme needs
        environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if home:
        environ["PYTHONPATH"] = home
    if device == "cpu":
        environ["DS_ACCELERATOR"] = "cpu"
    found = (str(Path(sys.executable).with_name("accel")), *DEVICES[device]) if DEVICES[device] else ()
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*found, sys.executable, str(HERE / f"of_{library}.py")],
            env=environ | {"YOLO_CONFIG_DIR": scratch},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, f"{library} on {device}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
