"""Pages show what they say."""

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
