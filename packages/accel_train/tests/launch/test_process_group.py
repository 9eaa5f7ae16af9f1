"""`init_process_group` in real ranks over gloo: start, agreement, end."""

from __future__ import annotations

import json
import re
import socket

import pytest

pytestmark = pytest.mark.slow
HOST = socket.gethostname()

SUM = """
def total(rank):
    value = torch.full((2,), rank.rank + 1.0, device=rank.device)
    torch.distributed.all_reduce(value)
    return value.tolist()
"""


def test_two_ranks_start_compute_and_end_without_a_word(ranks):
    ended = ranks(
        SUM
        + """
with init_process_group(timeout=seconds(30)) as rank:
    said = [rank.rank, rank.local_rank, rank.world_size, str(rank.device), rank.backend, total(rank)]
    print(json.dumps(said))
    print(repr(rank))
assert not torch.distributed.is_initialized()
"""
    )
    for number, end in enumerate(ended):
        assert (end.returncode, end.stderr) == (0, "")
        said, representation = end.stdout.splitlines()
        assert json.loads(said) == [number, number, 2, "cpu", "gloo", [3.0, 3.0]]
        assert representation == f"<RankContext rank {number} of 2 on cpu over gloo>"


def test_one_rank_prints_and_a_barrier_waits_for_all(ranks, tmp_path):
    """Rank 1 comes late, and has written its file when rank 0 goes on."""
    ended = ranks(
        f"late = {str(tmp_path / 'late')!r}"
        """
with init_process_group(timeout=seconds(30)) as rank:
    if not rank.is_main:
        time.sleep(0.3)
        open(late, "w").close()
    rank.barrier()
    rank.print("seen:", os.path.exists(late), end="!", sep=" ")
    rank.print(rank.is_main, file=sys.stderr)
"""
    )
    said = [(end.returncode, end.stdout, end.stderr) for end in ended]
    assert said == [(0, "seen: True!", "True\n"), (0, "", "")]


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
    assert ended[1].stderr.count("[c10d]") <= 1  # torch's word about the old store that was closed
    assert "Traceback" not in ended[1].stderr
    assert ended[0].stderr.splitlines() == [f"rank 1 (host {HOST}) ended with KeyError: 'mine'"]


def test_a_rank_that_forgets_the_end_ends_quietly(ranks):
    ended = ranks(SUM + "rank = init_process_group(timeout=seconds(30))\nassert total(rank) == [3.0, 3.0]")
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * 2


def test_a_group_that_the_user_destroyed_is_left_alone(ranks):
    # The barrier: gloo fails on a rank that still connects while another destroys its group already.
    body = "torch.distributed.barrier(); torch.distributed.destroy_process_group()"
    ended = ranks(f"with init_process_group() as rank:\n    {body}")
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * 2


def test_torchs_own_arguments_pass_through(ranks, tmp_path):
    ended = ranks(
        SUM + f"""
number = int(os.environ["NUMBER"])
method = "file://{tmp_path}/meeting"
place = dict(rank=number, world_size=2, timeout=seconds(30))
with init_process_group(init_method=method, group_name="", **place) as rank:
    assert total(rank) == [3.0, 3.0]
store = torch.distributed.FileStore("{tmp_path}/store", 2)
with init_process_group(store=store, **place) as rank:
    assert total(rank) == [3.0, 3.0] and rank.local_rank == 0
""",
        2,
        [{"NUMBER": "0"}, {"NUMBER": "1"}],
        RANK="<unset>", WORLD_SIZE="<unset>", LOCAL_RANK="<unset>", MASTER_ADDR="<unset>",
    )  # fmt: skip
    assert [(end.returncode, end.stderr) for end in ended] == [(0, "")] * 2


