"""The agreement over torch's in-memory store, without processes; and who a rank is."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from accel_core import LaunchError, RankLostError, RankMismatchError, SettingError
from accel_train import init_process_group
from accel_train.launch.agreement import CLOSING, OldStoreError, Record, agree
from accel_train.launch.process_group import _device_index
from accel_train.launch.rendezvous import Rank, read_rank

VARIABLES = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
}  # fmt: skip


@pytest.fixture
def store():
    pytest.importorskip("torch")
    from torch.distributed import HashStore

    made = HashStore()
    made.set_timeout(timedelta(seconds=20))
    return made


def record(rank, **more):
    return Record(
        rank, f"host{rank}", **{"backend": "cpu", "communication": "gloo", **more}
    )


def all_agree(store, records, timeout=20, world_size=0):
    """What each rank gets from `agree`, or the error it raises."""

    def one(mine):
        try:
            return agree(store, mine, world_size or len(records), timeout)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(records)) as pool:
        return list(pool.map(one, records))


# --- agreement ------------------------------------------------------------------------------------------


def test_all_ranks_learn_the_round_and_the_hosts(store):
    answers = all_agree(store, [record(rank) for rank in range(4)])
    assert answers == [answers[0]] * 4
    assert answers[0][1] == ["host0", "host1", "host2", "host3"]


def test_what_an_earlier_round_left_in_the_store_is_not_believed(store):
    """torchrun's agents keep one store over all restarts."""
    first = all_agree(store, [record(0), record(1), record(2)])
    store.set("token/2", "of a rank that died before it was answered")
    wrong = all_agree(store, [record(0), record(1), record(2, backend="npu")])
    assert all(isinstance(error, RankMismatchError) for error in wrong)
    third = all_agree(store, [record(0), record(1), record(2)])
    assert third == [third[0]] * 3
    assert third[0][0] != first[0][0]


def test_absent_ranks_are_named(store):
    words = r"ranks 1, 2, 3 of 4 did not start within 0.2 s"
    with pytest.raises(RankLostError, match=words) as raised:
        agree(store, record(0), 4, 0.2)
    assert raised.value.ranks == (1, 2, 3)


def test_a_silent_rank_0_is_named(store, monkeypatch):
    monkeypatch.setattr("accel_train.launch.agreement._GRACE_SECONDS", 0.1)
    words = r"rank 1 \(host host1\): rank 0 did not respond within 0.3 s"
    with pytest.raises(RankLostError, match=words) as raised:
        agree(store, record(1), 2, 0.2)
    assert raised.value.ranks == (0,)


def test_many_ranks_fill_one_line_each_kind(store):
    records = [
        record(rank, backend="cuda" if rank % 2 else "cpu") for rank in range(40)
    ]
    message = str(all_agree(store, records)[5])
    assert "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more (host host0, host2" in message
    assert len(message.splitlines()) == 4


def test_nccl_of_a_cuda_build_and_of_a_rocm_build_do_not_meet(store):
    """Both backends are `cuda`, of one plugin; torch's builds differ."""
    shared = {"backend": "cuda", "communication": "nccl"}
    builds = ("a CUDA build", "a ROCm build")
    errors = all_agree(
        store,
        [record(rank, build=build, **shared) for rank, build in enumerate(builds)],
    )
    for error in errors:
        assert isinstance(error, RankMismatchError)
        assert "rank 1 (host host1): cuda () over nccl of a ROCm build of torch" in str(
            error
        )
        assert str(error).endswith("ACCEL_COMMUNICATION_BACKEND=gloo")


def test_a_rank_that_is_late_is_waited_for(store):
    with ThreadPoolExecutor() as pool:
        zero = pool.submit(agree, store, record(0), 2, 20)
        store.set("token/1", "stale")
        time.sleep(0.3)
        assert (
            agree(store, record(1), 2, 20)[1] == zero.result()[1] == ["host0", "host1"]
        )


def test_a_rank_of_another_version_is_named_on_every_rank(store):
    """Its record has a field that this version does not know."""
    from torch.distributed import PrefixStore

    def join_as_rank_1():
        store.set("token/1", "a token")
        store.wait(["reply/a token"])
        own = PrefixStore(store.get("reply/a token").decode(), store)
        own.set("record/1", '{"rank": 1, "host": "b", "colour": "red"}')
        own.wait(["verdict"])
        own.add("verdict-read", 1)

    with ThreadPoolExecutor() as pool:
        pool.submit(join_as_rank_1)
        errors = all_agree(store, [record(0), record(2)], world_size=3)
    for error in errors:
        assert isinstance(error, RankMismatchError)
        assert str(error).startswith(
            "rank 1 (host unknown) cannot start: the rank's record in the store cannot be read: "
        )
        assert "'colour'" in str(error)
        assert str(error).endswith(
            "install the same version of accel-train on every host"
        )


