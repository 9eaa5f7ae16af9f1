"""Every next step that messages give is in steps.toml, and what that says of it is done.

A step is followed where its complaint was provoked: afterwards the complaint is gone. Steps that need
hardware, a vendor's login or a person have their source, and those that another test follows its name.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import tomllib
from accel_steps.collect import said
from accel_steps.world import followed
from accel_tests.children import may_mount
from accel_tests.tools import TREE

from accel_core import AccelError

TABLE = tomllib.loads(
    Path(__file__).with_name("steps.toml").read_text(encoding="utf-8")
)
SHELL = TABLE["followed"]
CALLS = TABLE["call"]
#: Steps that a test elsewhere follows.
TESTED = TABLE["tested"]
#: Kinds of steps that nothing here can follow, each with the reason.
ELSEWHERE = TABLE["elsewhere"]
SAID = {found.step: found for found in said(TREE)}
LISTED = Counter(
    step
    for row in (*SHELL, *CALLS, *TESTED, *ELSEWHERE, TABLE["no_steps"])
    for step in row["steps"]
)


def test_every_step_of_a_message_is_in_the_table():
    missing = [
        f"{found.file}:{found.line}: {step}"
        for step, found in SAID.items()
        if step not in LISTED
    ]
    assert not missing, "\n".join(
        ["Add each to tests/steps/steps.toml, and how it is followed:", *missing]
    )


def test_every_step_of_the_table_is_in_a_message_and_there_once():
    assert [step for step in LISTED if step not in SAID] == []
    assert [step for step, times in LISTED.items() if times > 1] == []


def test_what_cannot_be_followed_here_has_its_source():
    for row in ELSEWHERE:
        assert set(row) == {"needs", "source", "steps"}, row
        assert row["needs"] in {"hardware", "login", "network", "person", "system"}, row
        assert re.match(r"https?://|[\w./]+\.py|[A-Z]", row["source"]), row


def test_a_step_that_another_test_follows_has_that_test():
    for row in TESTED:
        file, _, name = row["test"].partition("::")
        assert re.search(rf"def {name}\b", (TREE / file).read_text(encoding="utf-8")), (
            row
        )


def pattern(step):
    """A step as a message prints it, with anything in its holes."""
    return re.compile(
        r"\s+".join(
            re.sub(r"\\\{\w*\\\}", ".*", re.escape(word)) for word in step.split()
        )
    )


def rows(table):
    """The rows of a table; long ones by night."""
    night = pytest.mark.nightly(reason="each imports torch or starts several commands")
    return [
        pytest.param(
            row, id=row["steps"][0][:50], marks=[night] if row.get("night") else []
        )
        for row in table
    ]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="types into bash")
@pytest.mark.parametrize("row", rows(SHELL))
def test_a_step_that_was_followed_ends_its_complaint(row, tmp_path):
    if row.get("machine") and not may_mount():
        pytest.skip("may not make a mount namespace")
    pytest.importorskip(row.get("needs", "torch"))
    first, second = followed(
        tmp_path,
        before=row.get("before", ""),
        attempt=row["try"],
        step=row.get("step", ""),
        again=row.get("again", row["try"]),
        machine=row.get("machine", ""),
    )
    assert re.search(row["complaint"], first), first
    for step in row["steps"]:
        assert pattern(step).search(first), (step, first)
    assert second.strip() or row.get("quiet"), "nothing was printed at the second try"
    assert not re.search(row["complaint"], second), second
    assert not re.search(r"Traceback|^Error: |^Usage: ", second, re.MULTILINE), second


@pytest.mark.parametrize("row", rows(CALLS))
def test_a_call_that_was_corrected_raises_no_more(row):
    names = {}
    exec("from accel_testing import *; import accel_core, sys", names)
    exec(row.get("before", ""), names)
    with pytest.raises(Exception, match=row["complaint"]) as caught:
        exec(row["wrong"], names)
    for step in row["steps"]:
        assert pattern(step).search(str(caught.value)), (step, str(caught.value))
    assert isinstance(caught.value, (AccelError, Warning, TypeError, ValueError))
    exec(row["right"], names)
