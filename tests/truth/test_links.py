"""Every page is listed once."""

import re

import pytest
from accel_tests.tools import TREE
from accel_truth.texts import documents

PAGES = {file.relative_to(TREE).as_posix(): file for file in documents(TREE)}


INDEXES = [page for page in PAGES if re.fullmatch(r"docs/\w+/index\.md", page)]
LISTED = re.compile(r"^(?:- |\| )\[([^\]]+)\]\(([\w/.-]+\.md)\)", re.MULTILINE)


@pytest.mark.parametrize("index", sorted(INDEXES))
def test_an_index_calls_a_page_by_its_title(index):
    listed = LISTED.findall(PAGES[index].read_text("utf-8"))
    titles = {}
    for _, target in listed:
        text = (PAGES[index].parent / target).read_text("utf-8")
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        titles[target] = title[1].partition("Tutorial: ")[2] or title[1]
    different = [
        (text, titles[target])
        for text, target in listed
        if text.lower() != titles[target].lower()
    ]
    assert different == []
