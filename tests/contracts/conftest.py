"""Finding the plugins, and the package of this folder that holds them against their vendors' surfaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from accel_testing.children import untraced

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from accel_contracts.plugins import PLUGINS  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", PLUGINS, ids=[path.name for path in PLUGINS])


Runs = list[dict[str, Any]]


@pytest.fixture(scope="session")
def run() -> Callable[[Iterable[Path]], Runs]:
    """Run plugins, given by their folders with sources, on recorders; one process imports torch for all."""
    pytest.importorskip("torch")
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")

    def runs(folders: Iterable[Path]) -> Runs:
        import accel_core

        paths = [str(HERE), str(HERE.parent / "support"), str(Path(accel_core.__file__).parents[1])]
        environ = {**untraced(os.environ), "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "accel_contracts.running", *map(str, folders)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return runs
