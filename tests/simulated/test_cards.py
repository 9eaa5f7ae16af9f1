"""The score card of every first-party backend on its simulated device: `accel verify` up to level 2, in one
process each, and what fails there with reasons in `expected/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_testing.on_simulated import environment

from accel_simulated import VENDORS

pytestmark = pytest.mark.slow

EXPECTED = Path(__file__).parent / "expected"
#: Nobody declares acme: the built-in generic backend drives it.
BACKENDS = {name: name if name != "acme" else "generic" for name in VENDORS}


@pytest.mark.parametrize("vendor", BACKENDS)
def test_card(vendor: str, simulated: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing fails but what `expected/<vendor>.toml` names; ranks are what test_plugins is about."""
    import accel_core.conformance as kit

    simulated(vendor, "print(0)")  # builds the device, or skips
    file, results = EXPECTED / f"{vendor}.toml", tmp_path / "results"
    plugins = ("accel_core.conformance.option", "accel_core.conformance.reporting")
    folder = Path(str(kit.__file__)).parent
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path, "-W", "ignore",
        *(part for plugin in plugins for part in ("-p", plugin)), "-p", "no:cacheprovider",
        "--import-mode=importlib", "--accel", BACKENDS[vendor], "--accel-results", results,
        *(["--accel-expected", file] if file.exists() else []),
        folder / "test_declaration.py", folder / "interface", folder / "compute",
    ]  # fmt: skip
    environ = environment(vendor, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "DS_ACCELERATOR": BACKENDS[vendor]})
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=400, check=False)
    ended = [line for line in map(json.loads, results.read_text().splitlines()) if "ended" in line]
    assert len(ended) >= 98, done.stdout
    good = ("passed", "not claimed", "expected failure")
    assert [f"{row['ended']}: {row['message']}" for row in ended if row["outcome"] not in good] == []
