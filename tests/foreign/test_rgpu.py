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
        deadline = time.monotonic() + 60
        while "serving cpu" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
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
    """The server is stopped while the second check runs."""
    words = ["-m", "accel_core", "verify", "generic", "--level", "2", "--json"]
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *words],
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        for line in process.stderr:
            if b"interface." in line:
                break
        server.stop()
        output, _ = process.communicate(timeout=600)
    checks = json.loads(output)["checks"]
    not_run = [check["message"] for check in checks if check["outcome"] == "not run"]
    assert len(not_run) > 100
    assert set(not_run) == {not_run[0]}
    assert "the device no longer answers" in not_run[0]
    assert "ConnectionError: could not reach rgpu-opserver again" in not_run[0]
    assert time.monotonic() - start < 300
