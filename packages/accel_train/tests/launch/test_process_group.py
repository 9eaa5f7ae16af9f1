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
#: Rank 1 speaks for its host; rank 3 hears of none that does.
SPOKEN = """
import socket
from accel_train.launch import process_group, watch
watch._DIRECT, process_group._SPEAKER = 1, seconds(10)
socket.gethostname = lambda: os.environ["HOST"]
if os.environ["RANK"] == "3":
    process_group._ports_of_speakers = lambda *_: torch.distributed.HashStore()
    process_group._SPEAKER = seconds(0.1)
with init_process_group(timeout=30) as rank:
    rank.barrier()
    rank.print(sorted(rank._watch._lines), rank._watch._through)
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
        (
            SPOKEN,
            [{"HOST": "a"}, *[{"HOST": "b"}] * 3],
            ["[1, 3] {2: 1}\n", "", "", ""],
        ),
    ],
    ids=[
        "start",
        "the end forgotten",
        "destroyed",
        "torch's own arguments",
        "overridden",
        "spoken for",
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
        time.sleep(0 if rank.rank else 0.5)
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
        "rank 0: other (accel-other 1.0) over gloo, as the highest-ranking" in message
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
        f"RankLostError: rank 0 (host {HOST}) did not meet the 1 others at 127.0.0.1:"
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
KILLED = """
with init_process_group(timeout=seconds(20), silence=30) as rank:
    torch.distributed.all_reduce(torch.ones(1))
    if rank.rank == 2:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    work(rank)
"""
#: Rank 0, with the store in it, while a child that it forked lives on, as a data loader's does.
DEAD_AT_THE_END = """
with init_process_group(timeout=seconds(30), silence=15) as rank:
    torch.distributed.barrier()
    if rank.rank == 0:
        time.sleep(1)
        if os.fork() == 0:
            for number in range(3):
                os.close(number)  # else the test waits for what it may print
            time.sleep(60)
        os._exit(7)
"""


@pytest.mark.parametrize(
    ("code", "dead", "status"), [(KILLED, 2, -9), (DEAD_AT_THE_END, 0, 7)]
)
def test_a_rank_that_dies_is_named_at_once(ranks, code, dead, status):
    ended = ranks(WORK + code, 3)
    assert ended.pop(dead).returncode == status
    lost = f"rank {dead} (host {HOST}) ended without a message: it was killed, or it crashed"
    for end in ended:
        assert end.returncode == 1
        assert end.stderr.startswith(
            f"{lost}\n"
        )  # what the watch logs; nothing of torch's before it
        assert f"RankLostError: {lost}" in end.stderr
        assert "[c10d]" not in end.stderr or dead
        # Torch's own error is kept.
        assert "The above exception was the direct cause" in end.stderr or not dead


#: The watch needs no help from the rank to say it.
WITHOUT_A_BLOCK = """
rank = init_process_group(timeout=seconds(20), silence=5)
if rank.rank == 1:
    torch.distributed.all_reduce(torch.ones(4))
    raise ValueError("no such file")
try:
    work(rank)
finally:
    time.sleep(3)
"""


def test_what_ended_a_rank_is_told_by_the_others(ranks):
    ended = ranks(WORK + WITHOUT_A_BLOCK)
    assert "ValueError: no such file" in ended[1].stderr
    assert "RankLostError" not in ended[1].stderr
    assert (
        f"rank 1 (host {HOST}) ended with ValueError: no such file" in ended[0].stderr
    )


def test_a_rank_that_is_busy_or_stopped_is_waited_for_at_the_end(ranks):
    ended = ranks(
        WORK
        + """
for who in range(2):
    with init_process_group(timeout=seconds(30), silence=0.5) as rank:
        torch.distributed.barrier()
        if rank.rank == who == 0:  # whose store the others need
            waker = subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            waker.wait()
        elif rank.rank == who:
            ctypes.PyDLL(None).usleep(1500000)  # with Python's lock in its hand
"""
    )
    assert [end.returncode for end in ended] == [0, 0], ended
    for end, other in zip(ended, (1, 0), strict=True):
        # Once told, and nothing of torch's about a store.
        said = [
            line for line in end.stderr.splitlines() if "has answered again" not in line
        ]
        assert said == [f"rank {other} (host {HOST}) has been silent for 0.5 s"]
