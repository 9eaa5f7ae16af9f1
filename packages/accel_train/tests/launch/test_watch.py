"""The watch over real connections, with all ranks in one process: one is silent while its lock is held."""

import contextlib
import logging
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from accel_tests import children
from accel_tests.processes import until

from accel_core import RankLostError
from accel_train.launch import line as lines
from accel_train.launch import watch
from accel_train.launch.watch import Watch


class Job:
    """The watches of a job's ranks on hosts host0, host1, …, by rank; not all of them need be made."""

    def __init__(self, size, silence):
        self._hosts, self._silence = [f"host{rank}" for rank in range(size)], silence
        self.made, self.ports = [], {}
        self.join(0)
        self.port = self.ports[0]

    def line(self, rank, to=0):
        line = lines.call(["127.0.0.1"], self.ports[to], "round", rank, 10)
        line.rank = to
        return line

    def join(self, rank):
        speaker, given = watch.speakers(self._hosts)[rank], {}
        if rank == 0 or watch.speakers(self._hosts).count(rank) > 1:
            given["listener"] = lines.listen()
            self.ports[rank] = given["listener"].getsockname()[1]
        if rank > 0:
            given["line"] = self.line(rank, 0 if speaker == rank else speaker)
            given["call"] = lambda timeout: lines.call(
                ["127.0.0.1"], self.port, "round", rank, timeout
            )
        self.made.append(
            Watch(
                rank, self._hosts, self._silence, name="round", library="gloo", **given
            )
        )
        self.made[-1].start()
        return self.made[-1]


@pytest.fixture
def alone():
    """`alone(size)`: a job of which only rank 0 is there."""
    pytest.importorskip("torch")
    jobs = []

    def make(size, silence=0.5):
        jobs.append(Job(size, silence))
        return jobs[-1]

    yield make
    for each in jobs:
        for made in reversed(each.made):
            made.stop()


@pytest.fixture(params=["direct", "spoken"])
def job(alone, request, monkeypatch):
    """`job(size)`: the watches of all ranks; in one, rank 1 speaks for all but rank 0, as for its host."""
    if request.param == "spoken":
        monkeypatch.setattr(
            watch, "speakers", lambda hosts: [0] + [1] * (len(hosts) - 1)
        )

    def make(size, silence=0.5):
        made = alone(size, silence)
        return [made.made[0], *map(made.join, range(1, size))]

    return make


# --- silence --------------------------------------------------------------------------------------------


def test_a_silent_rank_is_reported_by_all_and_may_come_back(job, caplog):
    caplog.set_level(logging.WARNING, "accel_train")
    zero, one, two = job(3)
    with two._changed:
        until(lambda: zero.trouble and one.trouble)
        for eye in (zero, one):
            loss = eye.loss()
            assert str(loss) == "rank 2 (host host2) has been silent for 0.5 s"
            assert loss.ranks == (2,)
            assert eye.loss(at_the_end=True) is None
        # Each logs in a thread of its own, after it knows.
        until(lambda: [r.getMessage() for r in caplog.records].count(str(loss)) >= 2)
        assert [r.getMessage() for r in caplog.records].count(str(loss)) == 2
    until(lambda: not zero.trouble and not one.trouble)
    until(lambda: "rank 2 (host host2) has answered again" in caplog.text)
    assert zero.loss() is None


def test_a_rank_that_never_comes_is_missed_and_rank_0_too(job, alone):
    waiting = alone(2).made[0]
    zero, one = job(2)
    with zero._changed:
        until(lambda: one.trouble and waiting.trouble)
        assert (one.loss().ranks, waiting.loss().ranks) == ((0,), (1,))


def test_a_process_that_was_away_itself_blames_nobody(job):
    zero, _one = job(2)
    with zero._changed:
        time.sleep(1.2)  # longer than the silence that counts as a loss
    for _ in range(30):
        assert not zero._matters
        time.sleep(0.05)


# --- ends -----------------------------------------------------------------------------------------------


def test_a_rank_that_has_gone_is_not_missed_before_the_end(job):
    zero, one = job(2)
    one.stop()
    time.sleep(1.2)
    assert not zero.trouble
    with pytest.raises(
        RankLostError, match=r"rank 1 \(host host1\) left without shutdown\(\)"
    ) as raised:
        zero.gather(30)
    assert raised.value.ranks == (1,)


def test_a_line_that_the_kernel_closes_is_a_loss_at_once(alone):
    made = alone(3, silence=30)
    zero, one = made.made[0], made.join(1)
    made.line(2).close()
    until(lambda: zero.trouble and one.trouble, timeout=5)
    for eye in (zero, one):
        with pytest.raises(
            RankLostError, match=r"rank 2 \(host host2\) ended without a message"
        ):
            eye.gather(30)


