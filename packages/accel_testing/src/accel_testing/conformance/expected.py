"""Read a vendor's file of checks to skip and of expected failures, each with a reason.

[skip]
"compute.queues.events_tell_time" = "the simulator's clock stands still"

[fails]
"interface.selection.members_refuse_what_is_out_of_range" = "a process owns one device, under any index"
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from accel_core.errors import SettingError
from accel_testing.conformance.catalogue import checks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["NOTHING", "Expected", "read"]

_SECTIONS = ("skip", "fails")


class Expected(NamedTuple):
    """The contents of a vendor's file of expected results: the reasons to skip checks or let them fail."""

    #: The checks that are not run, with the reasons.
    skip: dict[str, str]
    #: The checks that are expected to fail, with the reasons. If such a check passes, this is reported as
    #: unexpected.
    fails: dict[str, str]


NOTHING = Expected({}, {})


def read(path: Path) -> Expected:
    """Read a vendor's file of expected results, and return its contents.

    Raises `SettingError` if the file is invalid, for example because a check is unknown or a reason is
    missing.
    """
    document = _read_toml(path)
    problems = [
        f"unknown section [{name}], expected [skip] or [fails]"
        for name in document.keys() - {*_SECTIONS}
    ]
    for section in _SECTIONS:
        problems += _section_problems(section, document.get(section, {}))
    if not problems:
        in_both = document.get("skip", {}).keys() & document.get("fails", {}).keys()
        problems += [
            f"{name} is in both [skip] and [fails]" for name in sorted(in_both)
        ]
    if problems:
        raise SettingError(
            f"{path}: {'; '.join(problems)}. `accel verify --list` lists the checks."
        )
    return Expected(dict(document.get("skip", {})), dict(document.get("fails", {})))


def _read_toml(path: Path) -> dict[str, Any]:
    """Read and return a TOML document. Raises `SettingError` if the file cannot be read or is not TOML."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}. Give the path of a TOML file."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingError(
            f"{path} is not valid TOML: {error}. Expected [skip] and [fails] with reasons."
        ) from error
    return document


def _section_problems(section: str, reasons: object) -> list[str]:
    """Return the problems with a section, which must map checks to reasons."""
    if not isinstance(reasons, dict):
        return [f"[{section}] is not a table of checks and reasons"]
    problems = [_entry_problem(section, name, reasons[name]) for name in reasons]
    return [problem for problem in problems if problem]


def _entry_problem(section: str, name: str, reason: object) -> str:
    """Return the problem with a check's name or reason, or an empty string if both are valid."""
    known = [check.name for check in checks()]
    if name not in known:
        similar = get_close_matches(name, known, n=1)
        suggestion = f"; did you mean {similar[0]!r}?" if similar else ""
        return f"[{section}] {name!r} is not a check{suggestion}"
    if not isinstance(reason, str) or not reason.strip():
        return f"[{section}] {name!r} has the reason {reason!r}; expected a sentence"
    return ""
