"""`init_process_group` in real ranks over gloo: start, agreement, end."""

import re
import socket

import pytest

HOST = socket.gethostname()

SUM = """
def total(rank):
    value = torch.full((2,), rank.rank + 1.0, device=rank.device)
    torch.distributed.all_reduce(value)
    return value.tolist()
"""
#: Rank 1 comes late, and has written its file when rank 0 goes on.
START = """
late = os.environ["MASTER_PORT"]
with init_process_group(timeout=30) as rank:
    print(rank.rank, rank.local_rank, rank.world_size, rank.device, rank.backend, total(rank), rank._timeout)
    print(rank)
    if not rank.is_main:
        time.sleep(0.3)
        open(late, "w").close()
    rank.barrier()
    rank.print("seen:", os.path.exists(late), end="!", sep=" ")
    rank.print(rank.is_main, file=sys.stdout)
assert not torch.distributed.is_initialized()
"""
FORGOTTEN = (
    "rank = init_process_group(timeout=seconds(30))\nassert total(rank) == [3.0, 3.0]"
)
#: The barrier: gloo fails on a rank that still connects while another destroys its group already.
DESTROYED = """
with init_process_group() as rank:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""
TORCHS_OWN = """
number, method = int(os.environ["NUMBER"]), "file://" + os.path.abspath("meeting")
place = dict(rank=number, world_size=2, timeout=seconds(30))
with init_process_group(init_method=method, group_name="", **place) as rank:
    assert total(rank) == [3.0, 3.0]
store = torch.distributed.FileStore("store", 2)
with init_process_group(store=store, **place) as rank:
    assert total(rank) == [3.0, 3.0] and rank.local_rank == 0
"""
UNSET = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"), "<unset>")
#: Nor does a pin that cannot be honoured, which the block is there to get around, keep a rank away.
OVERRIDDEN = """
import accel_core, accel_core.current
with accel_core.use_accelerator("cpu"), init_process_group() as rank:
    print(rank.backend, accel_core.current._chosen)
"""

TOLD = "{n} {n} 2 cpu gloo [3.0, 3.0] 0:00:30\n<RankContext rank {n} of 2 on cpu over gloo>\n"


@pytest.mark.parametrize(
    ("code", "each", "printed"),
    [
        (START, [], [f"{TOLD.format(n=0)}seen: True!True\n", TOLD.format(n=1)]),
        (FORGOTTEN, [], ["", ""]),
        (DESTROYED, [], ["", ""]),
        (TORCHS_OWN, [{"NUMBER": "0", **UNSET}, {"NUMBER": "1", **UNSET}], ["", ""]),
        (OVERRIDDEN, [{}, {"DS_ACCELERATOR": "nowhere"}], ["gloo None\n"] * 2),
    ],
    ids=[
        "start",
        "the end forgotten",
        "destroyed",
        "torch's own arguments",
        "overridden",
    ],
)
def test_ranks_come_and_go_without_a_word(ranks, code, each, printed):
    ended = ranks(SUM + code, len(printed), each)
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * len(printed)
    assert [end.stdout for end in ended] == printed


def test_without_a_block_and_one_group_after_another(ranks):
    """Every round meets at the same port, which is free whenever a rank has left, whoever holds a group."""
    ended = ranks(
        SUM
        + """
import socket
held = []
def one_round():
    rank = init_process_group("gloo", timeout=seconds(30))
    assert total(rank) == [3.0, 3.0]
    held[:] = [torch.distributed.group.WORLD]
    rank.shutdown()
    rank.shutdown()
    return rank.rank
for _ in range(8):
    one_round()
# An error waits for nobody: rank 1 comes again while rank 0 still has its old store.
try:
    with init_process_group(timeout=seconds(30)) as rank:
        time.sleep(0 if rank.rank else 1.5)  # a heartbeat later
        raise KeyError("mine")
except KeyError:
    if one_round() == 0:
        socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"]))).close()
"""
    )
    assert [end.returncode for end in ended] == [0, 0], ended
    assert (
        ended[1].stderr.count("[c10d]") <= 1
    )  # torch's word about the old store that was closed
    assert "Traceback" not in ended[1].stderr
    assert ended[0].stderr.splitlines() == [
        f"rank 1 (host {HOST}) ended with KeyError: 'mine'"
    ]


# --- what the ranks must agree on -----------------------------------------------------------------------

JOIN = "init_process_group(timeout=seconds(30)).shutdown()"
ALREADY = "torch.distributed already has a process group. Call init_process_group() only once."
OF_RANK_1 = "rank 1 (host {host}) cannot start"
IN_RANK_1 = "if os.environ['RANK'] == '1':\n    "
DRIVER = f"import accel_core.current as current\ndef broken():\n    raise OSError('gone')\n{IN_RANK_1}current"


def message_of(ended):
    """The one that every rank ends with, without its host's name."""
    assert {end.returncode for end in ended} == {1}, ended
    (message,) = {
        end.stderr.rpartition("RankMismatchError: ")[2].strip() for end in ended
    }
    return message.replace(f" (host {HOST})", "")