def test_all_come_to_the_end_and_leave_it_together(job):
    watches = job(3)
    ended = []

    def leave(watch):
        watch.gather(30)
        watch.part()
        ended.append(watch)
        watch.stop()

    zero, one, two = watches
    with ThreadPoolExecutor() as pool:
        pool.map(leave, (zero, one))
        with two._changed:
            until(
                lambda: zero.trouble and one.trouble
            )  # a silence, which ends nothing here
            assert not ended
        pool.submit(leave, two)
    assert len(ended) == 3
    assert ended[0] is zero  # which gives the store up, before the others go
    assert not any(each.loss(at_the_end=True) for each in watches)


def test_who_is_waited_for_is_told_by_every_rank(job):
    watches = job(4)
    said = {}

    def leave(watch, rank, timeout):
        try:
            watch.gather(timeout)
        except RankLostError as error:
            said[rank] = error

    with ThreadPoolExecutor() as pool:
        list(pool.map(leave, watches[:3], range(3), (30, 30, 1.5)))
    assert str(said[2]).startswith(
        "rank 2 (host host2) waited 1.5 s at the end for rank 3: still at work"
    )
    assert said[2].ranks == (3,)
    for rank in range(2):
        assert (
            "rank 2 (host host2) ended with RankLostError: rank 2 (host host2) waited"
            in str(said[rank])
        )


FORKED = """
import os, signal, threading, time
from accel_train.launch import line as lines
from accel_train.launch.watch import Watch
listener = lines.listen()
watch = Watch(0, ["host0", "host1"], 30, name="round", listener=listener)
watch.start()
line = lines.call(["127.0.0.1"], listener.getsockname()[1], "round", 1, 10)
held, done = threading.Event(), threading.Event()
def at_work():
    with watch._changed:
        held.set()
        done.wait()
threading.Thread(target=at_work, daemon=True).start()
held.wait()
before = watch._heard[1]
line.say("beat")
while watch._heard[1] == before:
    time.sleep(0.01)
line.say("beat")  # which the watch's thread, as it waits, leaves unread
if (child := os.fork()) == 0:
    signal.alarm(20)
    watch.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
done.set()
line.say("done")
with watch._changed:
    assert watch._changed.wait_for(lambda: watch.loss(at_the_end=True), 20)
print(watch.loss(at_the_end=True))
line.close()
watch.stop()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
def test_a_child_that_was_forked_while_the_watch_was_at_work_ends_by_itself():
    ended = children.run(FORKED, sys.path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "rank 1 (host host1) left without shutdown()\n"


# --- a rank that speaks for its host ---------------------------------------------------------------------


def killed(ended):
    """The kernel closes the lines of a killed process, which says nothing."""
    ended._stop.set()
    ended._there.send(b"!")
    ended._thread.join()
    for each in filter(
        None, (*ended._all_lines(), ended._listener, ended._here, ended._there)
    ):
        each.close()


def test_only_in_a_large_job_the_first_rank_of_a_host_speaks_for_it(monkeypatch):
    hosts = ["a", "a", "b", "b", "c", "b"]
    assert watch.speakers(hosts) == [0, 1, 2, 3, 4, 5]
    monkeypatch.setattr(watch, "_DIRECT", 5)
    assert watch.speakers(hosts) == [0, 1, 2, 2, 4, 2]


@pytest.mark.parametrize(
    ("ends", "silence"), [((1,), 0.5), ((1, 2), 0.5), ((2,), 30), ((0,), 30)]
)
@pytest.mark.parametrize("job", ["spoken"], indirect=True)
def test_a_loss_on_either_side_of_a_speaker_is_its_own_alone(job, ends, silence):
    watches = job(4, silence)
    until(lambda: len(watches[0]._through) == 2)
    assert set(watches[0]._lines) == {1}
    if len(ends) > 1:
        watches[ends[1]]._call = None  # it is killed before it calls
    for rank in ends:
        killed(watches[rank])
    eyes = [eye for rank, eye in enumerate(watches) if rank not in ends]
    if 1 in ends:
        until(lambda: set(watches[0]._lines) == {2, 3} - {*ends})
        time.sleep(1)  # longer than the silence that counts as a loss
    until(lambda: all(eye.trouble for eye in eyes))
    for eye in eyes:
        assert eye.loss().ranks == ends
        assert f"rank {ends[0]} (host host{ends[0]}) ended without a message" in str(
            eye.loss(at_the_end=True)
        )


@pytest.mark.parametrize("silent", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("job", ["spoken"], indirect=True)
def test_a_speaker_that_is_silent_silences_nobody_else(job, silent):
    zero, *others = job(4, silence=1)
    until(lambda: len(zero._through) == 2)

    def leave(watch):
        watch.gather(30)
        watch.part()
        watch.stop()

    with ThreadPoolExecutor() as pool:
        with contextlib.ExitStack() as held:
            for rank in silent:
                held.enter_context(others[rank - 1]._changed)
            left = [pool.submit(leave, each) for each in others]
            until(lambda: zero.trouble)
            time.sleep(0.5)
            assert zero.loss().ranks == silent
        until(lambda: not zero.trouble)
        time.sleep(
            0.5
        )  # until its speaker, which has come back, has ended with who has called since
        assert not zero.trouble
        for each in (pool.submit(leave, zero), *left):
            each.result(20)
    assert not any(eye.loss(at_the_end=True) for eye in (zero, *others))


def test_who_calls_when_all_have_come_to_the_end_learns_it(alone):
    made = alone(2)
    made.made[0]._all_leave = True
    one = made.join(1)
    until(lambda: one._all_leave)


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        RuntimeError(
            "DataLoader timed out after 5 seconds: its socket, connection reset"
        ),
    ],
)
def test_only_errors_of_collectives_are_waited_for(job, error):
    zero, one = job(2, silence=30)
    assert zero.explain(RankLostError("known already")) is None
    start = time.monotonic()
    assert zero.explain(error) is None
    assert time.monotonic() - start < 10
    until(lambda: one.trouble)
    assert (
        str(one.loss())
        == f"rank 0 (host host0) ended with {type(error).__name__}: {error}"
    )


def test_an_error_without_a_loss_behind_it_stays_and_is_told(job):
    zero, one = job(2)
    assert one.explain(RuntimeError("gloo: something else")) is None
    until(lambda: zero.trouble)
    assert "rank 1 (host host1) ended with RuntimeError: gloo: something else" in str(
        zero.loss()
    )


def test_what_torch_raises_below_a_collective_is_about_the_others(job):
    """Whatever its words are: vendors' libraries have their own."""
    zero, one = job(2)
    one.stop("ValueError: mine")
    import torch

    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    try:
        with pytest.raises(
            RuntimeError, match="allreduce of sparse tensors only works with"
        ) as raised:
            torch.distributed.all_reduce(
                torch.ones(2).to_sparse(), torch.distributed.ReduceOp.MAX
            )
    finally:
        torch.distributed.destroy_process_group()
    zero._libraries = None  # gloo's name is in the text
    assert zero.explain(raised.value).ranks == (1,)


