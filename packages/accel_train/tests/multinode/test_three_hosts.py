"""`accel run` on three hosts over gloo, as docs/howto/multinode.md has it; one is cut off in the middle."""

import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn", reason="the example needs scikit-learn")

from accel_hosts import Hosts
from accel_tests.children import clean_environment

pytestmark = pytest.mark.multinode

EXAMPLE = Path(__file__).parents[4] / "examples" / "train_ddp.py"
#: Seconds: for a collective, and after which a silent rank counts as lost.
TIMEOUT, SILENCE = 8, 3
#: Keep-alive of torchrun's agents, and how long they wait for the third host to come back.
RENDEZVOUS = "keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=120,last_call_timeout=1"


def launch(hosts, name, checkpoint):
    """Start torchrun's agent on a host, as its supervisor does (SLURM, Kubernetes, systemd)."""
    command = [
        sys.executable, "-m", "accel_core", "run", "--backend", "cpu",
        "--nnodes", "3", "--nproc-per-node", "1", "--max-restarts", "3",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:29400", "--rdzv-id", "job", "--rdzv-conf", RENDEZVOUS,
        str(EXAMPLE), "--steps", "100", "--every", "20", "--pause", "0.02", "--checkpoint", str(checkpoint),
        "--timeout", str(TIMEOUT), "--silence", str(SILENCE),
    ]  # fmt: skip
    return hosts.start(
        name, command, clean_environment(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="eth0")
    )


def supervise(hosts, agents, checkpoint, timeout):
    """Wait until every agent has succeeded; one that fails is started again."""
    end = time.monotonic() + timeout
    while any(agent.returncode != 0 for agent in agents.values()):
        assert time.monotonic() < end, (
            f"not done after {timeout:g} s:\n{hosts.transcript}"
        )
        for name, agent in agents.items():
            if agent.returncode:
                hosts.transcript.add(
                    "test", f"the agent on {name} ended with {agent.returncode}: again"
                )
                agent.wait()
                agents[name] = launch(hosts, name, checkpoint)
        time.sleep(0.1)


def report(hosts):
    """What rank 0 said at the end: steps, loss, digest of the parameters."""
    _, found = hosts.transcript.wait_for(r"^\{.*parameters_sha256.*\}$", timeout=5)
    return json.loads(found[0])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The report of a run in which nothing happens."""
    shared = tmp_path_factory.mktemp("undisturbed") / "last.pt"
    with Hosts(["a", "b", "c"]) as hosts:
        supervise(
            hosts,
            {name: launch(hosts, name, shared) for name in hosts.names},
            shared,
            timeout=90,
        )
        return report(hosts)


@pytest.mark.parametrize("comes_back", ["by its cable", "by a reboot"])
def test_a_host_that_is_cut_off_is_named_and_the_result_stays(
    comes_back, undisturbed, hosts, tmp_path
):
    shared = tmp_path / "last.pt"
    agents = {name: launch(hosts, name, shared) for name in hosts.names}
    lines = hosts.transcript
    _, found = lines.wait_for(r"rank (\d) of 3 on c: from step 0", "c", timeout=90)
    lost = int(found[1])
    lines.wait_for("checkpoint at step 40")
    cut = hosts.cut_off("c")
    for host in ("a", "b"):
        # First the line that the heartbeats' thread logs, and then the error that ends the rank.
        silent = rf"rank {lost} \(host c\) has sent no heartbeat for {SILENCE} s"
        logged, _ = lines.wait_for(f"^{silent}", host, after=cut)
        assert logged - cut < TIMEOUT
        raised, _ = lines.wait_for(f"RankLostError: {silent}", host, after=cut)
        # The collective's timeout, and then a little for rank 0, which lets the others read first.
        assert raised - cut < TIMEOUT + SILENCE + 4
    if comes_back == "by a reboot":
        agents["c"].kill()
        lines.add(
            "test", "c is switched off and on; its supervisor starts the agent again"
        )
        agents["c"] = launch(hosts, "c", shared)
    hosts.reconnect("c")
    supervise(hosts, agents, shared, timeout=120)

    for host in hosts.names:
        _, found = lines.wait_for(
            r"rank \d of 3 on \w: from step (\d+)", host, after=cut, timeout=5
        )
        assert int(found[1]) >= 40
    disturbed = report(hosts)
    assert undisturbed["steps"] == 100
    assert disturbed == undisturbed


AT_THE_END = f"""
import time
from datetime import timedelta
from accel_train import init_process_group
with init_process_group(timeout=timedelta(seconds=90), silence={SILENCE}) as rank:
    print("started", flush=True)
    time.sleep(120 if rank.rank == 2 else 0)
"""


def test_a_host_that_is_cut_off_at_the_end_is_named_and_not_waited_for(hosts):
    """A rank that only is late is waited for, for 90 s here; nothing of c's closes a connection."""
    for number, name in enumerate(hosts.names):
        place = {
            "RANK": str(number),
            "WORLD_SIZE": "3",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "a",
        }
        environ = clean_environment(
            **place,
            MASTER_PORT="29400",
            DS_ACCELERATOR="cpu",
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="eth0",
        )
        hosts.start(name, [sys.executable, "-c", AT_THE_END], environ)
    lines = hosts.transcript
    for name in hosts.names:
        lines.wait_for("started", name, timeout=90)
    time.sleep(SILENCE + 2)
    cut = hosts.cut_off("c")
    silent = rf"rank 2 \(host c\) has sent no heartbeat for {SILENCE} s"
    for name in ("a", "b"):
        logged, _ = lines.wait_for(f"^{silent}", name, after=cut)
        raised, _ = lines.wait_for(f"RankLostError: {silent}", name, after=cut)
        assert logged - cut < 2 * SILENCE
        assert raised - cut < 4 * SILENCE
