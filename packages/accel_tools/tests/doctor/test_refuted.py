"""What the computation on the devices refutes is an observation without a step."""

from accel_tools.doctor.records import Finding, Level, TopicResult
from accel_tools.doctor.refuted import (
    downgrade_checks_of_proven_backends,
    downgrade_refuted_findings,
)
from accel_tools.doctor.topics.compute import COMPUTED

LACKS = Finding(Level.ERROR, "checks.cann", "npu needs CANN", "accel setup npu", "npu")
OLD = Finding(Level.WARNING, "checks.version", "CANN is old", "accel setup npu", "npu")
FAILS = Finding(Level.ERROR, "compute.fails", "npu:0 cannot be used", "", "npu")
COMPUTES = Finding(Level.OK, COMPUTED, "computed on npu:0", "", "npu")
DIFFERS = Finding(
    Level.WARNING, "frameworks.differs", "it would choose cpu", "export X"
)


def judged(*findings, chosen="npu"):
    topics = (TopicResult("any", "Any", findings, 1.0),)
    [topic] = downgrade_refuted_findings(topics, chosen)
    return topic.findings


def test_a_check_that_says_that_a_device_does_not_work_is_refuted_by_its_computation():
    lacks, _ = judged(LACKS, COMPUTES)
    assert lacks.level == Level.OK
    assert lacks.step == ""
    assert lacks.facts == {"refuted": "computed on npu:0"}


def test_a_check_is_refuted_if_experiments_have_proven_another_cause():
    hidden = FAILS._replace(proof="without ZAP, npu:0 computed", is_proven=True)
    for finding, level in ((hidden, Level.OK), (FAILS, Level.ERROR)):
        topics = (TopicResult("any", "Any", (LACKS, finding), 1.0),)
        [topic] = downgrade_checks_of_proven_backends(topics)
        lacks, _ = topic.findings
        assert lacks.level == level


def test_what_a_check_says_of_a_device_that_works_otherwise_than_expected_stays():
    assert judged(OLD, COMPUTES) == (OLD, COMPUTES)


def test_a_check_explains_a_device_that_does_not_compute():
    assert judged(LACKS, FAILS) == (LACKS, FAILS)


def test_no_framework_is_led_to_a_chosen_device_that_cannot_compute():
    _, differs = judged(FAILS, DIFFERS)
    assert differs.level == Level.OK
    assert differs.step == ""


def test_a_framework_is_led_to_a_chosen_device_that_computes():
    assert judged(COMPUTES, DIFFERS) == (COMPUTES, DIFFERS)


def test_a_device_that_fails_and_is_not_chosen_changes_no_advice():
    assert judged(FAILS, DIFFERS, chosen="mlu") == (FAILS, DIFFERS)