def test_a_second_group_beside_the_first_is_refused(ranks):
    (ended,) = ranks(
        """
from accel_core import LaunchError
with init_process_group() as rank:
    try:
        init_process_group()
    except LaunchError as error:
        print(error)
for wrong in (
    {"silence": 0}, {"silence": -1}, {"timeout": 0}, {"timeout": float("nan")}, {"timeout": 1e300},
    {"timeout": "2 minutes"}, {"silence": "long"}, {"backend": 3}, {"rank": "0"}, {"world_size": 1.0},
    {"init_method": 5},
):
    try:
        init_process_group(**wrong)
    except (LaunchError, TypeError) as error:
        print(type(error).__name__, error)
with init_process_group(timeout=30) as rank:
    print("timeout", rank._timeout)
""",
        1,
    )
    assert ended.returncode == 0, ended.stderr
    assert "already has a process group" in ended.stdout
    for line in (
        "LaunchError silence=-1 is not valid, expected seconds above 0",
        "LaunchError timeout=0 is not valid, expected a datetime.timedelta, or seconds above 0",
        "LaunchError timeout=nan is not valid",
        "LaunchError timeout=1e+300 is not valid, expected a time that a datetime.timedelta can hold",
        "timeout 0:00:30",
    ):
        assert line in ended.stdout, ended.stdout
    for given, expected in {
        "timeout='2 minutes'": "a datetime.timedelta, or seconds above 0, not str",
        "silence='long'": "seconds above 0, not str",
        "backend=3": "a name of torch.distributed's",
        "rank='0'": "this process's number",
        "world_size=1.0": "the number of ranks, not float",
        "init_method=5": "a URL",
    }.items():
        line = f"InvalidArgumentError init_process_group({given}) is not valid, expected {expected}"
        assert line in ended.stdout, ended.stdout


# --- what the ranks must agree on -----------------------------------------------------------------------

JOIN = "init_process_group(timeout=seconds(30)).shutdown()"


def refused(ended, kind="RankMismatchError"):
    """The message that all ranks raised."""
    said = {end.stderr.rpartition(f"accel_core.errors.{kind}: ")[2].strip() for end in ended}
    assert all(end.returncode == 1 for end in ended), ended
    assert len(said) == 1, said
    return said.pop()


def test_ranks_that_chose_different_backends_are_named_and_told_why(ranks, cpu_backend):
    there = cpu_backend("other")
    ended = ranks(JOIN, 2, [{**there, "DS_ACCELERATOR": ""}])
    message = refused(ended)
    assert (
        f"rank 0 (host {HOST}): other (accel-other 1.0) over gloo, as the highest-ranking usable one"
        in message
    )
    assert re.search(
        rf"rank 1 \(host {HOST}\): cpu \(accel-core .*\) over gloo, pinned by DS_ACCELERATOR='cpu'", message
    )
    assert "Install the same version everywhere, or pin" in message


def test_ranks_with_different_versions_of_a_plugin_are_refused(ranks, cpu_backend):
    message = refused(
        ranks(JOIN, 3, [cpu_backend("other"), cpu_backend("other", "1.1", "newer"), cpu_backend("other")])
    )
    assert f"ranks 0, 2 (host {HOST}): other (accel-other 1.0)" in message
    assert f"rank 1 (host {HOST}): other (accel-other 1.1)" in message


def test_ranks_with_different_communication_backends_are_refused(ranks):
    message = refused(ranks(JOIN, 2, [{}, {"ACCEL_COMMUNICATION_BACKEND": "cpu:gloo"}]))
    assert "over gloo" in message
    assert "over cpu:gloo" in message


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"DS_ACCELERATOR": "nowhere"}, "no installed distribution declares nowhere"),
        ({"ACCEL_COMMUNICATION_BACKEND": "smoke"}, "no communication backend 'smoke' here, expected one of"),
        ({"ACCEL_PROBE": "sideways"}, "ACCEL_PROBE='sideways' is not valid"),
        ({"LOCAL_RANK": "first"}, "LOCAL_RANK='first' is not valid, expected a whole number"),
    ],
)  # fmt: skip
def test_a_rank_that_cannot_start_is_named_on_every_rank(ranks, variables, reason):
    message = refused(ranks(JOIN, 2, [{}, variables]))
    assert message.startswith(f"rank 1 (host {HOST}) cannot start: ")
    assert reason in message


