"""`accel run` and `init_process_group` on simulated devices: mlu, and a third party's acme."""

import json
import sys

import pytest
from accel_tests.children import run_python, untraced

pytest.importorskip("torch")

from accel_tests.on_disk import install_strangers
from accel_tests.on_simulated import environment, run_on

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the simulated devices are built with g++"
)

SCRIPT = """
import json, sys, torch
from pathlib import Path
from accel_train import init_process_group
with init_process_group() as rank:
    value = torch.full((2,), rank.rank + 1.0, device=rank.device)
    torch.distributed.all_reduce(value)
    said = [rank.rank, str(rank.device), rank.backend, rank.accelerator.name, value.tolist()]
    rank.barrier()
Path(sys.argv[1], str(rank.rank)).write_text(json.dumps(said))
"""


def test_a_third_partys_plugin_with_a_device_type_of_its_own(tmp_path):
    site = install_strangers(tmp_path, "acme", communication_backend="accl")
    environ = untraced(environment("acme", {"OMP_NUM_THREADS": "1"}, path=[site]))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = ["--backend", "acme", str(script), str(tmp_path)]
    run_python(["-m", "accel_core", "run", *options], environ).succeeded()
    said = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert said == [[n, f"acme:{n}", "accl", "acme", [3.0, 3.0]] for n in range(2)]


#: A script for one device, as most are.
ALONE = """
import torch
device = torch.accelerator.current_accelerator()
model = torch.nn.Linear(4, 4).to(device)
print(f"trained on {next(model.parameters()).device}")
"""


def test_a_script_that_selects_no_device_has_that_of_its_local_rank(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ALONE)
    environ = untraced(environment("acme", {"OMP_NUM_THREADS": "1"}))
    done = run_python(["-m", "accel_core", "run", str(script)], environ).succeeded()
    lines = done.stdout.splitlines()
    assert sorted(lines) == ["trained on acme:0", "trained on acme:1"]
    assert "accel: 2 ranks ran this program" in done.stderr


#: As many programs choose; DDP refuses the CPU with a number of a device.
DIES = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(2, 2).to(device)
torch.distributed.init_process_group("gloo")
torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
"""


def test_a_program_that_dies_as_it_took_the_cpu_is_told_too(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DIES)
    environ = untraced(environment("acme", {"OMP_NUM_THREADS": "1"}))
    options = ["-m", "accel_core", "run", "--nproc-per-node", "1", str(script)]
    done = run_python(options, environ)
    assert done.returncode == 1
    assert "and kept its parameters on the CPU. Next step: move" in done.stderr


def test_ranks_that_no_launcher_numbers_have_the_device_of_their_rank():
    """As `torch.multiprocessing.spawn` starts them; what has no rank either is alone, if it may be."""
    code = """
import json, os, accel_train
own = {name.lower(): int(os.environ.pop(name)) for name in ("RANK", "WORLD_SIZE")}
os.environ.pop("LOCAL_RANK", None)
with accel_train.init_process_group(**own) as me:
    told = [me.local_rank, str(me.device)]
with accel_train.init_process_group(single_process=True) as me:
    print(json.dumps([*told, me.world_size, str(me.device)]))
"""
    answers = run_on("acme", code, processes=2).answers
    assert answers == [[n, f"acme:{n}", 1, "acme:0"] for n in range(2)]