def test_a_store_that_is_being_closed_is_not_used(store):
    store.set(CLOSING, "1")
    with pytest.raises(OldStoreError, match=r"^rank 1 \(host host1\): the store of"):
        agree(store, record(1), 2, 20)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"version": "1.1"}, "cpu"),
        ({"communication": "cpu:gloo"}, "over cpu:gloo"),
        (
            {"backend": "npu", "rejected": {"cpu": "no such file"}},
            "; cpu was not selected: no such file",
        ),
    ],
)
def test_what_differs_is_told(store, other, said):
    message = str(all_agree(store, [record(0), record(1, **other), record(2)])[2])
    assert "ranks 0, 2 (host host0, host2): cpu" in message
    assert "  rank 1 (host host1): " in message
    assert said in message.partition("rank 1")[2]
    assert "Install the same plugin version on every host, or select" in message


# --- rank -----------------------------------------------------------------------------------------------


def test_what_another_host_says_is_printed_without_what_a_terminal_obeys(store):
    evil = "\x1b]0;title\x07\nrank 0: all is well"
    rejected = {"cpu": evil}
    message = str(
        all_agree(
            store,
            [record(0), record(1, backend="npu", version=evil, rejected=rejected)],
        )[0]
    )
    assert "\x1b" not in message
    assert message.count(r"\x1b]0;title\x07 rank 0") == 2
    assert "\n" + "rank 0: all" not in message


def test_a_rank_is_read_from_torchruns_variables():
    found = read_rank(environ=VARIABLES)
    assert found.rank == 1
    assert found.world_size == 2
    assert found.local_rank == 0
    assert str(found) == f"rank 1 (host {found.host})"


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"RANK": ""}, LaunchError, r"^RANK is not set, .* accel run train\.py"),
        (
            {"LOCAL_RANK": "", "MASTER_ADDR": ""},
            LaunchError,
            "^LOCAL_RANK, MASTER_ADDR are not set",
        ),
        (
            dict.fromkeys(VARIABLES, ""),
            LaunchError,
            f"^{', '.join(VARIABLES)} are not set",
        ),
        (
            {"RANK": "5"},
            LaunchError,
            "rank 5 is not valid in a job of 2 ranks, expected 0 to 1",
        ),
        ({"RANK": "-1"}, SettingError, "RANK='-1' is not valid"),
        ({"WORLD_SIZE": "two"}, SettingError, "WORLD_SIZE='two' is not valid"),
        ({"LOCAL_RANK": "1.5"}, SettingError, "LOCAL_RANK='1.5' is not valid"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named(changed, error, said):
    with pytest.raises(error, match=said):
        read_rank(environ={**VARIABLES, **changed})


class Card:
    """As much of an accelerator as says which device a rank gets."""

    def __init__(self, count, name="card"):
        self.name, self._count = name, count

    def device_name(self):
        return self.name

    def device_count(self):
        return self._count


@pytest.mark.parametrize(
    ("count", "local_rank", "index"),
    [(1, 0, 0), (1, 3, 0), (1, None, 0), (4, 3, 3), (2, 0, 0)],
)
def test_a_rank_takes_its_own_device_or_the_only_one(count, local_rank, index):
    assert _device_index(Rank(0, 8, local_rank, "h"), Card(count)) == index


@pytest.mark.parametrize(
    ("count", "local_rank", "index"), [(0, 0, 0), (1, 3, 3), (2, 2, 2), (2, None, 0)]
)
def test_on_the_cpu_a_rank_takes_its_number_however_many_devices_are_counted(
    count, local_rank, index
):
    assert _device_index(Rank(0, 8, local_rank, "h"), Card(count, "cpu")) == index


@pytest.mark.parametrize(
    ("count", "local_rank", "message"),
    [
        (
            2,
            2,
            "LOCAL_RANK is 2, but card has 2 devices on this host, 0 to 1. Start at most 2 ranks per host",
        ),
        (
            2,
            None,
            "LOCAL_RANK is not set, and the job has 8 ranks, more than the 2 devices of card",
        ),
        (0, 0, "card has no device on this host"),
    ],
)
def test_a_rank_without_a_device_is_refused(count, local_rank, message):
    with pytest.raises(LaunchError, match=message):
        _device_index(Rank(0, 8, local_rank, "h"), Card(count))


# --- arguments ------------------------------------------------------------------------------------------


#: Times that are none, and arguments of another type.
WRONG = [
    ("silence", -1, LaunchError, "a number of seconds above 0"),
    ("timeout", 0, LaunchError, "a datetime.timedelta, or a number of seconds above 0"),
    ("timeout", float("nan"), LaunchError, ""),
    (
        "timeout",
        1e300,
        LaunchError,
        "a number of seconds that fits in a datetime.timedelta",
    ),
    (
        "timeout",
        "2 minutes",
        TypeError,
        "a datetime.timedelta, or a number of seconds above 0, not str",
    ),
    ("silence", "long", TypeError, "a number of seconds above 0, not str"),
    ("backend", 3, TypeError, "a torch.distributed backend"),
    ("rank", "0", TypeError, "this process's rank, an integer from 0"),
    ("world_size", 1.0, TypeError, "the number of ranks, not float"),
    ("init_method", 5, TypeError, "a URL"),
]


@pytest.mark.parametrize(("name", "value", "error", "expected"), WRONG)
def test_arguments_that_are_none_are_refused(name, value, error, expected):
    pytest.importorskip("torch")
    with pytest.raises(error) as refused:
        init_process_group(**{name: value})
    said = str(refused.value).removeprefix("init_process_group(").replace(")", "", 1)
    assert said.startswith(f"{name}={value!r} is not valid, expected {expected}")
