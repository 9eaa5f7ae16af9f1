"""Children in which the real TorchTPU runs, over XLA's library for the CPU."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session", autouse=True)
def _needs_torch_tpu():
    if not (find_spec("torch_tpu") and find_spec("fastatomstruct_xla_cpu")):
        pytest.skip(
            "torch_tpu is not installed; `./dev tpu-real` has an environment with it"
        )
