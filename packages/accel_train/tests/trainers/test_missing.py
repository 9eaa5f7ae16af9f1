"""What is said where Lightning or Accelerate is not installed; and they are imported by nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import accel_core
import accel_train

#: Ours, and of what is installed nothing else.
ALONE = """
import sys
sys.path += sys.argv[1:]
try:
    {code}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "from accel_train import lightning; lightning.trainer_options('cpu')",
            "Lightning is not installed in this environment: pip install lightning",
        ),
        (
            "from accel_train import lightning; lightning.register()",
            "Lightning is not installed in this environment: pip install lightning",
        ),
        (
            "from accel_train import accelerate; accelerate.partial_state()",
            "Hugging Face Accelerate is not installed in this environment: pip install accelerate",
        ),
    ],
)
def test_a_missing_framework_is_named_with_the_command(code: str, said: str) -> None:
    sources = [str(Path(package.__file__).parents[1]) for package in (accel_core, accel_train)]
    command = [sys.executable, "-S", "-c", ALONE.format(code=code), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"IntegrationMissingError {said}"


def test_importing_the_integrations_imports_neither_frameworks_nor_torch() -> None:
    code = """
import sys
import accel_train.accelerate, accel_train.lightning
print(sorted({"accelerate", "lightning", "pytorch_lightning", "torch"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