def test_ranks_with_different_backends_are_told_which_and_why(ranks, cpu_backend):
    message = message_of(
        ranks(JOIN, 2, [{**cpu_backend("other"), "DS_ACCELERATOR": ""}])
    )
    assert (
        "rank 0: other (accel-other 1.0) over gloo, the usable backend with the highest priority"
        in message
    )
    assert re.search(
        r"rank 1: cpu \(accel-core .*\) over gloo, pinned by DS_ACCELERATOR='cpu'",
        message,
    )


@pytest.mark.parametrize(
    ("code", "variables", "said"),
    [
        (
            JOIN,
            {"DS_ACCELERATOR": "nowhere"},
            "no installed distribution declares nowhere",
        ),
        (
            JOIN,
            {"LOCAL_RANK": "first"},
            "LOCAL_RANK='first' is not valid, expected a whole number",
        ),
        (f"{DRIVER}.get_accelerator = broken\n{JOIN}", {}, "OSError: gone"),
    ],
)
def test_a_rank_that_cannot_start_is_named_on_every_rank(ranks, code, variables, said):
    message = message_of(ranks(code, 2, [{}, variables]))
    assert message.startswith("rank 1 cannot start: ")
    assert said in message


REFUSED_BY_TORCH = """
own = {"nonsense": 1} if os.environ["RANK"] == "1" else {}
try:
    init_process_group(timeout=seconds(4), silence=30, **own)
except Exception as error:
    print(type(error).__name__, getattr(error, "ranks", ()), error)
    time.sleep(0 if own else 1)
"""
GROUP_ALREADY = f"""
{IN_RANK_1}alone = torch.distributed.HashStore()
{IN_RANK_1}torch.distributed.init_process_group("gloo", store=alone, rank=0, world_size=1)
try:
    init_process_group(timeout=seconds(600))
except Exception as error:
    print(type(error).__name__, getattr(error, "ranks", ()), error)
"""


@pytest.mark.parametrize(
    ("code", "others", "own"),
    [
        (
            REFUSED_BY_TORCH,
            "RankLostError (1,) rank 1 (host {host}) ended with TypeError: ",
            "TypeError () ",
        ),
        (
            GROUP_ALREADY,
            f"RankMismatchError () {OF_RANK_1}: {ALREADY}",
            f"LaunchError () {ALREADY}",
        ),
    ],
)
def test_a_rank_keeps_its_error_which_the_others_hear_of(ranks, code, others, own):
    zero, one = ranks(code)
    assert zero.stdout.startswith(others.format(host=HOST))
    assert one.stdout.startswith(own)


def test_a_rank_that_never_comes_is_missed_within_the_timeout(ranks):
    ended = ranks(
        "if os.environ['RANK'] != '1':\n    init_process_group(timeout=seconds(3))"
    )
    assert ended[0].returncode == 1
    assert (
        f"RankLostError: rank 0 (host {HOST}) did not meet the other ranks at 127.0.0.1:"
        in ended[0].stderr
    )
    assert "within 3 s" in ended[0].stderr, ended[0].stderr


# --- ranks that are lost --------------------------------------------------------------------------------

