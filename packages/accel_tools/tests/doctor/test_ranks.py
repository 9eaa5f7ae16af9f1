"""What `accel run --doctor` reports of ranks: differences, absent ranks, and when no script starts."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from accel_tests import children

from accel_tools.doctor.ranks import RankReport, compare_ranks
from accel_train.launch.agreement import exchange_records
from accel_train.launch.rendezvous import Rank
from accel_train.launch.worker import REFUSED


def looked(rank, host="a", problem="", **facts):
    return RankReport(
        rank,
        host,
        {"accelerator": "npu (accel-npu 1.0), 8 devices", "torch": "2.9", **facts},
        problem,
    )


def test_the_same_everywhere_is_one_line():
    assert compare_ranks([looked(0), looked(1, "b")], 2, 30) == (
        ["no differences between the 2 ranks: npu (accel-npu 1.0), 8 devices, torch 2.9"], False,
    )  # fmt: skip
    assert compare_ranks([looked(0)], 1, 30)[0][0].startswith(
        "there is only one rank: npu"
    )


def test_differences_name_the_ranks_and_the_hosts_that_have_them():
    seen = [
        looked(0),
        looked(1),
        looked(2, "b", torch="2.8"),
        looked(3, "b", torch="2.8", HCCL_X="1"),
    ]
    assert compare_ranks(seen, 4, 30) == (
        [
            "2 differences between the ranks",
            "  torch: 2.9 on ranks 0, 1 (host a); 2.8 on ranks 2, 3 (host b)",
            "  HCCL_X: none on ranks 0, 1, 2 (host a, b); 1 on rank 3 (host b)",
        ],
        False,
    )


def test_a_rank_that_cannot_answer_is_named_and_scripts_start():
    lines, refused = compare_ranks([looked(0), looked(2)], 4, 30)
    assert lines == [
        "ranks 1, 3 of 4 did not respond within 30 s; the script starts anyway",
        "no other difference between the ranks",
    ]
    assert not refused


def test_no_script_starts_where_one_rank_can_choose_nothing():
    lines, refused = compare_ranks(
        [looked(0), looked(1, "b", problem="npu is not usable.\nmore")], 2, 30
    )
    assert lines == [
        "rank 1 (host b) cannot choose an accelerator: npu is not usable",
        "no other difference between the ranks",
        (
            "no script was started. Next step: run `accel doctor` on the host of the rank that has no "
            "accelerator"
        ),
    ]
    assert refused


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[1, 2, 3]",
        b"[" * 10000,
        b'["h", {"a": "b"}]',
        b'["h", null, ""]',
    ],
)
def test_whatever_a_rank_leaves_is_read(data):
    assert "unreadable" in RankReport.read(3, data).facts["report"]


def test_others_words_are_cut_and_cleaned():
    left = json.dumps(
        ["h\x1b[2J", {f"{n}": "x" * 9999 for n in range(999)}, "no\n\x07"]
    ).encode()
    read = RankReport.read(3, left)
    assert read.host == "h\\x1b[2J"
    assert read.problem == "no \\x07"
    assert len(read.facts) == 400
    assert set(map(len, read.facts.values())) == {500}


def test_ranks_meet_in_a_store_in_which_others_have_met_before():
    """The agreement that follows uses the same store; a rank that is late is absent from the verdict."""
    pytest.importorskip("torch")
    from torch.distributed import HashStore

    store = HashStore()
    store.set_timeout(timedelta(seconds=20))

    def of(ranks, timeout):
        got = {}

        def one(rank):
            me = Rank(rank, 3, None, "h")
            got[rank] = exchange_records(
                store,
                me,
                f"of {rank}",
                lambda left: repr(sorted(left.items())),
                timeout,
            )

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, ranks))
        return {rank: exchanged.verdict for rank, exchanged in got.items()}

    whole = b"[(1, b'of 1'), (2, b'of 2')]"
    assert of(range(3), 20) == {0: whole, 1: whole, 2: whole}
    assert of((0, 1), 0.5)[1] == b"[(1, b'of 1')]"
    assert of(range(3), 20) == {0: whole, 1: whole, 2: whole}


ALONE = "import sys\nfrom accel_tools.doctor.ranks import main\nsys.exit(main([]))"


def test_a_rank_that_can_choose_nothing_refuses(torch_world):
    torch_world.backend("npu", 700)
    place = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }
    done = torch_world.child(
        ALONE, variables={**place, "DS_ACCELERATOR": "npu"}
    ).succeeded()
    assert done.stderr.startswith(
        "accel run --doctor: there is only one rank: npu (accel-npu 1.0)"
    )
    done = torch_world.child(ALONE, variables={**place, "DS_ACCELERATOR": "nobodys"})
    assert done.returncode == REFUSED
    assert "rank 0 (host " in done.stderr
    assert ") cannot choose an accelerator: DS_ACCELERATOR='nobodys'" in done.stderr
    # What is no rank cannot compare itself, and that is no reason not to start.
    done = torch_world.child(ALONE).succeeded()
    assert (
        "this rank was not compared with the other ranks: RANK, WORLD_SIZE, LOCAL_RANK"
        in done.stderr
    )


@pytest.mark.parametrize(("status", "starts"), [(0, True), (REFUSED, False), (3, True)])
def test_the_worker_starts_the_script_unless_it_is_refused(tmp_path, status, starts):
    (tmp_path / "first.py").write_text(
        f"import sys\nprint(sys.argv[1:], flush=True)\nsys.exit({status})"
    )
    rank = {"device": "cpu", "cores": "", "environment": {"MINE": "1"}}
    plan = json.dumps({"launcher": os.getpid(), "started": "", "ranks": [rank]})
    words = [f"--plan={plan}", "--before=first", "--command", "echo", "ran"]
    environ = {
        **children.clean_environment(LOCAL_RANK="0"),
        "PYTHONPATH": str(tmp_path),
    }
    done = children.run_python(["-m", "accel_train.launch.worker", *words], environ)
    assert done.stdout.splitlines() == ["['MINE']", "ran"][: 1 + starts]
    assert (done.returncode == 0) is starts
    assert ("first exited with status 3; the script starts anyway" in done.stderr) is (
        status == 3
    )
