"""Ranks as real processes, and backends that are the CPU under another name."""

import pytest
from accel_tests import forks, layouts, plugins
from accel_tests.children import as_rank, clean_environment
from accel_tests.ports import free_port

#: What every rank has at hand.
PRELUDE = """
import warnings
warnings.simplefilter("error")
import time
from datetime import timedelta
import torch
from accel_core import RankLostError, RankMismatchError
from accel_train import init_process_group
seconds = lambda n: timedelta(seconds=n)
"""


@pytest.fixture(scope="session")
def parent(tmp_path_factory):
    """The process that has imported torch."""
    pytest.importorskip("torch")
    environ = clean_environment(OMP_NUM_THREADS="1")
    with forks.opened(PRELUDE, environ, tmp_path_factory.mktemp("ranks")) as found:
        yield found


@pytest.fixture
def ranks(parent):
    """`ranks(code, count, each, **variables)`: how ranks of `code` that meet on a port of this host ended.

    `each` gives the variables of some of them.
    """

    def run(code, count=2, each=(), timeout=90, **variables):
        port, environs = free_port(), []
        for rank in range(count):
            own = each[rank] if rank < len(each) else {}
            given = {
                "DS_ACCELERATOR": "cpu",
                **as_rank(rank, count, port),
                **variables,
                **own,
            }
            kept = {name: value for name, value in given.items() if value != "<unset>"}
            environs.append(clean_environment(**kept))
        return parent(code, environs, timeout=timeout)

    yield run
    parent.kill()


@pytest.fixture
def cpu_backend(tmp_path):
    """Install a backend that is the CPU under another name; gives the variables of a rank that has it."""

    def install(name, version="1.0", folder="site", **fields):
        declared = plugins.arguments(
            name, 950, accelerator="accel_core.interface.cpu:CPUAccelerator",
            **{"device_type": "cpu", "communication_backend": "gloo", **fields},
        )  # fmt: skip
        module = f"accel_{name}_plugin"
        modules = {module: plugins.declaring(declared)}
        site = tmp_path / folder
        layouts.dist_info(
            site, f"accel-{name}", version, {layouts.GROUP: {name: module}}, modules
        )
        return {"PYTHONPATH": str(site), "DS_ACCELERATOR": name}

    return install
