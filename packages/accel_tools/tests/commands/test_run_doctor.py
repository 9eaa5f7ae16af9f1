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
