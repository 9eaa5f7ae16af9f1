"""Two distributions that declare one backend."""

import sys

import pytest
from accel_tests import plugins
from accel_tests.asking import chosen, error

from accel_core.errors import BackendConflictError
from accel_core.verdict import Status


@pytest.fixture
def rivals(torch_world):
    torch_world.backend("npu", 700, distribution="accel-npu")
    torch_world.backend("npu", 600, distribution="better-npu")
    return torch_world


def test_ranked_choice_skips_both_of_two_rivals(rivals):
    found = chosen()
    assert found.name == "cpu"
    conflicts = [v for v in found.verdicts if v.status is Status.CONFLICT]
    assert [v.provenance.distribution for v in conflicts] == ["accel-npu", "better-npu"]
    assert conflicts[0].reason == "better-npu 1.0 declares npu too"
    assert (
        conflicts[0].hint
        == "set DS_ACCELERATOR=npu@accel-npu, or name the other distribution in ACCEL_BLOCK"
    )


def test_rivals_that_rank_below_the_chosen_one_are_conflicts_in_the_record(rivals):
    rivals.backend("top", 999)
    assert [v.status for v in chosen().verdicts if v.name == "npu"] == [
        Status.CONFLICT
    ] * 2


def test_with_both_rivals_blocked_both_are_blocked(rivals):
    assert [
        v.status for v in chosen(ACCEL_BLOCK="npu").verdicts if v.name == "npu"
    ] == [Status.BLOCKED] * 2


def test_a_pin_to_rivals_that_are_both_blocked_is_a_conflict(rivals):
    assert isinstance(
        error(ACCEL_BLOCK="npu", DS_ACCELERATOR="npu"), BackendConflictError
    )


def test_a_pin_to_rivals_asks_which_is_meant(rivals):
    found = error(DS_ACCELERATOR="npu")
    assert isinstance(found, BackendConflictError)
    assert (
        "DS_ACCELERATOR='npu': several distributions declare npu: accel-npu 1.0 and better-npu 1.0."
        in str(found).replace(
            "better-npu 1.0 and accel-npu 1.0", "accel-npu 1.0 and better-npu 1.0"
        )
    )
    assert "npu@accel-npu" in str(found)
    assert "npu@better-npu" in str(found)
    assert not [m for m in sys.modules if m in ("accel_npu", "better_npu")]


def test_a_pin_to_rivals_under_other_entry_points_asks_too(torch_world):
    for name in ("one", "two"):
        torch_world.plugin(name, plugins.declaring(plugins.arguments("npu")))
    assert isinstance(error(DS_ACCELERATOR="npu"), BackendConflictError)


@pytest.mark.parametrize(
    "policy",
    [
        {"DS_ACCELERATOR": "npu@better-npu"},
        {"ACCEL_BLOCK": "npu@accel-npu"},
        {"ACCEL_ALLOW": "npu@Better_NPU,cpu"},
        {"ACCEL_BLOCK": "npu@accel-npu", "DS_ACCELERATOR": "npu"},
        {"ACCEL_ALLOW": "npu@better-npu", "DS_ACCELERATOR": "npu"},
    ],
)
def test_a_word_about_one_of_them_settles_it(rivals, policy):
    found = chosen(**policy)
    assert found.name == "npu"
    assert found.provenance.distribution == "better-npu"
