"""The search for the change that makes a failing program work."""

import threading
import time

import pytest

from accel_core import Backend, Provenance, Verdict, Visibility
from accel_tools.doctor import proofs
from accel_tools.doctor.experiments import cases
from accel_tools.doctor.experiments.cases import (
    Phase,
    describe_unproven,
    find_failed_programs,
)
from accel_tools.doctor.experiments.search import (
    Experiment,
    OutOfTimeError,
    Result,
    Search,
)
from accel_tools.doctor.experiments.trial import (
    Change,
    Device,
    Outcome,
    Program,
)
from accel_tools.doctor.records import Finding, Level

FAILED = Outcome(error="it fails")
WELL = Outcome(imported=("torch",))


def row(name, **fields):
    change = Change(unset_variables=frozenset({name}))
    return Experiment(change, name, lambda _: f"unset {name}", **fields)


def searched(rows, is_successful, deadline=None):
    """What a search finds where `is_successful` gets the names that are left out; and its runs."""
    runs = []

    def run(change):
        runs.append(set(change.unset_variables))
        return WELL if is_successful(set(change.unset_variables)) else FAILED

    deadline = time.monotonic() + 60 if deadline is None else deadline
    search = Search(run, lambda outcome: outcome.is_successful, deadline)
    return search.find_causes(rows, FAILED), runs


NAMES = [f"V{number}" for number in range(40)]
ROWS = [row(name) for name in NAMES]


@pytest.mark.parametrize(
    "causes",
    [{"V0"}, {"V39"}, {"V3", "V4"}, {"V0", "V39"}, {"V1", "V17", "V30"}],
    ids=sorted,
)
def test_all_causes_among_many_changes_are_found_and_no_other(causes):
    result, runs = searched(ROWS, lambda out: causes <= out)
    assert {cause.name for cause in result.causes} == causes
    assert len(runs) < 50


def test_a_likely_change_is_tried_first():
    rows = [*ROWS, row("LIKELY", is_likely=lambda _: True)]
    result, runs = searched(rows, lambda out: "LIKELY" in out)
    assert [cause.name for cause in result.causes] == ["LIKELY"]
    # Twice the same again, the change, and the proof put back and left out again.
    assert runs == [set(), set(), {"LIKELY"}, set(), {"LIKELY"}]


def test_related_changes_are_tried_together_before_all_others():
    related = [row(name, is_related=True, may_be_needed=True) for name in ("A", "B")]
    result, runs = searched([*ROWS, *related], lambda out: "B" in out)
    assert [cause.name for cause in result.causes] == ["B"]
    assert runs[2] == {"A", "B"}
    assert len(runs) < 8


def test_what_no_change_alters_is_told_after_few_runs():
    result, runs = searched(ROWS, lambda _: False)
    assert result.causes == ()
    assert result.tried == tuple(ROWS)
    assert runs == [set(), set(), set(NAMES)]


def test_a_program_that_fails_only_sometimes_proves_nothing():
    outcomes = iter([False, True])
    result, _ = searched(ROWS, lambda _: next(outcomes))
    assert result.is_flaky is True
    assert result.causes == ()


def test_a_proof_that_does_not_repeat_is_none():
    outcomes = iter([False, False, True, True])
    rows = [row("LIKELY", is_likely=lambda _: True)]
    result, _ = searched(rows, lambda _: next(outcomes))
    assert result.is_flaky is True
    assert result.causes == ()


def test_a_cause_is_found_although_leaving_all_out_breaks_the_program():
    def run(change):
        if "NEEDED" in change.unset_variables:
            return Outcome(error="the device is gone")
        return WELL if "CAUSE" in change.unset_variables else FAILED

    rows = [row("NEEDED"), row("OTHER"), row("CAUSE")]
    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes(rows, FAILED)
    assert [cause.name for cause in result.causes] == ["CAUSE"]


