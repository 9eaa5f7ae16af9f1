"""Verdicts with the real TorchTPU installed and no TPU: none, broken libraries, and `accel try`."""

import os

import pytest
from accel_tests.children import run_python
from tpu_card import HERE

from accel_tpu.library import LIBRARY_VARIABLE

CHOSEN = (
    "import accel_core, json; acc = accel_core.get_accelerator();"
    "v, = [v for v in accel_core.selection().verdicts if v.name == 'tpu'];"
    "print(json.dumps([acc.name, v.status.value, v.reason, v.hint]))"
)


def answer(code, **more):
    environ = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        **more,
    }
    return run_python(["-c", code], environ).answer


def test_without_a_tpu_the_processor_is_chosen():
    """Nothing of TorchTPU is imported, and libtpu is not waited for."""
    name, status, reason, _ = answer(CHOSEN)
    assert name == "cpu"
    assert status == "no_device"
    assert reason.startswith("no Google TPU found (looked for PCI 1ae0:005e")


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("/nowhere/libpjrt.so", "does not exist"),
        (None, "is not a PJRT library: the function GetPjrtApi is missing"),
    ],
)
def test_a_library_that_would_end_the_process_is_a_verdict(library, words):
    """TorchTPU aborts where it cannot load it; here the program goes on."""
    library = library or str(HERE / "conftest.py")
    name, status, reason, hint = answer(CHOSEN, **{LIBRARY_VARIABLE: library})
    assert name == "cpu"
    assert status == "no_device"
    assert reason == f"{LIBRARY_VARIABLE}={library!r} {words}"
    assert "unset TPU_LIBRARY_PATH" in hint


def test_try_says_what_it_runs_on():
    done = run_python(
        ["-m", "accel_core", "try", "tpu", "--", "accel", "list"], os.environ
    ).succeeded()
    assert done.stderr.startswith("TorchTPU on XLA's CPU library: /")
    words = " ".join(done.stdout.split())
    assert (
        "TorchTPU runs on libpjrt_cpu.so (TPU_LIBRARY_PATH) instead of libtpu" in words
    )
