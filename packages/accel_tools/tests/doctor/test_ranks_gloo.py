"""Ranks of a job that connect over gloo before their script starts."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from accel_tools.doctor.ranks_gloo import _Attempt, _InterfaceSearch

CODE = """
import sys
from datetime import timedelta
from torch.distributed import FileStore
from accel_tools.doctor.ranks_gloo import connect_over_gloo
from accel_train.launch.rendezvous import Rank
number, path = int(sys.argv[1]), sys.argv[2]
store = FileStore(path, 2)
store.set_timeout(timedelta(seconds=60))
lines = connect_over_gloo(store, Rank(number, 2, None, "h"))
print("\\n".join(lines))
"""


def attempt(rank, error="", *, host="a", variable="", interfaces=("lo", "eth0")):
    return _Attempt(rank, host, variable, list(interfaces), error)


def test_ranks_that_connect_at_once_are_not_mentioned():
    search = _InterfaceSearch()
    assert search.next_attempt([attempt(0), attempt(1)], 2) == "/end"
    assert search.lines() == []


def test_an_interface_of_all_hosts_is_proven():
    search = _InterfaceSearch()
    others = {"host": "b", "interfaces": ("eth1", "eth0", "lo")}
    failed = [attempt(0), attempt(1, "refused", **others)]
    assert search.next_attempt(failed, 2) == "eth0"  # not lo, as there are two hosts
    assert search.next_attempt([attempt(0), attempt(1, **others)], 2) == "/original"
    assert search.next_attempt(failed, 2) == "/end"
    assert search.lines() == [
        "the ranks cannot connect over gloo: rank 1 (host b): refused",
        "  Proven: with the network interface eth0, the ranks connect",
        "  Next step: export GLOO_SOCKET_IFNAME=eth0",
    ]


def test_ranks_that_connect_only_sometimes_prove_nothing():
    search = _InterfaceSearch()
    well = [attempt(0), attempt(1)]
    assert search.next_attempt([attempt(0), attempt(1, "refused")], 2) == "lo"
    assert search.next_attempt(well, 2) == "/original"
    assert search.next_attempt(well, 2) == "/end"
    assert search.lines()[1:] == ["  The ranks connected when they tried again"]


def test_ranks_that_never_connect_name_what_was_tried():
    search = _InterfaceSearch()
    failed = [attempt(0), attempt(1, "refused")]
    assert [search.next_attempt(failed, 2) for _ in range(3)] == ["lo", "eth0", "/end"]
    assert search.lines()[1:] == [
        "  Changes without effect: with the network interface lo, with the network interface eth0"
    ]


def test_nothing_is_tried_where_a_rank_has_ended():
    assert _InterfaceSearch().next_attempt([attempt(0, "refused")], 2) == "/end"


def test_a_variable_with_a_wrong_interface_is_proven_between_processes(tmp_path):
    pytest.importorskip("torch")
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": "eth99"}

    def run(number):
        command = [sys.executable, "-c", CODE, str(number), str(tmp_path / "store")]
        return subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    lines = first.splitlines()
    assert "GLOO_SOCKET_IFNAME='eth99'" in lines[0]
    assert lines[1:] == [
        "  Proven: without GLOO_SOCKET_IFNAME, the ranks connect",
        "  Next step: unset GLOO_SOCKET_IFNAME",
    ]
    assert second.strip() == ""