# --- strangers ------------------------------------------------------------------------------------------


STRANGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"[" * 4000 + b"\n",
    b"x" * 10000,
    b'["hello", 5]\n',
)
STRANGE += (
    b'["hello", ["round", [1]]]\n',
    b'["hello", ["round"]]\n',
    b'["hello", ["round", true]]\n',
)


@pytest.mark.parametrize("said", STRANGE)
def test_a_stranger_is_sent_away(alone, said):
    made = alone(2, silence=30)
    with socket.create_connection(("127.0.0.1", made.port), timeout=10) as stranger:
        stranger.sendall(said)
        with contextlib.suppress(
            ConnectionResetError
        ):  # it closed with something of ours unread
            assert stranger.recv(100) == b""
    made.join(1)
    assert not made.made[0].trouble


def test_a_stranger_that_says_nothing_is_sent_away_at_the_end(alone):
    made = alone(2, silence=30)
    with socket.create_connection(("127.0.0.1", made.port), timeout=10) as stranger:
        until(lambda: len(made.made[0]._selector.get_map()) == 3)
        made.made[0].stop()
        assert stranger.recv(1) == b""


def test_a_rank_of_another_round_and_a_second_one_of_this_are_refused(alone):
    made = alone(2, silence=30)
    made.join(1)
    for name, rank in (("another", 1), ("round", 1), ("round", 0), ("round", 2)):
        with pytest.raises(TimeoutError, match=r"no answer within 0.2 s"):
            lines.call(["127.0.0.1"], made.port, name, rank, 0.2)


def test_an_address_that_refuses_is_passed_over(alone):
    made = alone(2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        lines.call(["127.0.0.1"], free, "round", 1, 0.3)
    with contextlib.closing(
        lines.call(["host.invalid", "127.0.0.1"], made.port, "round", 1, 10)
    ) as line:
        assert line.rank == 0


# --- more ranks than open files --------------------------------------------------------------------------


def test_ranks_that_do_not_fit_are_said_and_neither_lost_nor_spun_on(caplog):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    listener = lines.listen()
    held = [socket.create_connection(listener.getsockname()[:2]) for _ in range(40)]
    for rank, one in enumerate(held, 1):
        one.sendall(lines.message("hello", ["round", rank]))
    zero = Watch(0, ["host"] * 41, 0.5, name="round", listener=listener)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (listener.fileno() + 60, before[1]))
        assert lines.make_room(1) == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > listener.fileno() + 60
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (zero._there.fileno() + 10, before[1])
        )
        zero.start()
        until(lambda: zero._matters and len(zero._matters) == len(zero._lines))
        began = time.process_time()
        time.sleep(1)
        assert time.process_time() - began < 0.5
        assert len(zero._lines) == len(zero._matters) < 40
        assert (
            "cannot start. Raise the hard limit of open files on the host of rank 0: ulimit"
            in caplog.text
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in (*held, zero):
            getattr(each, "close", zero.stop)()
