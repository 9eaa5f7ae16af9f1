"""The staged process group on a simulated device without collectives, and on one that also has streams."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

CHECKS = "simulated_checks.staged"
#: Devices, and the ranks that meet; three by night.
GROUPS = [
    ("plain", 2),
    pytest.param("plain", 3, marks=pytest.mark.nightly(reason="a third rank; by day two")),
    ("acme", 2),
]


@pytest.mark.parametrize(("vendor", "processes"), GROUPS)
@pytest.mark.parametrize("check", [":every_collective", "_reductions:reductions"])
def test_equals_gloo(check, vendor, processes, simulated):
    run = simulated(vendor, f"{CHECKS}{check}", vendor, processes=processes, timeout=300)
    assert [answer["rank"] for answer in run.answers] == list(range(processes))
    assert all(answer["comparisons"] > 500 for answer in run.answers)


@pytest.mark.parametrize("vendor", ["plain", "acme"])
def test_calls_that_nothing_waits_for_are_done_in_order(vendor, simulated):
    answers = simulated(vendor, f"{CHECKS}_life:in_order", vendor, processes=2).answers
    # Two for the default group, and none of the one that was destroyed, or had no asynchronous call.
    assert answers == [{"rank": rank, "threads": 2} for rank in range(2)]


def test_a_destroyed_group_leaves_no_thread(simulated):
    for answer in simulated("plain", f"{CHECKS}_life:ended", "plain", processes=2).answers:
        assert (answer["before"], answer["after"]) == (2, 0)
        assert "the process group has been destroyed" in answer["late"]


def test_a_rank_that_does_not_come_is_said(simulated):
    answers = simulated("plain", f"{CHECKS}_life:lost", "plain", processes=2).answers
    assert [kind for kind, _ in answers[0]["said"]] == ["CommunicationError"] * 2
    first = answers[0]["said"][0][1]
    for words in ("rank 0 of 2, staged over gloo for plain", "all_reduce of 1 tensor (float32), 16 bytes",
                  "imed out", "check what they printed"):  # fmt: skip
        assert words in first


def test_what_cannot_be_done_is_said_before_it_is_begun(simulated):
    for said in simulated("plain", f"{CHECKS}_life:refused", "plain", processes=2).answers:
        assert said["sizes"] == "ValueError: 2 parts of 4 do not add up to 12: expected 8 in all"
        assert said["splits"].startswith(
            "ValueError: splits [2, 2] for 2 ranks do not add up to dimension 0, which is 2"
        )
        assert said["sparse"].startswith(
            "UnsupportedError: a tensor of layout torch.sparse_coo cannot be staged"
        )


@pytest.mark.parametrize(("vendor", "processes"), GROUPS)
def test_data_parallel_training_equals_the_cpu(vendor, processes, simulated):
    run = simulated(vendor, f"{CHECKS}_training:data_parallel", vendor, processes=processes)
    assert run.answers == [{"equal": True}] * processes


def test_fully_sharded_training_equals_the_cpu(simulated):
    """On mlu's module: FSDP2 takes streams from `torch.<device>`, and asks nobody else for them."""
    run = simulated("mlu", f"{CHECKS}_training:fully_sharded", "mlu", processes=2)
    assert run.answers == [{"equal": True}] * 2
