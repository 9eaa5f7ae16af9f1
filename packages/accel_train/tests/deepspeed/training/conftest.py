"""Trainings in pairs of processes, made once a session."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from accel_tests import deepspeeds_compiler
from accel_tests.children import untraced
from ds_training.runs import PATCHED, Trainings, locked
from ds_training.table import PROPERTY
from patched import with_copy

HERE = Path(__file__).parent

#: Builds, and so keeps, what DeepSpeed compiles for its CPU accelerator at first use: a minute or two.
BUILD = """
from deepspeed.accelerator import get_accelerator
for name in ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder"):
    get_accelerator().create_op_builder(name).load()
"""


@pytest.fixture(scope="session")
def extensions(on_cpu):
    """The folder, kept between sessions, of the operators that DeepSpeed compiles for its CPU accelerator."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "accel-core"
    versions = f"deepspeed-{metadata.version('deepspeed')}-torch-{metadata.version('torch')}"
    ours = cache / "deepspeed-operators" / f"{versions}-{sys.implementation.cache_tag}"
    # A session of noxfile.py has one beside its DeepSpeed, which the other tests use too.
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or ours)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(Path(f"{folder}.lock")):
        for lock in folder.glob("*/lock"):  # of a build that was killed: torch would wait for it for ever
            if time.time() - lock.stat().st_mtime > 900:
                lock.unlink()
        if not (folder / "built").exists():
            subprocess.run(
                [sys.executable, "-c", BUILD],
                env={**on_cpu, **deepspeeds_compiler.VARIABLES, "TORCH_EXTENSIONS_DIR": str(folder)},
                capture_output=True,
                check=True,
                timeout=1200,
            )
            (folder / "built").touch()
    return folder


@pytest.fixture(scope="session")
def trainings(request, tmp_path_factory, extensions, deepspeed_copy):
    """`trainings.reports(backend, configuration)`: trained now, or by whoever asked before."""
    base = tmp_path_factory.getbasetemp()
    # Under xdist each process has a folder of its own in the session's.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "deepspeed-trainings"
    folder.mkdir(exist_ok=True)

    def environ(backend):
        simulated = backend in ("acme", "plain", *PATCHED)
        device = "acme" if backend in PATCHED else backend if simulated else "cpu"
        found = request.getfixturevalue(f"on_{device}")
        if backend in PATCHED:
            found = with_copy(found, deepspeed_copy(backend))
        path = os.pathsep.join(filter(None, [str(HERE), found.get("PYTHONPATH")]))
        # The masks of dropout are drawn on the host, so that they equal those on CPU.
        mine = {"ACCEL_SIMULATE_RANDOM": "host"} if simulated else deepspeeds_compiler.VARIABLES
        # Compared to the bit, so with compiled operators, which have DeepSpeed's.
        mine = {**mine, "ACCEL_COMPILE": "1"}
        # Tracing lengthens a training by half, and the quicker tests pass the same lines of ours.
        return {**untraced(found), **mine, "PYTHONPATH": path, "TORCH_EXTENSIONS_DIR": str(extensions)}

    return Trainings(folder, environ)


@pytest.fixture
def record(record_property):
    """`record(row, backend, cell)`: note a cell of the table that is printed at the end."""
    return lambda row, backend, cell: record_property(PROPERTY, [row, backend, cell])
