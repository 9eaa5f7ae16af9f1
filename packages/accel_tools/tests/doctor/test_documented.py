"""Every finding code of a topic is documented, and no other."""

import re
from pathlib import Path

import accel_tools
from accel_core.verdict import Status
from accel_tools.doctor.topics import TOPICS, ranks_connect

SOURCES = Path(accel_tools.__file__).parent / "doctor"
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "doctor.md"
#: Verdicts' own words, which the page of verdicts explains.
STATUSES = {f"candidates.{status.value.replace('_', '-')}" for status in Status}


def test_the_page_has_the_codes_of_the_sources():
    names = [topic.name for topic in (*TOPICS, ranks_connect.topic(2, 0))]
    code = rf"(?:{'|'.join(names)})\.[a-z][a-z-]+"
    given = {
        c
        for file in SOURCES.rglob("*.py")
        for c in re.findall(f'"({code})"', file.read_text("utf-8"))
    }
    topics = PAGE.read_text("utf-8").partition("\n## Topics and findings\n")[2]
    documented = set(re.findall(f"`({code})`", topics))
    assert given - {"candidates.conflict"} - STATUSES == documented - STATUSES
    assert {found.partition(".")[0] for found in given} == set(names)
    assert re.findall(r"^### (.+)$", topics, re.MULTILINE) == names