def test_many_changes_of_which_one_is_needed_are_tried_in_parts():
    runs = []

    def run(change):
        runs.append(change.unset_variables)
        if "V5" in change.unset_variables:
            return Outcome(error="the device is gone")
        return WELL if "V30" in change.unset_variables else FAILED

    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes(ROWS, FAILED)
    assert [cause.name for cause in result.causes] == ["V30"]
    assert len(runs) < 15


def test_programs_that_disturb_each_other_run_one_at_a_time():
    running, most = set(), [0]

    def run(change):
        running.add(threading.get_ident())
        most.append(len(running))
        time.sleep(0.05)
        is_alone = len(running) == 1
        running.discard(threading.get_ident())
        if "V3" in change.unset_variables:
            return WELL
        return FAILED if is_alone else Outcome(error="the device is busy")

    search = Search(
        run,
        lambda outcome: outcome.is_successful,
        time.monotonic() + 60,
        max_parallel=2,
    )
    result = search.find_causes(ROWS, FAILED)
    assert [cause.name for cause in result.causes] == ["V3"]
    assert most.count(2) == 1  # the unchanged program, twice at once


def test_a_cause_behind_another_is_found_by_the_second_error():
    """A folder on PYTHONPATH and a limit of memory; leaving all out removes torch too."""

    def run(change):
        if "NEEDED" in change.unset_variables:
            return Outcome(error="the device is gone")
        if "FIRST" not in change.unset_variables:
            return Outcome(error="the first error")
        return (
            WELL
            if "SECOND" in change.unset_variables
            else Outcome(error="another error")
        )

    first = row("FIRST", is_likely=lambda o: "first" in o.error, may_be_needed=True)
    second = row("SECOND", is_likely=lambda o: "another" in o.error)
    needed = row("NEEDED", may_be_needed=True)
    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes([needed, second, first], run(Change()))
    assert {cause.name for cause in result.causes} == {"FIRST", "SECOND"}


def test_a_cause_that_only_follows_another_error_is_proven_alone():
    def run(change):
        if "CAUSE" in change.unset_variables:
            return WELL
        return Outcome(
            error="another" if "OTHER" in change.unset_variables else "the first"
        )

    other = row("OTHER", is_likely=lambda o: "first" in o.error)
    cause = row("CAUSE", is_likely=lambda o: "another" in o.error)
    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes([other, cause], run(Change()))
    assert [each.name for each in result.causes] == ["CAUSE"]


def test_without_time_to_find_the_cause_the_changes_among_which_it_is_are_given():
    def run(change):
        if change.unset_variables:
            search.deadline = 0  # the time is over
        return WELL if "V3" in change.unset_variables else FAILED

    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes(ROWS[:4], FAILED)
    assert [each.name for each in result.suspects] == ["V0", "V1", "V2", "V3"]
    text, step = describe_unproven(result)
    assert text.startswith(
        "The program works with all of these changes, so the cause is among"
    )
    assert "--experiment-seconds" in step


def test_a_program_that_hangs_is_repeated_only_once():
    runs = []

    def run(change):
        runs.append(change)
        return Outcome(error="no response", is_timed_out=True)

    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    search.find_causes(ROWS, run(Change()))
    assert len(runs) == 1 + 1 + 1  # the outcome itself, once again, and all changes


def test_of_a_program_that_hangs_only_one_likely_change_is_tried_alone():
    runs = []
    failed = Outcome(error="no response", is_timed_out=True)

    def run(change):
        runs.append(change.unset_variables)
        return WELL if {"L2", "V7"} <= change.unset_variables else failed

    likely = [row(f"L{number}", is_likely=lambda _: True) for number in range(4)]
    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes([*likely, *ROWS], failed)
    assert {cause.name for cause in result.causes} == {"L2", "V7"}
    # The program again, the first likely change, all likely changes, and all changes.
    assert [len(names) for names in runs[:4]] == [0, 1, 4, 44]


def test_a_run_that_the_deadline_stops_proves_nothing():
    def run(change):
        if change.unset_variables:
            raise OutOfTimeError
        return FAILED

    search = Search(run, lambda outcome: outcome.is_successful, time.monotonic() + 60)
    result = search.find_causes(ROWS, FAILED)
    assert result.causes == ()
    assert result.untried == tuple(ROWS)


