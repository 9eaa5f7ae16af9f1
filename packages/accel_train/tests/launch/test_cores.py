"""Which cores each rank gets, read from a simulated `/sys`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_train.launch.cores import (
    format_ranges,
    numa_nodes,
    parse_ranges,
    physical_cores,
)
from accel_train.launch.plan import Cores, assign_cores


@pytest.fixture
def machine(computer):
    """Write a machine's `/sys`: NUMA nodes, and which cores are hyper-threads of one."""

    def write(nodes=None, siblings=None):
        for node, text in (nodes or {}).items():
            computer.write(f"sys/devices/system/node/node{node}/cpulist", f"{text}\n")
        for core, text in (siblings or {}).items():
            computer.write(
                f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list",
                f"{text}\n",
            )
        return computer.path

    return write


def ids(shares):
    return [share.ids for share in shares]


def test_ranks_go_to_the_node_of_their_device_and_share_it(machine):
    root = machine({0: "0-3", 1: "4-7"})
    shares = assign_cores([1, 1, 0, None], range(8), root)
    assert ids(shares) == [(4,), (5,), (0, 1, 2, 3), (6, 7)]
    assert [share.node for share in shares] == [1, 1, 0, 1]
    assert sum(share.threads for share in shares) == 8


def test_ranks_without_a_known_node_are_spread_over_all_nodes(machine):
    root = machine({0: "0-3", 1: "4-7"})
    assert assign_cores([None] * 2, range(8), root) == [
        Cores((0, 1, 2, 3), 4, 0),
        Cores((4, 5, 6, 7), 4, 1),
    ]
    assert ids(assign_cores([None] * 4, range(8), root)) == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]
    assert ids(assign_cores([None], range(8), root)) == [(0, 1, 2, 3)]


def test_hyper_threads_of_a_core_stay_together_and_count_once(machine):
    root = machine(
        {0: "0-7"}, {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
    )
    assert assign_cores([0, 0], range(8), root) == [
        Cores((0, 1, 4, 5), 2, 0),
        Cores((2, 3, 6, 7), 2, 0),
    ]
    assert physical_cores({7, 2, 3, 9}, root) == [(2,), (3, 7), (9,)]


def test_only_allowed_cores_are_given(machine):
    root = machine({0: "0-3", 1: "4-7"})
    assert ids(assign_cores([0, 1], {2, 3, 5}, root)) == [(2, 3), (5,)]
    # The device's node has no core that is allowed: the rank goes where there are some.
    assert ids(assign_cores([0], {5, 6}, root)) == [(5, 6)]


def test_more_ranks_than_cores_share_them_all(machine):
    assert (
        assign_cores([None] * 3, range(2), machine({0: "0-1"}))
        == [Cores((0, 1), 1, 0)] * 3
    )


def test_a_quota_of_the_control_group_limits_the_threads_not_the_cores(machine):
    root = machine({0: "0-15"})
    assert [
        share.threads for share in assign_cores([0, 0], range(16), root, quota=6.0)
    ] == [3, 3]
    assert [
        share.threads for share in assign_cores([0, 0], range(16), root, quota=0.5)
    ] == [1, 1]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-3\n4"]
)
def test_malformed_files_count_as_absent(machine, text):
    root = machine({0: text}, {0: text})
    assert numa_nodes(root) == {}
    assert ids(assign_cores([None, None], range(4), root)) == [(0, 1), (2, 3)]


@given(st.integers(1, 12), st.sets(st.integers(0, 63), min_size=1))
def test_no_core_is_lost_and_none_is_given_twice_where_there_are_enough(count, allowed):
    shares = assign_cores([None] * count, allowed, "/nonexistent")
    given_out = [core for share in shares for core in share.ids]
    assert set(given_out) == allowed
    if count <= len(allowed):
        assert len(given_out) == len(allowed)
        sizes = sorted(len(share.ids) for share in shares)
        assert sizes[-1] - sizes[0] <= 1
    assert all(share.threads >= 1 for share in shares)


@given(st.lists(st.integers(0, 500), unique=True).map(sorted))
def test_ranges_are_read_as_they_are_written(numbers):
    assert parse_ranges(format_ranges(numbers)) == (tuple(numbers) or None)


def test_only_folders_of_nodes_with_cores_are_nodes(machine):
    """The third has memory only, as with CXL or HBM."""
    assert numa_nodes(machine({0: "0-1", 1: "2", 2: "", "s": "3", "": "4"})) == {
        0: (0, 1),
        1: (2,),
    }
