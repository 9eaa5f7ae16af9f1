"""Next steps that messages give, in steps.toml, are followed: afterwards the complaint is gone."""

import re
import sys
from pathlib import Path

import pytest
import tomllib
from accel_steps.world import followed
from accel_tests.children import may_mount

from accel_core import AccelError

TABLE = tomllib.loads(
    Path(__file__).with_name("steps.toml").read_text(encoding="utf-8")
)
SHELL = TABLE["followed"]
CALLS = TABLE["call"]


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
