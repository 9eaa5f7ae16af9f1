"""docs/howto/frameworks.md has the frameworks of accel_train's catalogue."""

import pytest
from accel_tests.tools import load

from accel_train.integrations.catalogue import FRAMEWORKS

TOOL = load("framework_table")


def test_the_page_has_the_table_of_the_catalogue():
    page = TOOL.PAGE.read_text("utf-8")
    assert TOOL.page_with_table(page) == page


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_the_page_of_a_framework_names_it(framework):
    page = (TOOL.ROOT / framework.url).read_text("utf-8")
    assert framework.name in page


def test_a_page_without_the_comments_is_an_error():
    with pytest.raises(ValueError, match=r"needs the comments"):
        TOOL.page_with_table("# Frameworks and libraries\n")
