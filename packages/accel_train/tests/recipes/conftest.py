"""Programs of libraries on the CPU, on the simulated `acme` and on the real TorchTPU."""

import os
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from accel_tests.children import run_python, without

HERE = Path(__file__).parent
#: The arguments of `accel` that give a program its device.
DEVICES = {"cpu": (), "acme": ("simulate", "acme", "--"), "tpu": ("try", "tpu", "--")}
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
        pytest.skip(
            f"{library} not installed; `./dev recipes` has an environment with it"
        )
    environ = without("ACCEL_", "DS_") | {
        "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "1",
        "ACCEL_SIMULATE_RANDOM": "host",
    }  # fmt: skip
    if (
        device != "tpu"
    ):  # torch would load TorchTPU, which takes the device type that acme needs
        environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if home:
        environ["PYTHONPATH"] = home
    if device == "cpu":
        environ["DS_ACCELERATOR"] = "cpu"
    found = (
        ("-m", "accel_core", *DEVICES[device], sys.executable)
        if DEVICES[device]
        else ()
    )
    with tempfile.TemporaryDirectory() as scratch:
        environ["YOLO_CONFIG_DIR"] = scratch
        done = run_python(
            [*found, str(HERE / f"of_{library}.py")], environ, timeout=300
        )
    return done.answer
