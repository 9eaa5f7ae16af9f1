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

from accel_contracts.planting import MARKED, SWALLOWED, plant  # noqa: E402
from accel_contracts.plugins import PLUGINS  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", PLUGINS, ids=[path.name for path in PLUGINS])


Runs = list[dict[str, Any]]


@pytest.fixture(scope="session")
def runs(once: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Runs]]:
    """Every plugin run on recorders, by its name: `"plain"`, and a copy with all faults `"planted"`."""
    pytest.importorskip("torch")
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")

    def computed() -> dict[str, dict[str, Runs]]:
        folders = {"plain": {path.name: path / "src" for path in PLUGINS}, "planted": {}}
        for path in PLUGINS:
            folders["planted"][path.name] = copy = tmp_path_factory.mktemp(path.name) / "src"
            plant(path, copy, *SWALLOWED.values(), MARKED)
        found = _run(folder for kind in folders.values() for folder in kind.values())
        return {
            kind: {
                name: [each for each in found if each["folder"] == str(folder)]
                for name, folder in named.items()
            }
            for kind, named in folders.items()
        }

    return once("running", computed)


def _run(folders: Iterable[Path]) -> Runs:
    """Run plugins, given by their folders with sources: one process imports torch for all of them."""
    import accel_core

    paths = [str(HERE), str(HERE.parent / "support"), str(Path(accel_core.__file__).parents[1])]
    environ = {**untraced(os.environ), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "accel_contracts.running", *map(str, folders)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
