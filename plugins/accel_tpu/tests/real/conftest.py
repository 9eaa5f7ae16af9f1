"""Children in which the real TorchTPU runs, over XLA's library for the CPU."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def pytest_collection_modifyitems(items):
    """Everything here needs the real packages; the reason is printed with the skips."""
    if find_spec("torch_tpu") and find_spec("fastatomstruct_xla_cpu"):
        return
    skip = pytest.mark.skip(reason="torch_tpu is not installed; `./dev tpu_real` has an environment with it")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
