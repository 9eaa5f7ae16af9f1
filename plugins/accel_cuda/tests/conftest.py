"""Fixtures that plugins share."""

import pytest
from accel_tests.plugin_fixtures import child

__all__ = ["child"]


@pytest.fixture
def examine() -> str:
    """Source of `examine(backend, evidence)`: what the core rules a declaration out by before any import."""
    return (
        "import sys\n"
        "from dataclasses import replace\n"
        "import accel_core, accel_cuda\n"
        "from accel_core import Evidence, Provenance\n"
        "from accel_core.detection import Candidate, probe\n"
        "from accel_core.settings import Settings\n"
        "def examine(backend, evidence=Evidence(nodes=('/dev/nvidia0',))):\n"
        "    backend = replace(backend, provenance=Provenance('accel-cuda', '0', 'cuda', 'accel_cuda'))\n"
        "    candidate = Candidate(backend, accel_cuda)\n"
        "    return probe.examine(probe.Case(candidate, Settings(), evidence))[0]\n"
    )
