"""List the checks by reading their sources, without importing torch."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

from accel_testing.conformance.groups import GROUPS, Group

__all__ = ["Check", "checks", "name_of"]


class Check(NamedTuple):
    """One promise, and the reason why users rely on it."""

    #: As people and files write it: `"compute.queues.events_tell_time"`.
    name: str
    level: int
    #: One sentence.
    why: str
    group: Group
    #: pytest's name of it, below the group's file: `"TestQueues::test_events_tell_time"`.
    node: str


@lru_cache(maxsize=1)
def checks() -> tuple[Check, ...]:
    """Return all checks, in the order in which they run."""
    return tuple(check for group in GROUPS for check in _of(group))


def name_of(function: object) -> str:
    """Return the name of the check that this function of a test is, by where it is written; else nothing.

    A vendor's suite may have tests of its own with the same names.
    """
    code = getattr(function, "__code__", None)
    return _by_place().get((code.co_filename, code.co_name), "") if code else ""


@lru_cache(maxsize=1)
def _by_place() -> dict[tuple[str, str], str]:
    return {
        (str(check.group.file), check.node.partition("::")[2]): check.name
        for check in checks()
    }


def _of(group: Group) -> list[Check]:
    tree = ast.parse(group.file.read_text(encoding="utf-8"))
    return [
        Check(
            f"{group.name}.{function.name.removeprefix('test_')}",
            group.level,
            " ".join((ast.get_docstring(function) or "").split()),
            group,
            f"{kind.name}::{function.name}",
        )
        for kind in tree.body
        if isinstance(kind, ast.ClassDef) and kind.name.startswith("Test")
        for function in kind.body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    ]
