"""`accel run` and `init_process_group` on simulated devices: mlu, and a third party's acme."""

import json
import sys

import pytest
from accel_tests.children import run_python, untraced

from accel_core.backend import Visibility

pytest.importorskip("torch")

from accel_tests.on_disk import install_strangers
from accel_tests.on_simulated import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the simulated devices are built with g++")

SCRIPT = """
import json, os, sys, torch
from pathlib import Path
from accel_train import init_process_group
with init_process_group() as rank:
    value = torch.full((2,), rank.rank + 1.0, device=rank.device)
    torch.distributed.all_reduce(value)
    said = [rank.rank, str(rank.device), rank.backend, rank.accelerator.name, rank.accelerator.device_count(),
            value.tolist(), os.environ.get("ACME_VISIBLE_DEVICES")]
    rank.barrier()
Path(sys.argv[1], str(rank.rank)).write_text(json.dumps(said))
"""


@pytest.mark.parametrize(
    "alone",
    [False, pytest.param(True, marks=pytest.mark.nightly(reason="`test_launch.py` plans the variables"))],
)
def test_a_third_partys_plugin_with_a_device_type_of_its_own(tmp_path, alone):
    """Two ranks on the two devices, each of which may see its own alone."""
    mask = Visibility(("ACME_VISIBLE_DEVICES",), grammar="cuda")
    site = install_strangers(tmp_path, "acme", communication_backend="accl", visibility=mask)
    environ = untraced(environment("acme", {"OMP_NUM_THREADS": "1"}, path=[site]))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--backend", "acme", *["--one-device-per-rank"] * alone]
    run_python(["-m", "accel_core", "run", *options, str(script), str(tmp_path)], environ).succeeded()
    said = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert said == [
        [n, f"acme:{0 if alone else n}", "accl", "acme", 2 - alone, [3.0, 3.0], str(n) if alone else None]
        for n in range(2)
    ]
