"""`examples/train_digits.py` on each simulated device, through accel_core and a small plugin on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from accel_simulated import VENDORS
from accel_simulated.plugin import install_plugin

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
ARGUMENTS = ("--precision", "fp32", "--epochs", "2", "--json")


@pytest.fixture(scope="session")
def on_cpu(simulated: Callable[..., Any]) -> dict[str, Any]:
    """The report of the same training on CPU."""
    return simulated("mlu", EXAMPLE, *ARGUMENTS, environ={"DS_ACCELERATOR": "cpu"}, timeout=300).answer


@pytest.mark.parametrize("vendor", VENDORS)
def test_equals_cpu(
    vendor: str, tmp_path: Path, on_cpu: dict[str, Any], simulated: Callable[..., Any]
) -> None:
    name = install_plugin(tmp_path, VENDORS[vendor])
    # Dropout draws from the host's generator, as the run on CPU does: otherwise the masks would differ.
    variables = {"DS_ACCELERATOR": name, "SIMULATED_RANDOM": "host"}
    report = simulated(vendor, EXAMPLE, *ARGUMENTS, environ=variables, path=[tmp_path], timeout=300).answer
    assert report["backend"] == name
    assert report["parameters_sha256"] == on_cpu["parameters_sha256"]
    assert report["test_accuracy"] == on_cpu["test_accuracy"] > 0.8
    assert report["peak_memory_bytes"] > 0
