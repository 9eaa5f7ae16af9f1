"""`accel doctor --issue`: what the report for others holds, and what it does not."""

import pytest

from accel_core.settings import Settings
from accel_tools.doctor.issue import MESSAGES_WARNING, issue_markdown
from accel_tools.doctor.records import (
    DiagnosticContext,
    Finding,
    Level,
    Report,
    TopicResult,
)

#: What a message of a vendor may hold; none of it may be in a report without messages.
PRIVATE = (
    "/home/alice/merger_with_acme.py",
    "node17.corp.example",
    "hf_verysecrettoken",
)


def examined(*findings, failed=""):
    return TopicResult("machine", "The machine", findings, 1.0, failed)


def report_of(*topics, verdict="nothing is wrong."):
    return Report(verdict, topics, 2.0)


def issue_of(report, environ=None, **options):
    return issue_markdown(
        DiagnosticContext(Settings(), environ or {}), report, **options
    )


@pytest.fixture
def talkative():
    """A report with private text wherever a text can be."""
    text = f"it said: {' '.join(PRIVATE)}!"
    finding = Finding(Level.ERROR, "machine.no-plugin", text, text, "npu", {text: text})
    return report_of(examined(finding, failed=text), verdict=text)


def test_codes_and_the_backend_are_in_the_report(talkative):
    made = issue_of(talkative)
    assert "✗ npu: machine.no-plugin\n" in made
    assert "! machine: could not be examined\n" in made


@pytest.mark.parametrize("private", PRIVATE)
def test_no_message_is_in_the_report(talkative, private):
    assert private not in issue_of(talkative)


@pytest.mark.parametrize("private", PRIVATE)
def test_messages_are_added_on_request(talkative, private):
    made = issue_of(talkative, with_messages=True)
    # The verdict, the topic's failure, the finding, its step, its fact's name and value.
    assert made.count(private) == 6


def test_a_report_with_messages_begins_with_what_they_may_hold(talkative):
    _, _, warning, *_ = issue_of(talkative, with_messages=True).splitlines()
    assert warning == f"**{MESSAGES_WARNING}: read them before you post this.**"
    assert MESSAGES_WARNING not in issue_of(talkative)


def test_variables_that_matter_are_named_without_their_values():
    environ = {"CUDA_VISIBLE_DEVICES": "GPU-8932f937", "HF_TOKEN": "hf_secret"}
    made = issue_of(report_of(), environ)
    assert "**Variables that are set**\n\n~~~text\nCUDA_VISIBLE_DEVICES\n~~~" in made
    for absent in ("GPU-8932f937", "HF_TOKEN", "hf_secret"):
        assert absent not in made


@pytest.mark.parametrize(
    "name", ["/home/alice/acme", "card of alice", "acme\nalice", "ä" * 3, "a" * 81]
)
def test_a_name_that_is_none_is_left_out(name):
    finding = Finding(Level.WARNING, name, "what", about=name)
    made = issue_of(report_of(examined(finding)))
    assert "! (not a name): (not a name)\n" in made
    assert name not in made


def test_equal_codes_are_listed_once():
    findings = [
        Finding(Level.OK, "machine.seen", what, about="npu") for what in ("a", "b")
    ]
    assert issue_of(report_of(examined(*findings))).count("machine.seen") == 1


def test_versions_and_the_platform_are_in_the_report():
    made = issue_of(report_of())
    for name in ("accel-core", "Python", "platform", "C library", "torch"):
        assert f"\n{name} " in made


def test_a_message_cannot_close_its_block():
    text = "~~~~\n# <img src=x onerror=alert(1)> @everyone \x1b[31m"
    finding = Finding(Level.ERROR, "machine.no-plugin", text)
    made = issue_of(report_of(examined(finding)), with_messages=True)
    _, block, rest = made.split("~~~~~")
    assert "@everyone" in block
    assert rest == ""
    assert "\x1b" not in made
