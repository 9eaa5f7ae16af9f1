"""Pages take nothing from a registry that does not have it."""

import re

import pytest
from accel_tests.tools import TREE
from accel_truth.texts import documents

PAGES = {file.relative_to(TREE).as_posix(): file for file in documents(TREE)}


#: A distribution of ours by its name, where pip or uv installs it or a project requires it.
INSTALLED = re.compile(
    r"\bpip3? install(?:\n|[^`&|#\n]*?[ '\"])(accel-[a-z]+)(?![\w/])"
)


#: Until 0.1.0 the names are free: whoever registers one decides what `pip install` of it brings.
RELEASED = "(unreleased)" not in (TREE / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.skipif(RELEASED, reason="a registry has the distributions")
@pytest.mark.parametrize("page", sorted(PAGES))
def test_nothing_of_ours_is_installed_from_a_registry(page):
    found = INSTALLED.findall(PAGES[page].read_text("utf-8"))
    assert [name for name in found if name != "accel-acme"] == []  # the reader's own


@pytest.mark.skipif(RELEASED, reason="a registry has the distributions")
def test_a_page_that_installs_says_from_where():
    readmes = [page for page in PAGES if re.fullmatch(r"p\w+/\w+/README.md", page)]
    assert len(readmes) > 14
    for page in readmes:
        assert "accel's distributions are not on PyPI yet" in PAGES[page].read_text(
            "utf-8"
        ), page
