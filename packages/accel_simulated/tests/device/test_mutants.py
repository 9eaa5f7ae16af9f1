"""Each broken accelerator is caught by the check of the conformance suite that is meant for it."""

import json
from pathlib import Path

from accel_tests.tools import TREE

CONFORMANCE = Path(__file__).parents[3] / "accel_testing" / "tests" / "conformance"


RECORD = TREE / "lab/records/mutants.json"


GENERATED = TREE / "lab/records/generated.json"


#: Checks that fail because they rely on what is broken: of `device_count` half of all do.
MOST_THAT_FOLLOW = 19


#: Claims that allocations wait rather than fail, that Triton works, and that the host clock tells how
#: long work takes.
CLAIMS = ("handles_memory_backpressure", "is_triton_supported", "use_host_timers")


MISSED = {f"{name}: claims what is not so" for name in CLAIMS}


def test_each_is_caught_by_what_is_meant_for_it(simulated):
    """The whole accelerator passes there; what else fails is on record, `./dev mutants` runs all with all."""
    function = "conformance_mutants.trying:meant_to"
    environ = {
        "ACCEL_SIMULATE_RACE": "1",
        "ACCEL_SIMULATE_MEMORY_MB": "1024,256",
    }  # as `accel verify` has it
    told = simulated(
        "acme", function, path=[CONFORMANCE], timeout=600, environ=environ
    ).answer
    assert [name for name, message in told["mutants"].items() if not message] == []
    assert told["whole"] == {}
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert {name: row["meant"] for name, row in record.items()} == told["meant"]


def test_samples_catch(simulated):
    """Each check of torch's samples finds the kernel that is broken, and names its operator."""
    told = simulated(
        "acme", "conformance_mutants.trying:samples_that_catch", path=[CONFORMANCE]
    ).answer
    for check, (whole, broken) in told.items():
        assert whole == "", check
        assert "of torch's samples of" in broken, check


def test_the_record():
    """None is caught by more than the few that rely on what is broken."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert len(record) >= 90
    for name, row in record.items():
        assert row["meant"] in row["failing"], name
        assert len(row["failing"]) - 1 <= MOST_THAT_FOLLOW, name


def test_of_those_that_are_made_by_rule_at_least_95_percent_are_caught():
    """The record of `./dev mutants`; what nothing catches is a claim that cannot be tried."""
    record = json.loads(GENERATED.read_text(encoding="utf-8"))
    assert len(record) >= 120
    missed = {name for name, row in record.items() if not row["failing"]}
    assert missed == MISSED
    assert len(missed) <= len(record) * 0.05
    assert [name for name, row in record.items() if "making it" in row["failing"]] == []
