"""What `accel run --doctor` finds out about the rendezvous endpoint."""

import socket
from argparse import Namespace

import pytest

from accel_train.launch import endpoint
from accel_train.launch.endpoint import find_endpoint_problem


def problem_at(address, backend="c10d"):
    arguments = Namespace(rdzv_endpoint=address, rdzv_backend=backend)
    return find_endpoint_problem(arguments, 60)


@pytest.fixture
def listener():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


def test_a_process_that_accepts_and_stays_silent_is_not_the_store(
    listener, monkeypatch
):
    pytest.importorskip("torch")
    port = listener.getsockname()[1]
    found = problem_at(f"127.0.0.1:{port}")
    assert found.is_fatal
    assert found.text.startswith(
        f"a process listens at 127.0.0.1:{port}, but does not respond like torchrun's store: "
        "no response within 10 s. Next step: end this process"
    )


def test_the_store_of_a_host_that_started_before_is_no_problem():
    torch = pytest.importorskip("torch")
    store = torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False
    )
    assert problem_at(f"127.0.0.1:{store.port}") is None


def test_an_endpoint_at_which_nothing_listens_yet_is_no_problem(listener):
    port = listener.getsockname()[1]
    listener.close()
    assert problem_at(f"127.0.0.1:{port}") is None


def test_a_name_that_cannot_be_resolved_is_told(monkeypatch):
    def fail(*_arguments, **_options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    found = problem_at("node7:29400")
    assert not found.is_fatal
    assert "cannot resolve node7, the host of --rdzv-endpoint: Name" in found.text


def test_an_endpoint_that_no_packet_reaches_is_told(monkeypatch):
    def fail(*_arguments):
        raise TimeoutError("timed out")

    monkeypatch.setattr(endpoint.socket, "create_connection", fail)
    found = problem_at("127.0.0.1:29400")
    assert not found.is_fatal
    assert "127.0.0.1:29400 (127.0.0.1): timed out" in found.text


@pytest.mark.parametrize(("address", "backend"), [("", "c10d"), ("a:1", "static")])
def test_only_the_endpoint_of_c10d_is_checked(address, backend):
    assert problem_at(address, backend) is None
