"""Where the hosts of a job meet."""

import errno
import socket
import subprocess
import sys
from argparse import Namespace

import pytest

from accel_train.launch import network
from accel_train.launch.network import (
    check_loopback,
    check_own_name,
    network_settings,
    rendezvous_endpoint,
)


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("node0:4000", "node0", 4000),
        ("node0", "node0", 29500),
        ("[::1]:4000", "::1", 4000),
        ("", "127.0.0.1", 29501),
    ],
)
def test_the_endpoint_or_the_masters_address_is_where_the_hosts_meet(
    endpoint, host, port
):
    arguments = Namespace(
        rdzv_endpoint=endpoint, master_addr="127.0.0.1", master_port=29501
    )
    assert rendezvous_endpoint(arguments) == (host, port)


def test_an_endpoint_without_a_port_has_torchruns_default_port():
    """torch 2.13 leaves the port open, and `accel run --nnodes 2` ended with a TypeError."""
    arguments = Namespace(rdzv_endpoint="", master_addr="127.0.0.1", master_port=None)
    assert rendezvous_endpoint(arguments) == ("127.0.0.1", 29500)


@pytest.mark.parametrize(
    ("variable", "step"), [("2", "unset PET_NNODES"), ("", "--nnodes 1")]
)
def test_a_job_that_waits_for_other_hosts_is_told_what_makes_it_wait(
    monkeypatch, variable, step
):
    monkeypatch.setenv("PET_NNODES", variable)
    arguments = Namespace(
        nnodes="2", rdzv_endpoint="", master_addr="127.0.0.1", master_port=None
    )
    [note] = network_settings(arguments).notes
    assert f"For a job with only this launcher: {step}." in note


def test_a_host_that_cannot_connect_to_itself_is_found():
    """A sandbox's network namespace, whose interface lo is down."""
    source = (
        "from accel_train.launch.network import check_loopback\n"
        "print(*check_loopback(), sep='; ')"
    )
    command = ["unshare", "--net", "--map-root-user", sys.executable, "-c", source]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is missing")
    if "unshare" in ended.stderr:
        pytest.skip(ended.stderr)
    step = "run as root: ip link set lo up"
    assert ended.stdout.strip() == f"127.0.0.1; Network is unreachable; {step}"
    assert check_loopback() is None


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "free a port"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign address"), "free a port"),
        (TimeoutError("timed out"), "firewall"),
        (OSError(errno.EPERM, "Operation not permitted"), "firewall"),
        (OSError(errno.ECONNREFUSED, "Connection refused"), "firewall"),
        (OSError(errno.EMFILE, "Too many open files"), ""),
    ],
)
def test_the_step_fits_the_error_of_the_connection_to_itself(monkeypatch, error, step):
    """The interface lo is up in all of these cases."""

    def fail(*_arguments):
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    failure = check_loopback()
    assert str(error.strerror or error) in str(failure)
    assert step in failure.step
    assert "ip link" not in failure.step
    assert bool(step) == bool(failure.step)


def test_reserved_ports_are_named_where_no_port_is_free(monkeypatch):
    def fail(*_arguments):
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(network.hardware, "read_text", lambda _path: "1024-65535\n")
    step = check_loopback().step
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=" in step


@pytest.mark.parametrize(
    ("addresses", "text", "step"),
    [
        (
            [],
            "this host's name node7: the name cannot be resolved",
            "add the line `127.0.1.1",
        ),
        (
            ["192.0.2.77"],
            "192.0.2.77, the address of this host's name node7: the address does not belong to this host",
            "correct the address of node7",
        ),
    ],
)
def test_a_name_that_does_not_mean_this_host_is_found(
    monkeypatch, addresses, text, step
):
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    monkeypatch.setattr(network, "_addresses", lambda _: addresses)
    failure = check_own_name()
    assert str(failure) == f"this host cannot connect to itself at {text}"
    assert failure.step.startswith(step)


def test_one_address_of_this_host_among_those_of_its_name_is_enough(monkeypatch):
    addresses = ["192.0.2.77", "127.0.0.1"]
    monkeypatch.setattr(network, "_addresses", lambda _: addresses)
    assert check_own_name() is None
