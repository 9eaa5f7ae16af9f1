"""The kit's checks are right: each broken accelerator is caught by the one that is meant for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

CONFORMANCE = Path(__file__).parents[3] / "accel_testing" / "tests" / "conformance"
RECORD = CONFORMANCE / "mutants.json"
#: Checks that fail because they rely on what is broken: of `device_count` half of all do.
MOST_THAT_FOLLOW = 9


def test_each_is_caught_by_what_is_meant_for_it(simulated: Callable[..., Any]) -> None:
    """The whole accelerator passes there; what else fails is on record, `./dev mutants` runs all with all."""
    function = "conformance_mutants.trying:meant_to"
    told = simulated("acme", function, path=[CONFORMANCE], timeout=600).answer
    assert [name for name, message in told["mutants"].items() if not message] == []
    assert told["whole"] == {}
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert {name: row["meant"] for name, row in record.items()} == told["meant"]


def test_the_record() -> None:
    """None is caught by more than the few that rely on what is broken."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert len(record) >= 90
    for name, row in record.items():
        assert row["meant"] in row["failing"], name
        assert len(row["failing"]) - 1 <= MOST_THAT_FOLLOW, name
