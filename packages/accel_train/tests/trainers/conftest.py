"""Training with Lightning and Accelerate, on the CPU and on the simulated `acme`."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from accel_tests.children import UNTRACED, clean_environment

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from accel_tests.on_disk import install_strangers  # noqa: E402 - found by the line above
from accel_tests.on_simulated import environment, run_on  # noqa: E402

#: torchrun with two ranks on this host.
TORCHRUN = """
import runpy, sys
sys.argv[1:1] = ["--standalone", "--nproc-per-node", "2"]
runpy.run_module("torch.distributed.run", run_name="__main__")
"""
#: Dropout draws from the host's generator, as on the CPU: otherwise the masks would differ.
ON_ACME = {
    "DS_ACCELERATOR": "acme",
    "OMP_NUM_THREADS": "1",
    "ACCEL_SIMULATE_RANDOM": "host",
}


@pytest.fixture(autouse=True)
def environment_as_it_was():
    """Lightning leaves a rank's variables behind in its process, even where a training is refused."""
    with patch.dict(os.environ):
        yield


@pytest.fixture(scope="session")
def imports():
    """Every test in a fork needs one of these; warnings are errors, as elsewhere."""
    names = (
        "pytest",
        "torch",
        "lightning.pytorch",
        "accelerate",
        "transformers",
        "sklearn.datasets",
    )
    return f"import warnings, {', '.join(names)}\nwarnings.simplefilter('error')"


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    """Folders for `sys.path`: a plugin as a vendor would publish it, and the programs here."""
    folder = tmp_path_factory.mktemp("plugin")
    return [install_strangers(folder, "acme", communication_backend="accl"), HERE]


@pytest.fixture(scope="session")
def on_acme(path):
    """Variables of a process with the device and its plugin."""
    return environment("acme", ON_ACME, path=path)


@pytest.fixture(scope="session")
def on_cpu():
    """The same for the CPU, beside which no device is."""
    return clean_environment(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")


@pytest.fixture(scope="session")
def on_npu():
    """The same for a device of numbers that a CPU has more of."""
    return environment("npu")


@pytest.fixture(scope="session")
def run_on_acme(path):
    """`run_on("acme", ...)` with the plugin."""

    def start(script, *arguments, environ=None, **options):
        chosen = {**ON_ACME, **(environ or {})}
        if chosen["DS_ACCELERATOR"] == "cpu":
            # Else torch loads acme by itself, and sends its barriers there, where gloo has nothing to say.
            chosen["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        return run_on(
            "acme",
            script,
            *arguments,
            environ=chosen,
            path=path,
            timeout=300,
            **options,
        )

    return start


@pytest.fixture(scope="session")
def ranks(run_on_acme, tmp_path_factory):
    """`ranks("script.py", torchrun=True, **options)`: what each rank of a script says, in order."""

    def ranks(script, *, torchrun=False, environ=None, **options):
        out = tmp_path_factory.mktemp("answers")
        told = json.dumps({"out": str(out), **options})
        # A framework's own training passes no line of ours that the training on ours does not pass too.
        variables = {**(environ or {}), **(UNTRACED if options.get("own") else {})}
        run_on_acme(
            *([TORCHRUN] if torchrun else []), HERE / script, told, environ=variables
        )
        return [json.loads(file.read_text()) for file in sorted(out.iterdir())]

    return ranks
