"""The page "From DeepSpeed's get_accelerator" lists every difference between the classes.

`test_classes.py`, and the npu plugin's tests of the real torch_npu, check the differences against
DeepSpeed's classes.
"""

import re
from pathlib import Path

import pytest
from accel_tests.deepspeed_classes.table import VENDORS, differences

PAGE = Path(__file__).parents[5] / "docs" / "howto" / "from-deepspeed.md"
#: The vendors whose classes DeepSpeed's documentation describes line by line.
DOCUMENTED = ("npu", "hpu", "mlu")


def rows():
    """The members that a row of the page's tables names, and the vendors that it is about."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## What differs in the members\n")[2]
    section = section.partition("## What is new")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            yield members_named(cells[0]), vendors_named(cells[1].rstrip(" |"))


def members_named(cell):
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", cell))))
    return words - {"acc", "x", "i", "f", "None", "isinstance", "type", "state"}


def vendors_named(cell):
    first, *rest = cell.replace(" and ", ", ").split(" but ")
    excepted = set(rest[0].split(", ")) if rest else set()
    named = set(VENDORS) if first == "all" else set(cell.split(", "))
    assert named | excepted <= set(VENDORS), cell
    return named - excepted


@pytest.mark.parametrize("vendor", DOCUMENTED)
def test_every_member_that_differs_is_on_the_page(vendor):
    found = {case.partition(":")[0] for case in differences(vendor)}
    on_page = {
        member for members, vendors in rows() if vendor in vendors for member in members
    }
    assert found <= on_page, sorted(found - on_page)


@pytest.mark.parametrize("vendor", DOCUMENTED)
def test_every_row_of_the_page_is_a_difference_that_was_found(vendor):
    found = {case.partition(":")[0] for case in differences(vendor)}
    wrong = [
        sorted(members)
        for members, vendors in rows()
        if vendor in vendors and not members & found
    ]
    assert wrong == []
