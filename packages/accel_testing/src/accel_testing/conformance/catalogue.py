"""List the checks by reading their sources, without importing torch."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

from accel_testing.conformance.groups import GROUPS, Group

__all__ = ["Check", "checks"]


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
