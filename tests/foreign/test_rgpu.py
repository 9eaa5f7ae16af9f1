"""rgpu, a device whose tensors are on a server, without a plugin: chosen, trained on, checked, and lost."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accel_tests.children import clean_environment, run_python

HERE = Path(__file__).parent
PACKAGE = os.environ.get("ACCEL_FOREIGN_RGPU", "")

pytestmark = pytest.mark.skipif(
    not PACKAGE,
    reason="rgpu is not installed; `./dev foreign` has an environment with it",
)


class Server:
    """`rgpu-opserver` on this host's CPU."""

    def __init__(self, folder):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        log = folder / "server.log"
        command = [
            sys.executable,
            "-m",
            "rgpu.server",
            "--device",
            "cpu",
            "--port",
            str(self.port),
        ]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=clean_environment(PYTHONPATH=PACKAGE),
            )
        self.log = log
        self.wait_for("serving cpu")

    def wait_for(self, words):
        """Wait until the server's log has these words, two minutes at most."""
        deadline = time.monotonic() + 120
        while words not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.stop()


def environment(server):
    return clean_environment(
        PYTHONPATH=PACKAGE,
        ACCEL_IMPORT="rgpu",
        RGPU_OPSERVER=f"127.0.0.1:{server.port}",
        RGPU_RECONNECT_SECONDS="3",
    )


def accel(*words, server, timeout=120):
    command = ["-m", "accel_core", *words, "--json"]
    done = run_python(command, environment(server), timeout=timeout)
    return json.loads(done.stdout)


def test_it_is_listed_and_chosen_without_a_plugin(server):
    document = accel("info", server=server)
    assert document["name"] == "generic"
    assert document["device_type"] == "rgpu"
    assert document["device_count"] == 1


def test_it_trains_as_the_cpu_does(server):
    program = str(HERE / "rgpu_training.py")
    there, here = (
        run_python([program, name], environment(server), timeout=120).answer
        for name in ("generic", "cpu")
    )
    assert there["device"] == "rgpu"
    assert there["losses"] == here["losses"]


def test_the_conformance_suite_ends_and_finds_its_faults(server):
    document = accel("verify", "generic", "--level", "2", server=server, timeout=1200)
    outcomes = {check["name"]: check["outcome"] for check in document["checks"]}
    passed = [name for name, outcome in outcomes.items() if outcome == "passed"]
    assert len(passed) >= 95
    assert outcomes["compute.arithmetic.gradients"] == "passed"
    # A sum of a tensor on the device and one on the host is accepted.
    assert outcomes["compute.numbers.mistakes_are_refused"] == "failed"


def test_the_conformance_suite_names_a_lost_server(server):
    """The server is stopped when the first check has opened its session."""
    words = ["-m", "accel_core", "verify", "generic", "--level", "2", "--json"]
    process = subprocess.Popen(
        [sys.executable, *words],
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    server.wait_for("started (client torch")
    server.stop()
    start = time.monotonic()
    output, _ = process.communicate(timeout=600)
    assert time.monotonic() - start < 300
    checks = json.loads(output)["checks"]
    not_run = [check["message"] for check in checks if check["outcome"] == "not run"]
    lost = [message for message in not_run if "no longer responds" in message]
    assert len(lost) > 50
    assert "ConnectionRefusedError: [Errno 111] Connection refused" in lost[0]