def test_a_rank_that_fails_otherwise_is_named_too(ranks):
    code = (
        "import accel_core.current as current\n"
        "def broken():\n    raise OSError('the driver is gone')\n"
        "if os.environ['RANK'] == '1':\n    current.get_accelerator = broken\n"
    )
    message = refused(ranks(code + JOIN))
    assert message == f"rank 1 (host {HOST}) cannot start: OSError: the driver is gone"


def test_a_rank_that_has_a_group_already_tells_the_others(ranks):
    code = """
if os.environ["RANK"] == "1":
    alone = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=alone, rank=0, world_size=1)
try:
    init_process_group(timeout=seconds(600))
except Exception as error:
    print(type(error).__name__, error)
"""
    first, second = ranks(code, 2)
    there = "torch.distributed already has a process group. Call init_process_group() only once."
    assert first.stdout == f"RankMismatchError rank 1 (host {HOST}) cannot start: {there}\n", first.stderr
    assert second.stdout == f"LaunchError {there}\n", second.stderr


def test_what_a_block_overrides_is_not_chosen_for_the_group(ranks):
    """Nor does a pin that cannot be honoured, which the block is there to get around, keep a rank away."""
    code = """
import accel_core, accel_core.current
with accel_core.use_accelerator("cpu"), init_process_group() as rank:
    print(rank.backend, accel_core.current._chosen)
"""
    ended = ranks(code, 2, [{}, {"DS_ACCELERATOR": "nowhere"}])
    assert [(end.stdout, end.returncode) for end in ended] == [("gloo None\n", 0)] * 2, ended


def test_a_rank_that_torch_refuses_keeps_its_error_which_is_the_others_loss(ranks):
    ended = ranks("""
own = {"nonsense": 1} if os.environ["RANK"] == "1" else {}
try:
    init_process_group(timeout=seconds(4), silence=30, **own)
except Exception as error:
    print(type(error).__name__, getattr(error, "ranks", ()), error)
    time.sleep(0 if own else 1)
""")
    there, refused = ended[0].stdout, ended[1].stdout
    assert refused.startswith("TypeError () "), ended
    assert "nonsense" in refused
    assert there.startswith(f"RankLostError (1,) rank 1 (host {HOST}) ended with TypeError: "), ended


def test_a_rank_that_never_comes_is_missed_within_the_timeout(ranks):
    ended = ranks("if os.environ['RANK'] != '1':\n    init_process_group(timeout=seconds(3))", 2)
    assert ended[0].returncode == 1
    assert f"RankLostError: rank 0 (host {HOST}) did not meet the 1 others at 127.0.0.1:" in ended[0].stderr
    assert "within 3 s" in ended[0].stderr, ended[0].stderr


def test_a_port_that_is_taken_is_named(ranks):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (ended,) = ranks("init_process_group()", 1, MASTER_PORT=str(port))
    assert ended.returncode == 1
    message = f"LaunchError: rank 0 (host {HOST}) cannot listen at 127.0.0.1:{port}: the port is in use"
    assert message in ended.stderr
    assert "every rank another port, with MASTER_PORT" in ended.stderr
    assert "RankLostError" not in ended.stderr


# --- ranks that are lost --------------------------------------------------------------------------------

WORK = """
def work(rank):
    for _ in range(1000):
        torch.distributed.all_reduce(torch.ones(4))
        time.sleep(0.01)
"""


def test_a_rank_that_is_killed_is_named_at_once(ranks):
    ended = ranks(
        WORK
        + """
import signal
with init_process_group(timeout=seconds(20), silence=30) as rank:
    torch.distributed.all_reduce(torch.ones(1))
    if rank.rank == 2:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        work(rank)
    finally:
        start = time.monotonic()
""",
        3,
    )
    assert ended[2].returncode == -9
    for end in ended[:2]:
        assert end.returncode == 1
        lost = f"rank 2 (host {HOST}) ended without a word: it was killed, or it crashed"
        assert end.stderr.startswith(f"{lost}\n")  # what the watch logs; nothing of torch's before it
        assert f"RankLostError: {lost}" in end.stderr
        assert "The above exception was the direct cause" in end.stderr  # torch's own error is kept


