"""Trainings in pairs of processes, made once a session."""

import os
from pathlib import Path

import pytest
from accel_tests import deepspeeds_compiler
from accel_tests.children import untraced
from ds_training.runs import CLASSES, PATCHED, SINGLE, Trainings
from patched import with_path

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def trainings(
    request, tmp_path_factory, extensions, deepspeed_copy, parents, imports, simulated
):
    """`trainings.reports(backend, configuration)`: trained now, or by whoever asked before."""
    base = tmp_path_factory.getbasetemp()
    # Under xdist each process has a folder of its own in the session's.
    folder = (
        base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    ) / "deepspeed-trainings"
    folder.mkdir(exist_ok=True)

    def start(backend, code, places):
        device = {"reference": "cpu", SINGLE: "cpu", PATCHED: "acme"}.get(
            backend, backend.partition(",")[0]
        )
        alone = backend in CLASSES and simulated(device, plugin=not CLASSES[backend])
        found = alone or request.getfixturevalue(f"on_{device}")
        if backend == PATCHED:
            found = with_path(found, deepspeed_copy(backend))
        found = with_path(found, HERE, HERE.parents[4] / "tests/support")
        # The masks of dropout are drawn on the host, so that they equal those on CPU.
        mine = (
            deepspeeds_compiler.VARIABLES
            if device == "cpu"
            else {"ACCEL_SIMULATE_RANDOM": "host"}
        )
        # On the CPU compared to the bit, so with DeepSpeed's compiled operators; and tracing takes long.
        kept = {"TORCH_EXTENSIONS_DIR": str(extensions)}
        environ = {**untraced(found), **mine, **kept}
        parent = parents(imports, backend, environ)
        shared = (
            {"LOCAL_RANK": "0"} if device == "mps" else {}
        )  # by all ranks: Metal is one device
        return parent(
            code, [{**environ, **place, **shared} for place in places], timeout=1500
        )

    return Trainings(folder, start)
