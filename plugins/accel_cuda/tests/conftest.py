"""Children: Python processes of their own, for what can be said only once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

Run = Callable[..., str]


@pytest.fixture
def child() -> Run:
    """`child(code, env)`: what `code` printed; a variable that is None is taken out of the environment."""

    def run(code: str, env: Mapping[str, str | None] | None = None, timeout: float = 120) -> str:
        environ = {**os.environ, **(env or {})}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={name: value for name, value in environ.items() if value is not None},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def examine() -> str:
    """Source of `examine(backend, evidence)`: what the core rules a declaration out by before any import."""
    return (
        "import sys\n"
        "from dataclasses import replace\n"
        "import accel_core, accel_cuda\n"
        "from accel_core import Evidence, Provenance\n"
        "from accel_core.detection import facts, records\n"
        "from accel_core.settings import Settings\n"
        "def examine(backend, evidence=Evidence(nodes=('/dev/nvidia0',))):\n"
        "    backend = replace(backend, provenance=Provenance('accel-cuda', '0', 'cuda', 'accel_cuda'))\n"
        "    candidate = records.Candidate(backend, accel_cuda)\n"
        "    return facts.examine(candidate, Settings(), evidence)[0]\n"
    )
