"""Pages show what they say, and take nothing from a registry that does not have it."""

import re

import pytest
from accel_tests.tools import TREE
from accel_truth.texts import documents

PAGES = {file.relative_to(TREE).as_posix(): file for file in documents(TREE)}
#: What Markdown does not read: comments, blocks of code, code in a line.
UNREAD = re.compile(
    r"<!--.*?-->|^ *(```|~~~)[^\n]*\n.*?^ *\1|(?<=\n\n)    [^\n]*(?:\n    [^\n]*)*|(`+)(?!`).*?(?<!`)\2(?!`)",
    re.DOTALL | re.MULTILINE,
)
TAG = re.compile(r"(?<!\\)</?[A-Za-z][^<>\n]*>")
MEANT = re.compile(r"<(?:https?:[^<> ]*|mailto:[^<> ]*|br)>")
#: A distribution of ours by its name, where pip or uv installs it or a project requires it.
INSTALLED = re.compile(
    r"\bpip3? install(?:\n|[^`&|#\n]*?[ '\"])(accel-[a-z]+)(?![\w/])"
)


def tags(text):
    """What a browser would take for an element, and so show nothing of."""
    return [
        tag for tag in TAG.findall(UNREAD.sub("", text)) if not MEANT.fullmatch(tag)
    ]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_no_word_is_swallowed_as_a_tag(page):
    assert tags(PAGES[page].read_text("utf-8")) == []


def test_a_tag_is_found():
    assert tags("| a | GPU-<uuid>, or `MIG-<uuid>` |") == ["<uuid>"]
    assert tags("GPU-\\<uuid>, <https://pytorch.org>, `<a>`\n\n    <b>\n") == []


# ---------------------------------------------------------------------------- links


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


# ---------------------------------------------------------------------------- registries


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
        assert "No registry has accel's distributions yet" in PAGES[page].read_text(
            "utf-8"
        ), page
