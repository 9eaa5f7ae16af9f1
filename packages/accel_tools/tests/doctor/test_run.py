"""Topics side by side: one that fails or hangs costs nothing but itself."""

import threading
import time

from accel_core.settings import Settings
from accel_tools.doctor.records import Finding, Level, Topic, Visit
from accel_tools.doctor.run import examine, visited

FINE = Finding(Level.OK, "fine.fine", "all is well")
ODD = Finding(Level.WARNING, "odd.odd", "this is odd", "mend it")


def fine(visit):
    return [FINE]


def test_topics_that_fail_keep_what_they_found_and_the_others_go_on():
    forever = threading.Event()

    def fails(visit):
        yield ODD
        raise RuntimeError("no more") from KeyError("inside")

    def exits(visit):
        raise SystemExit(3)

    def hangs(visit):
        yield ODD
        forever.wait()

    topics = [Topic(f.__name__, f.__name__.title(), f) for f in (fails, exits, hangs, fine)]
    start = time.monotonic()
    failed, exited, hung, well = examine(Visit(Settings(), {}), topics, limit=1)
    assert time.monotonic() - start < 3  # not the limit for each
    assert (failed.findings, failed.failed) == ((ODD,), "KeyError: 'inside'")
    assert exited.failed == "SystemExit: it tried to end the process with 3"
    assert (hung.findings, hung.failed) == ((ODD,), "it did not finish within 1 s and was abandoned")
    assert hung.ms >= 1000
    assert (well.findings, well.failed, well.level) == ((FINE,), "", Level.OK)
    assert {failed.level, exited.level, hung.level} == {Level.WARNING}
    left = [thread for thread in threading.enumerate() if thread.name == "accel doctor: hangs"]
    assert [thread.daemon for thread in left] == [True]  # the process ends without it
    forever.set()


def test_the_report_counts_what_is_wrong_and_gives_the_worst_first():
    broken = Finding(Level.ERROR, "bad.bad", "it is broken", "replace it", "npu")
    bad = Topic("bad", "Bad", lambda visit: [ODD, broken])
    report = visited(Visit(Settings(), {}), [bad, Topic("fine", "Fine", fine)])
    assert report.verdict == "2 things are wrong, first npu: it is broken."
    assert (report.level, report.exit_status) == (Level.ERROR, 1)
    one = visited(Visit(Settings(), {}), [Topic("odd", "Odd", lambda visit: [ODD])])
    assert (one.verdict, one.exit_status) == ("One thing is wrong: this is odd.", 1)
    well = visited(Visit(Settings(), {}), [Topic("fine", "Fine", fine)])
    assert (well.verdict, well.exit_status) == ("Nothing is wrong.", 0)


def test_a_survey_that_fails_fails_once_for_all_who_ask(monkeypatch):
    asked = []

    def failing(*_, **__):
        asked.append(1)
        raise OSError("no process")

    monkeypatch.setattr("accel_tools.doctor.records.survey", failing)
    topics = [Topic(str(i), str(i), lambda visit: [visit.survey()]) for i in range(3)]
    assert [e.failed for e in examine(Visit(Settings(), {}), topics)] == ["OSError: no process"] * 3
    assert asked == [1]