WORK = """
import ctypes, signal, subprocess
def work(rank):
    for _ in range(1000):
        torch.distributed.all_reduce(torch.ones(4))
        time.sleep(0.01)
"""
#: Seconds for the start of a job and the end of its processes, on a loaded machine.
START_AND_END = 4
#: Seconds without a heartbeat after which a rank is lost; it must be named within twice that time.
SILENCE = 2
KILLED = f"""
with init_process_group(timeout=seconds(20), silence={SILENCE}) as rank:
    torch.distributed.all_reduce(torch.ones(1))
    if rank.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    work(rank)
"""
STOPPED = f"""
with init_process_group(timeout=seconds({2 * SILENCE}), silence={SILENCE}) as rank:
    torch.distributed.all_reduce(torch.ones(1))
    if rank.rank == 2:
        waker = subprocess.Popen(["sh", "-c", f"sleep {5 * SILENCE}; kill -KILL {{os.getpid()}}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    work(rank)
"""
ABSENT_AT_THE_END = f"""
with init_process_group(timeout=seconds(30), silence={SILENCE}) as rank:
    torch.distributed.barrier()
    if rank.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""
#: Each rank prints its seconds from here to its end.
TIMED = """
began = time.monotonic()
import atexit
atexit.register(lambda: print(f"{time.monotonic() - began:.1f}"))
"""


@pytest.mark.parametrize(
    ("code", "most"),
    [
        (KILLED, 2 * SILENCE),
        # First the collective waits for its timeout.
        (STOPPED, 4 * SILENCE),
        (ABSENT_AT_THE_END, 2 * SILENCE),
    ],
    ids=["killed", "stopped", "killed while the others end"],
)
def test_a_rank_without_heartbeats_is_named_by_every_other_rank(ranks, code, most):
    ended = ranks(WORK + TIMED + code, 3)
    assert ended.pop(2).returncode == -9
    lost = f"rank 2 (host {HOST}) has sent no heartbeat for {SILENCE} s"
    for end in ended:
        assert end.returncode == 1
        # The log of the heartbeats' thread, and then the error.
        assert end.stderr.startswith(f"{lost}\n")
        assert f"RankLostError: {lost}" in end.stderr
        assert "[c10d]" not in end.stderr
        # Torch's own error is kept, where there is one.
        is_cause = "The above exception was the direct cause" in end.stderr
        assert is_cause == (code is not ABSENT_AT_THE_END)
        assert float(end.stdout) < most + START_AND_END


RANK_0_KILLED = """
with init_process_group(timeout=seconds(20), silence=10) as rank:
    torch.distributed.barrier()
    if rank.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_loss_of_rank_0_and_its_store_is_named(ranks):
    ended = ranks(WORK + RANK_0_KILLED, 3)
    assert ended[0].returncode == -9
    for end in ended[1:]:
        assert (
            f"RankLostError: rank 0 (host {HOST}) has ended, or its host is lost: the job's store has closed"
            in end.stderr
        )


RANK_0_STOPPED = f"""
with init_process_group(timeout=seconds(30), silence={SILENCE}) as rank:
    torch.distributed.barrier()
    if rank.rank == 0:
        waker = subprocess.Popen(["sh", "-c", f"sleep {4 * SILENCE}; kill -KILL {{os.getpid()}}"])
        os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_store_that_does_not_answer_is_a_loss_of_rank_0(ranks):
    """As where the host of rank 0 has no network any more: nothing closes the connections."""
    ended = ranks(WORK + RANK_0_STOPPED, 3)
    for end in ended[1:]:
        assert (
            f"RankLostError: rank 0 (host {HOST}) has sent no heartbeat for {SILENCE} s: the job's store on "
            "its host does not respond" in end.stderr
        )


STORE_OF_ANOTHER_PROCESS = f"""
store = torch.distributed.FileStore("store", 2)
place = dict(rank=int(os.environ["RANK"]), world_size=2)
with init_process_group(store=store, timeout=seconds(30), silence={SILENCE}, **place) as rank:
    torch.distributed.barrier()
    if rank.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rank_0_is_watched_where_the_store_outlives_it(ranks):
    ended = ranks(WORK + STORE_OF_ANOTHER_PROCESS)
    lost = f"rank 0 (host {HOST}) has sent no heartbeat for {SILENCE} s"
    assert f"RankLostError: {lost}\n" in ended[1].stderr


#: Without a block, and so without anything that waits for the other rank.
WITHOUT_A_BLOCK = """
rank = init_process_group(timeout=seconds(20), silence=5)
torch.distributed.all_reduce(torch.ones(4))
if rank.rank == 1:
    raise ValueError("no such file")
time.sleep(3)
"""


def test_the_error_that_ended_a_rank_is_logged_by_the_others(ranks):
    ended = ranks(WITHOUT_A_BLOCK)
    assert "ValueError: no such file" in ended[1].stderr
    assert "RankLostError" not in ended[1].stderr
    assert ended[0].stderr == (
        f"rank 1 (host {HOST}) ended with ValueError: no such file\n"
    )


IN_A_COLLECTIVE = """
with init_process_group(timeout=seconds(20), silence=10) as rank:
    torch.distributed.all_reduce(torch.ones(4))
    if rank.rank == 1:
        raise ValueError("no such file")
    work(rank)
"""