def test_what_is_not_tried_in_time_is_told():
    result, runs = searched(ROWS, lambda _: True, deadline=time.monotonic() - 1)
    assert runs == []
    assert result.tried == ()
    assert result.untried == tuple(ROWS)


def compute_case(before):
    program = Program(("torch",), {}, 60)
    [case] = find_failed_programs(program, before, None)
    return case


def test_a_change_that_hides_the_device_that_fails_has_not_mended_it():
    bad = Device("card:1", error="lost")
    good = Device("card:0")
    before = Outcome(imported=("torch",), count=2, devices=(good, bad))
    case = compute_case(before)
    assert case.phase is Phase.COMPUTE
    hidden = Outcome(imported=("torch",), count=1, devices=(good,))
    mended = Outcome(imported=("torch",), count=2, devices=(good, Device("card:1")))
    assert not case.is_better(hidden)
    assert case.is_better(mended)


def test_missing_devices_are_a_case_of_their_own():
    before = Outcome(imported=("torch",), count=1, devices=(Device("card:0"),))
    [case] = find_failed_programs(Program(("torch",), {}, 60), before, 4)
    assert case.phase is Phase.COUNT
    assert case.is_better(Outcome(imported=("torch",), count=2))
    four = Outcome(imported=("torch",), count=4)
    assert case.describe_success(four) == "this machine shows 4 devices"


def test_a_change_that_only_shows_devices_which_cannot_compute_is_no_proof(monkeypatch):
    before = Outcome(imported=("torch",), count=1, devices=(Device("card:0"),))
    [case] = find_failed_programs(Program(("torch",), {}, 60), before, 2)
    cause = row("ZAP")
    result = Result(causes=(cause,), outcome=Outcome(count=2))
    computed = []

    def run(program, change):
        computed.append((program.counts_only, change))
        lost = Device("card:1", error="the device is lost")
        return Outcome(count=2, devices=(Device("card:0"), lost))

    monkeypatch.setattr(cases.trial, "run", run)
    proof = cases._proof_of_unusable_devices(case, case.program, result)
    assert computed == [(False, cause.change)]
    assert not proof.is_proven
    assert proof.text == (
        "without ZAP, this machine shows 2 devices, but a computation fails: the device is lost"
    )


def test_a_program_that_has_not_failed_fails_not_differently():
    """It counts too few devices; a change that breaks it removes none of several causes."""
    counted = Outcome(imported=("torch",), count=1)

    def run(change):
        return FAILED if change.unset_variables else counted

    search = Search(run, lambda outcome: outcome.count == 2, time.monotonic() + 60)
    likely = [row(name, is_likely=lambda _: True) for name in ("A", "B")]
    result = search.find_causes(likely, counted)
    assert result.altering == ()
    assert result.tried == tuple(likely)


@pytest.mark.parametrize(
    ("without_effect", "step"),
    [({"ACME_VISIBLE"}, ""), ({"OTHER"}, "unset ACME_VISIBLE")],
)
def test_the_step_to_unset_a_variable_is_left_out_if_that_had_no_effect(
    without_effect, step
):
    visibility = Visibility(variables=("ACME_VISIBLE",))
    backend = Backend("acme", 350, "acme", visibility=visibility)
    verdict = Verdict("acme", Provenance("accel-acme", "1"), backend)
    program = Program(("torch",), {"ACME_VISIBLE": "0"}, 60, verdict=verdict)
    before = Outcome(imported=("torch",), count=1, devices=(Device("acme:0"),))
    [case] = find_failed_programs(program, before, 2)
    hidden = Finding(
        Level.WARNING, "visible-devices.none", "hidden", "unset ACME_VISIBLE", "acme"
    )
    proof = cases.Proof("no cause", variables_without_effect=frozenset(without_effect))
    assert proofs._step_without_proof(case, hidden, proof) == step
