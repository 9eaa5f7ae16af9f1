"""List the conformance checks by reading their sources, without importing torch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from accel_testing.conformance.groups import GROUPS, Group

__all__ = ["Check", "checks", "name_of", "select"]


class Check(NamedTuple):
    """A conformance check, with its name, its level, and the reason why users rely on what it checks."""

    #: The name in reports and options, such as `"compute.queues.events_tell_time"`.
    name: str
    level: int
    #: One sentence: the docstring of the test function.
    why: str
    group: Group
    #: pytest's node id without the group's file, such as `"TestQueues::test_events_tell_time"`.
    node: str


@lru_cache(maxsize=1)
def checks() -> tuple[Check, ...]:
    """Return all conformance checks in the order in which they run."""
    return tuple(check for group in GROUPS for check in _read_checks(group))


def select(level: int, only: Sequence[str] = ()) -> list[Check]:
    """Return the conformance checks up to `level`, and if `only` is not empty, only those that it names."""
    return [
        check
        for check in checks()
        if check.level <= level and (not only or check.name in only)
    ]


def name_of(function: object) -> str:
    """Return the name of the check that a test function implements, or an empty string if it is no check.

    The function's file is compared too, because a vendor's suite may have tests with the same names.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    return _names_by_location().get((code.co_filename, code.co_name), "")


@lru_cache(maxsize=1)
def _names_by_location() -> dict[tuple[str, str], str]:
    """Return the names of all checks by the file and name of their test functions."""
    return {
        (str(check.group.file), check.node.partition("::")[2]): check.name
        for check in checks()
    }


def _read_checks(group: Group) -> list[Check]:
    """Return the checks of a group in file order: the `test_…` methods of the `Test…` classes."""
    tree = ast.parse(group.file.read_text(encoding="utf-8"))
    group_checks = []
    for test_class in tree.body:
        if not isinstance(test_class, ast.ClassDef):
            continue
        if not test_class.name.startswith("Test"):
            continue
        for function in test_class.body:
            if not isinstance(function, ast.FunctionDef):
                continue
            if function.name.startswith("test_"):
                group_checks.append(_read_check(group, test_class.name, function))
    return group_checks


def _read_check(group: Group, class_name: str, function: ast.FunctionDef) -> Check:
    """Return the check that a test function in the group implements."""
    docstring = ast.get_docstring(function) or ""
    return Check(
        name=f"{group.name}.{function.name.removeprefix('test_')}",
        level=group.level,
        why=" ".join(docstring.split()),
        group=group,
        node=f"{class_name}::{function.name}",
    )
