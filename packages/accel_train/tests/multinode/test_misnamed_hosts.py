"""`accel run` on two hosts, each of whose own names is 127.0.1.1 to itself, as Debian's installer has it."""

import sys

import pytest

pytest.importorskip("torch")

from accel_hosts import Hosts
from accel_tests.children import clean_environment

pytestmark = pytest.mark.multinode

SUM = """
import torch
from accel_train import init_process_group
with init_process_group(timeout=60) as rank:
    value = torch.ones(1, device=rank.device)
    torch.distributed.all_reduce(value)
    print("rank", rank.rank, "of", value.item(), flush=True)
"""


@pytest.fixture
def misnamed():
    with Hosts(["a", "b"], misnamed=True) as made:
        yield made


def test_the_hosts_meet_at_an_address_and_find_each_other(misnamed, tmp_path):
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    command = [
        sys.executable, "-m", "accel_core", "run", "--backend", "cpu",
        "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "job",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.213.77.1:29400", str(script),
    ]  # fmt: skip
    agents = [misnamed.start(name, command, clean_environment()) for name in "ab"]
    assert [agent.wait(timeout=110) for agent in agents] == [0, 0]
    lines = str(misnamed.transcript)
    assert "rank 0 of 2.0" in lines
    assert "rank 1 of 2.0" in lines
    assert "but 10.213.77.1 is an address of this host" in lines
    assert "GLOO_SOCKET_IFNAME=eth0 is set for the ranks" in lines
