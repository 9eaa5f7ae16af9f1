"""Every code that a topic gives stands in the documentation, and nothing else does."""

import re
from pathlib import Path

import accel_tools
from accel_tools.doctor.topics import TOPICS

SOURCES = Path(accel_tools.__file__).parent / "doctor"
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "doctor-topics.md"
#: Its codes are the verdicts' own words.
ELSEWHERE = {"candidates"}


def test_the_page_has_the_codes_of_the_sources():
    names = {topic.name for topic in TOPICS} - ELSEWHERE
    code = re.compile(rf"\b({'|'.join(names)})\.[a-z][a-z-]+\b")
    literals = re.compile(r'"([a-z0-9-]+\.[a-z-]+)"')
    given = {
        found
        for file in SOURCES.rglob("*.py")
        for found in literals.findall(file.read_text())
        if code.fullmatch(found)
    }
    page = PAGE.read_text()
    told = {
        found[0] for found in re.finditer(r"(?<=`)[a-z0-9-]+\.[a-z-]+(?=`)", page) if code.fullmatch(found[0])
    }
    assert given == told
    assert {found.partition(".")[0] for found in given} == names
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [t.name for t in TOPICS if t.name in names]
