"""The doctor runs its topics: one that fails or hangs does not affect the others."""

import threading
import time

from accel_core.settings import Settings
from accel_tools.doctor import run as under_test
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.run import run_diagnostics, run_topics

FINE = Finding(Level.OK, "fine.fine", "all is well")
ODD = Finding(Level.WARNING, "odd.odd", "this is odd", "mend it")


def fine(context):
    return [FINE]


def test_topics_that_fail_keep_what_they_found_and_the_others_go_on():
    forever = threading.Event()

    def fails(context):
        yield ODD
        raise RuntimeError("no more") from KeyError("inside")

    def exits(context):
        raise SystemExit(3)

    def hangs(context):
        yield ODD
        forever.wait()

    topics = [
        Topic(f.__name__, f.__name__.title(), f) for f in (fails, exits, hangs, fine)
    ]
    start = time.monotonic()
    failed, exited, hung, well = run_topics(
        DiagnosticContext(Settings(), {}), topics, limit=1
    )
    assert time.monotonic() - start < 3  # not the limit for each
    assert failed.findings == (ODD,)
    assert failed.failed == "KeyError: 'inside'"
    assert exited.failed == "SystemExit: the code tried to exit the process with 3"
    assert hung.findings == (ODD,)
    assert hung.failed == "it did not finish within 1 s and was abandoned"
    assert hung.ms >= 1000
    assert well.findings == (FINE,)
    assert well.failed == ""
    assert well.level == Level.OK
    assert {failed.level, exited.level, hung.level} == {Level.WARNING}
    left = [
        thread
        for thread in threading.enumerate()
        if thread.name == "accel doctor: hangs"
    ]
    assert [thread.daemon for thread in left] == [True]  # the process ends without it
    forever.set()


def test_the_report_counts_what_is_wrong_and_gives_the_worst_first():
    broken = Finding(Level.ERROR, "bad.bad", "it is broken", "replace it", "npu")
    bad = Topic("bad", "Bad", lambda context: [ODD, broken])
    report = run_diagnostics(
        DiagnosticContext(Settings(), {}), [bad, Topic("fine", "Fine", fine)]
    )
    assert report.verdict == "2 problems were found, the first: npu: it is broken."
    assert report.level == Level.ERROR
    assert report.exit_status == 1
    one = run_diagnostics(
        DiagnosticContext(Settings(), {}), [Topic("odd", "Odd", lambda context: [ODD])]
    )
    assert one.verdict == "One problem was found: this is odd."
    assert one.exit_status == 1
    well = run_diagnostics(
        DiagnosticContext(Settings(), {}), [Topic("fine", "Fine", fine)]
    )
    assert well.verdict == "Nothing is wrong in: Fine."
    assert well.exit_status == 0


def test_a_survey_that_fails_fails_once_for_all_who_ask(monkeypatch):
    asked = []

    def failing(*_, **__):
        asked.append(1)
        raise OSError("no process")

    monkeypatch.setattr("accel_tools.doctor.records.survey", failing)
    topics = [
        Topic(str(i), str(i), lambda context: [context.survey()]) for i in range(3)
    ]
    assert [
        e.failed for e in run_topics(DiagnosticContext(Settings(), {}), topics)
    ] == ["OSError: no process"] * 3
    assert asked == [1]


def test_an_experiment_that_fails_does_not_cost_the_report(monkeypatch):
    def fail(*_arguments):
        raise IndexError("list index out of range")  # as psutil's without /proc

    monkeypatch.setattr(under_test, "add_proofs", fail)
    report = run_diagnostics(
        DiagnosticContext(Settings(), {}),
        [Topic("odd", "Odd", lambda context: [ODD])],
        experiment_seconds=60,
    )
    odd, experiments = report.topics
    assert odd.findings == (ODD,)
    assert experiments.findings[0].what == (
        "the experiments ended with an error: IndexError: list index out of range"
    )
