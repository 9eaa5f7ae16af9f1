"""`accel run --doctor`, with real ranks: one of them has other variables, as on another host."""

import sys
from importlib.util import find_spec

import pytest
from accel_tests.children import clean_environment, run_python

pytestmark = [
    pytest.mark.skipif(not find_spec("torch"), reason="torchrun is torch's"),
    pytest.mark.skipif(
        sys.platform == "win32", reason="torchrun's agent is tested on POSIX"
    ),
]

#: A start-up file, which the second rank's processes run before anything of ours.
OTHERWISE = """
import os
if os.environ.get("RANK") == "1":
    os.environ["CUDA_VISIBLE_DEVICES"] = "7"
"""
# In one write: both ranks have the same stdout.
SCRIPT = """
import os, torch.distributed
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
os.write(1, f"rank {torch.distributed.get_rank()} ran\\n".encode())
torch.distributed.destroy_process_group()
"""
#: Trains on the accelerator.
TRAINING = """
import os, accel_train, torch
from accel_core import get_accelerator
accel_train.init_process_group()
device = get_accelerator().device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(device))
model(torch.ones(1, 2, device=device)).sum().backward()
os.write(1, f"{device}\\n".encode())
torch.distributed.destroy_process_group()
"""


def test_what_differs_is_told_and_the_script_meets_where_the_doctors_met(tmp_path):
    """With restarts rank 0 itself holds the store: its doctor's is gone before a script looks for it."""
    (tmp_path / "sitecustomize.py").write_text(OTHERWISE)
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [
        "--nproc-per-node", "2", "--doctor", "--max-restarts", "1", "--rdzv-backend", "c10d", "script.py",
    ]  # fmt: skip
    environ = clean_environment(DS_ACCELERATOR="cpu", PYTHONPATH=str(tmp_path))
    done = run_python(
        ["-m", "accel_core", "run", *words], environ, cwd=tmp_path
    ).succeeded()
    assert sorted(done.stdout.splitlines()) == ["rank 0 ran", "rank 1 ran"]
    told = done.stderr[done.stderr.index("accel run --doctor:") :].splitlines()
    assert told[0] == "accel run --doctor: 1 difference between the ranks"
    assert told[1].startswith("  CUDA_VISIBLE_DEVICES: none on rank 0 (host ")
    assert "; 7 on rank 1 (host " in told[1]
    assert done.stderr.count("accel run --doctor:") == 1


def test_only_the_program_is_checked_for_use_of_the_accelerator(tmp_path):
    """The doctor's own process imports torch in rank 0, and never uses the accelerator either."""
    (tmp_path / "script.py").write_text(TRAINING)
    accel = ["-m", "accel_core"]
    job = [*accel, "run", "--nproc-per-node", "2", "--doctor", "script.py"]
    done = run_python(
        [*accel, "simulate", "acme:2", "--", sys.executable, *job],
        clean_environment(),
        cwd=tmp_path,
    ).succeeded()
    assert sorted(done.stdout.splitlines()) == ["acme:0", "acme:1"]
    assert "accel run --doctor: no differences between the 2 ranks" in done.stderr
    assert "never used it" not in done.stderr
