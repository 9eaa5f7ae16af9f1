"""The search of experiments: what is said of changes that do not make the program work."""

import threading
import time

from accel_tools.doctor.experiments.cases import describe_unproven
from accel_tools.doctor.experiments.search import Experiment, Result, Search
from accel_tools.doctor.experiments.trial import Change, Outcome
from accel_tools.doctor.topics.checks import (
    CheckReport,
    _drop_steps_if_several_plugins_crash,
)


def row(name):
    """A change that leaves the variable out, and that is tried alone first."""
    return Experiment(
        Change(unset_variables=frozenset({name})),
        name,
        lambda _: f"unset {name}",
        is_likely=lambda _: True,
    )


def search_with(run, seconds=60.0):
    return Search(
        run, lambda outcome: outcome.is_successful, time.monotonic() + seconds
    )


def test_a_change_that_leaves_another_error_is_not_called_innocent():
    """Two causes, and no time left to leave both out."""
    failed = Outcome(error="the first cause")

    def run(change):
        if "FIRST" in change.unset_variables:
            search.deadline = 0  # the time is over
            return Outcome(error="the second cause")
        return failed

    search = search_with(run)
    result = search.find_causes([row("FIRST"), row("SECOND")], failed)
    assert [each.name for each in result.altering] == ["FIRST"]
    assert result.tried == ()
    assert [each.name for each in result.untried] == ["SECOND"]


def test_an_error_with_another_address_in_it_is_the_same_error():
    failed = Outcome(error="fault at 0x7f00aa")
    addresses = iter(range(100))
    search = search_with(lambda _: Outcome(error=f"fault at {hex(next(addresses))}"))
    result = search.find_causes([row("ONE")], failed)
    assert result.altering == ()
    assert [each.name for each in result.tried] == ["ONE"]


def test_nothing_is_concluded_where_no_process_can_be_started():
    failed = Outcome(error="no process", start_failed=True)
    result = search_with(lambda _: failed).find_causes([row("ONE")], failed)
    assert result.start_failure == "no process"
    assert result.tried == ()


def test_without_threads_the_runs_follow_one_another(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    well = Outcome(imported=("torch",))
    failed = Outcome(error="it fails")
    search = search_with(lambda change: well if change.unset_variables else failed)
    result = search.find_causes([row("ONE")], failed)
    assert [cause.name for cause in result.causes] == ["ONE"]


def test_the_words_name_what_leaves_another_error():
    result = Result(altering=(row("FIRST"),), untried=(row("SECOND"),))
    assert list(describe_unproven(result)) == [
        "Changes that lead to a different error, so each may remove one of several causes: without FIRST",
        (
            "No time was left for 1 more experiment (without SECOND): pass --experiment-seconds 300 "
            "for more time"
        ),
    ]


def test_the_words_say_that_nothing_ran():
    words = list(describe_unproven(Result(start_failure="no process for it")))
    assert words == ["No experiment ran: no process for it"]


def died(origin):
    return CheckReport(
        "", origin, "", "", "", "warning", "it was killed", "report this",
        code="checks.died",
    )  # fmt: skip


def test_checks_of_several_plugins_that_die_are_no_plugins_fault():
    results = _drop_steps_if_several_plugins_crash(
        [died("accel-cuda 1.0"), died("accel-xpu 1.0")]
    )
    assert [result.step for result in results] == ["", ""]


def test_a_plugins_check_that_dies_is_reported_to_its_maintainers():
    assert [
        result.step
        for result in _drop_steps_if_several_plugins_crash([died("accel-cuda 1.0")])
    ] == ["report this"]
