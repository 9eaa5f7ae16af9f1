"""`accel run` and `init_process_group` on simulated devices: mlu, and a third party's acme."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from accel_tests import layouts
from accel_tests.children import untraced
from accel_tests.plugins import arguments, declaring

from accel_core.backend import InTorch

pytest.importorskip("torch")

from accel_tests.on_simulated import environment

from accel_simulated import CannotBuildError

ROOT = Path(__file__).parents[4]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the simulated devices are built with g++"),
]

SCRIPT = """
import json, os, sys, torch
from pathlib import Path
from accel_train import init_process_group
with init_process_group() as rank:
    value = torch.full((2,), rank.rank + 1.0, device=rank.device)
    torch.distributed.all_reduce(value)
    said = [rank.rank, str(rank.device), rank.backend, rank.accelerator.name, rank.accelerator.device_count(),
            value.tolist(), os.environ.get("CN_VISIBLE_DEVICES")]
    rank.barrier()
Path(sys.argv[1], str(rank.rank)).write_text(json.dumps(said))
"""


def train(vendor, folder, plugin, *arguments):
    """What two ranks on the simulated vendor's two devices said, by rank."""
    try:
        environ = untraced(environment(vendor, {"OMP_NUM_THREADS": "1"}, path=[plugin]))
    except CannotBuildError as error:
        pytest.skip(str(error))
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = ["accel_core", "run", "--backend", vendor, *arguments, str(script), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / str(rank)).read_text()) for rank in range(2)]


def test_a_third_partys_plugin_with_a_device_type_of_its_own(tmp_path):
    declared = arguments(
        "acme", vendor_import="torch_acme", in_torch=InTorch(private_use1=True), communication_backend="accl",
        accelerator="accel_core.accelerators.torch_device:TorchAccelerator",
    )  # fmt: skip
    modules = {"accel_acme": declaring(declared)}
    site = layouts.dist_info(tmp_path, "accel-acme", "1.0", {layouts.GROUP: {"acme": "accel_acme"}}, modules)
    said = train("acme", tmp_path, site)
    assert said == [[rank, f"acme:{rank}", "accl", "acme", 2, [3.0, 3.0], None] for rank in range(2)]


@pytest.mark.nightly(reason="by day acme passes the same lines, and `test_launch.py` plans mlu's variables")
@pytest.mark.parametrize("alone", [False, True])
def test_mlu_with_all_devices_and_with_one_a_rank(tmp_path, alone):
    pytest.importorskip("accel_mlu", reason="the plugin is not installed")
    plugin = ROOT / "plugins" / "accel_mlu" / "src"
    said = train("mlu", tmp_path, plugin, *(["--one-device-per-rank"] if alone else []))
    for rank, (number, *place, names, total, visible) in enumerate(said):
        assert (number, total) == (rank, [3.0, 3.0])
        assert place == [f"mlu:{0 if alone else rank}", "cncl", "mlu"]
        assert (names, visible) == ((1, str(rank)) if alone else (2, None))
