"""Every code that a topic gives stands in the documentation, and nothing else does."""

import re
from pathlib import Path

import accel_tools
from accel_core.detection import Status
from accel_tools.doctor.topics import TOPICS

SOURCES = Path(accel_tools.__file__).parent / "doctor"
PAGES = Path(__file__).parents[4] / "docs" / "reference"
#: Verdicts' own words, which the page of verdicts explains.
STATUSES = {f"candidates.{status.value.replace('_', '-')}" for status in Status}


def test_the_pages_have_the_codes_of_the_sources():
    names = [topic.name for topic in TOPICS]
    code = rf"(?:{'|'.join(names)})\.[a-z][a-z-]+"
    given = {c for file in SOURCES.rglob("*.py") for c in re.findall(f'"({code})"', file.read_text("utf-8"))}
    of_topics = (PAGES / "doctor-topics.md").read_text("utf-8")
    of_candidates = re.findall(r"`(candidates\.[a-z-]+)`", (PAGES / "doctor.md").read_text("utf-8"))
    told = {*re.findall(f"`({code})`", of_topics), *of_candidates}
    assert given - {"candidates.conflict"} - STATUSES == told - STATUSES
    assert {found.partition(".")[0] for found in given} == set(names)
    assert re.findall(r"^## (.+)$", of_topics, re.MULTILINE) == [n for n in names if n != "candidates"]