def test_what_ended_a_rank_is_told_by_the_others(ranks):
    ended = ranks(
        WORK
        + """
with init_process_group(timeout=seconds(20), silence=5) as rank:
    if rank.rank == 1:
        torch.distributed.all_reduce(torch.ones(4))
        raise ValueError("no such file")
    start = time.monotonic()
    work(rank)
"""
    )
    assert "ValueError: no such file" in ended[1].stderr
    assert "RankLostError" not in ended[1].stderr
    assert f"RankLostError: rank 1 (host {HOST}) ended with ValueError: no such file" in ended[0].stderr


def test_the_same_without_a_block(ranks):
    ended = ranks(
        WORK
        + """
rank = init_process_group(timeout=seconds(20), silence=5)
if rank.rank == 1:
    torch.distributed.all_reduce(torch.ones(4))
    raise ValueError("no such file")
try:
    work(rank)
finally:
    time.sleep(3)  # the watch needs no help from the rank to say it
"""
    )
    assert f"rank 1 (host {HOST}) ended with ValueError: no such file" in ended[0].stderr


def test_a_rank_that_does_not_come_to_the_end_is_named(ranks):
    ended = ranks("""
rank = init_process_group(timeout=seconds(3), silence=30)
if rank.rank == 1:
    time.sleep(8)
else:
    rank.shutdown()
""")
    assert ended[0].returncode == 1
    assert f"rank 0 (host {HOST}) waited 3 s at the end for rank 1: still at work" in ended[0].stderr


def test_a_rank_that_is_busy_or_stopped_is_waited_for_at_the_end(ranks):
    ended = ranks("""
import ctypes, signal, subprocess
for who in range(2):
    with init_process_group(timeout=seconds(30), silence=0.5) as rank:
        torch.distributed.barrier()
        if rank.rank == who == 0:  # whose store the others need
            waker = subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            waker.wait()
        elif rank.rank == who:
            ctypes.PyDLL(None).usleep(1500000)  # with Python's lock in its hand
""")
    assert [end.returncode for end in ended] == [0, 0], ended
    for end, other in zip(ended, (1, 0), strict=True):
        # Once told, and nothing of torch's about a store.
        said = [line for line in end.stderr.splitlines() if "has answered again" not in line]
        assert said == [f"rank {other} (host {HOST}) was not heard of for 0.5 s"]


def test_a_rank_that_dies_while_the_others_wait_at_the_end_is_named(ranks):
    """Rank 0, with the store in it, while a child that it forked lives on, as a data loader's does."""
    ended = ranks(
        """
with init_process_group(timeout=seconds(30), silence=15) as rank:
    torch.distributed.barrier()
    if rank.rank == 0:
        time.sleep(1)
        if os.fork() == 0:
            for number in range(3):
                os.close(number)  # else the test waits for what it may print
            time.sleep(60)
        os._exit(7)
""",
        3,
    )
    assert ended[0].returncode == 7
    lost = f"rank 0 (host {HOST}) ended without a word: it was killed, or it crashed"
    for end in ended[1:]:
        assert end.returncode == 1
        assert end.stderr.startswith(f"{lost}\n")
        assert f"RankLostError: {lost}" in end.stderr
        assert "[c10d]" not in end.stderr


def test_an_error_of_the_rank_itself_stays_what_it_is(ranks):
    (ended,) = ranks(
        """
with init_process_group(silence=60) as rank:
    start = time.monotonic()
    raise RuntimeError("shapes do not fit")
""",
        1,
        timeout=40,
    )
    assert ended.returncode == 1
    assert "RuntimeError: shapes do not fit" in ended.stderr
    assert "RankLostError" not in ended.stderr
