"""Trainings in pairs of processes, made once a session."""

import os
from pathlib import Path

import pytest
from accel_tests import deepspeeds_compiler
from accel_tests.children import untraced
from ds_training.runs import CLASSES, PATCHED, Trainings
from patched import with_copy

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def trainings(request, tmp_path_factory, extensions, deepspeed_copy, parents, imports, simulated):
    """`trainings.reports(backend, configuration)`: trained now, or by whoever asked before."""
    base = tmp_path_factory.getbasetemp()
    # Under xdist each process has a folder of its own in the session's.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "deepspeed-trainings"
    folder.mkdir(exist_ok=True)

    def start(backend, code, places):
        device = {"reference": "cpu", PATCHED: "acme"}.get(backend, backend)
        found = simulated(backend) if backend in CLASSES else request.getfixturevalue(f"on_{device}")
        if backend == PATCHED:
            found = with_copy(found, deepspeed_copy(backend))
        support = str(HERE.parents[4] / "tests/support")
        path = os.pathsep.join([str(HERE), support, found.get("PYTHONPATH", "")])
        # The masks of dropout are drawn on the host, so that they equal those on CPU.
        mine = deepspeeds_compiler.VARIABLES if device == "cpu" else {"ACCEL_SIMULATE_RANDOM": "host"}
        # Compared to the bit, so with compiled operators, which have DeepSpeed's; and tracing takes long.
        ours = {"ACCEL_COMPILE": "1", "TORCH_EXTENSIONS_DIR": str(extensions), "PYTHONPATH": path}
        environ = {**untraced(found), **mine, **ours}
        parent = parents(imports, backend, environ)
        return parent(code, [{**environ, **place} for place in places], timeout=1500)

    return Trainings(folder, start)
