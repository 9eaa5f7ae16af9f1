"""`torch.compile` on the real TorchTPU, through the compiler of ours that names TorchTPU's."""

import os

import pytest
from accel_tests.children import run_python
from tpu_card import HERE, variables


@pytest.fixture(scope="module")
def compiled():
    """What `compiling.py` prints."""
    environ = {**os.environ, **variables(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return run_python([str(HERE / "compiling.py")], environ).answer


def test_the_default_compiler_is_torchtpus(compiled):
    assert compiled["default_of_accel"] == "tpu"
    assert compiled["default_of_torch"] == "tpu"


def test_dynamos_interface_is_torchtpus(compiled):
    assert compiled["interface"].startswith("torch_tpu.")


@pytest.mark.parametrize("backend", ["tpu", "accel"])
def test_the_compiler_that_runs_is_torchtpus(compiled, backend):
    """It refuses XLA's library for the CPU, by that name and by ours."""
    error = compiled[f"error_of_{backend}"]
    assert error == "NotImplementedError: GetOutputMemoryKinds is not supported."


def test_a_compiler_that_is_set_gives_the_cpus_gradients(compiled):
    cpu = compiled["with_aot_eager_on_cpu"]
    assert compiled["with_aot_eager"] == pytest.approx(cpu, rel=1e-5)


def test_inductor_is_refused_by_torchtpu(compiled):
    assert "backend='inductor') on TPU is experimental" in compiled["error_of_inductor"]