def test_the_error_that_ended_a_rank_is_raised_by_the_others_at_once(ranks):
    ended = ranks(WORK + TIMED + IN_A_COLLECTIVE, 3)
    error = f"rank 1 (host {HOST}) ended with ValueError: no such file"
    for end in (ended[0], ended[2]):
        assert f"RankLostError: {error}\n" in end.stderr
        assert float(end.stdout) < 3 + START_AND_END


ERROR_WITHOUT_A_LOSS = """
with init_process_group(timeout=seconds(20), silence=0.5) as rank:
    torch.distributed.all_reduce(torch.ones(4))
    if rank.rank == 1:
        sparse = torch.ones(2).to_sparse()
        torch.distributed.all_reduce(sparse, torch.distributed.ReduceOp.MAX)
"""


def test_an_error_of_a_collective_without_a_lost_rank_stays_as_it_is(ranks):
    ended = ranks(ERROR_WITHOUT_A_LOSS)
    assert "RankLostError" not in ended[1].stderr
    assert "allreduce of sparse tensors only works with" in ended[1].stderr
    assert (
        f"RankLostError: rank 1 (host {HOST}) ended with RuntimeError: "
        in ended[0].stderr
    )


DATA_LOADER = """
with init_process_group(timeout=seconds(20), silence=10) as rank:
    torch.distributed.all_reduce(torch.ones(4))
    if rank.rank == 1:
        raise RuntimeError("DataLoader timed out after 5 seconds: its socket, connection reset")
"""


def test_an_error_that_is_not_of_a_collective_waits_for_nobody(ranks):
    ended = ranks(TIMED + DATA_LOADER)
    assert "RankLostError" not in ended[1].stderr
    assert float(ended[1].stdout) < 3 + START_AND_END


BUSY = """
with init_process_group(timeout=seconds(30), silence=1) as rank:
    torch.distributed.barrier()
    if rank.rank == 1:
        ctypes.PyDLL(None).usleep(2500000)  # with Python's lock in its hand
    torch.distributed.barrier()
    time.sleep(1)
"""


def test_a_rank_that_was_busy_may_come_back(ranks):
    ended = ranks(WORK + BUSY)
    assert [end.returncode for end in ended] == [0, 0], ended
    assert ended[0].stderr.splitlines() == [
        f"rank 1 (host {HOST}) has sent no heartbeat for 1 s",
        f"rank 1 (host {HOST}) sends heartbeats again",
    ]
    # It blames nobody for the time in which it read nothing itself.
    assert "silent" not in ended[1].stderr


LATE = """
with init_process_group(timeout=seconds(30), silence=10) as rank:
    torch.distributed.barrier()
    time.sleep(2 if rank.rank == 1 else 0)
"""


def test_a_rank_that_works_on_is_waited_for_at_the_end(ranks):
    ended = ranks(LATE)
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * 2


TOO_LATE = """
with init_process_group(timeout=seconds(2 if rank_number == 0 else 30), silence=10) as rank:
    torch.distributed.barrier()
    time.sleep(6 if rank.rank == 2 else 0)
"""


def test_a_rank_that_does_not_come_to_the_end_is_named_after_the_timeout(ranks):
    ended = ranks("rank_number = int(os.environ['RANK'])\n" + TOO_LATE, 3)
    late = f"rank 0 (host {HOST}) waited 2 s at the end of the job for rank 2 (still running or stopped)"
    assert f"RankLostError: {late}" in ended[0].stderr
    assert (
        f"RankLostError: rank 0 (host {HOST}) ended with RankLostError: {late}"
        in ended[1].stderr
    )


LEFT = """
rank = init_process_group(timeout=seconds(30))
torch.distributed.barrier()
if rank.rank == 0:
    rank.shutdown()
"""


def test_a_rank_that_finished_without_shutdown_is_named_at_the_end_alone(ranks):
    ended = ranks(LEFT)
    assert ended[1].returncode == 0
    assert ended[1].stderr == ""
    assert (
        f"RankLostError: rank 1 (host {HOST}) left without shutdown()"
        in ended[0].stderr
    )


FORKED = """
with init_process_group(timeout=seconds(30)) as rank:
    torch.distributed.barrier()
    child = os.fork()
    if child != 0:
        assert os.waitpid(child, 0)[1] == 0
        torch.distributed.barrier()
if child == 0:
    os._exit(0)
"""


def test_a_forked_child_that_leaves_the_block_ends_nothing(ranks):
    ended = ranks(FORKED)
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * 2
