"""A vendor's file of what its device cannot do: checks that are left out, or that fail, each with a reason.

[skip]
"compute.queues.events_tell_time" = "the simulator's clock stands still"

[fails]
"interface.selection.members_refuse_what_is_out_of_range" = "a process owns one device, under any index"
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from accel_core.errors import SettingError
from accel_testing.conformance.catalogue import checks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["NOTHING", "Expected", "read"]

_SECTIONS = ("skip", "fails")


class Expected(NamedTuple):
    """Reasons by the names of checks."""

    #: Left out.
    skip: dict[str, str]
    #: Run, and failing: one that passes is told as unexpected.
    fails: dict[str, str]


NOTHING = Expected({}, {})


def read(path: Path) -> Expected:
    """Return the file's content. Raises `SettingError` for an unknown check, or one without a reason."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}. Give the path of a TOML file."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingError(
            f"{path} is no TOML: {error}. Expected [skip] and [fails] with reasons."
        ) from error
    known = [check.name for check in checks()]
    faults = [
        f"unknown section [{name}], expected [skip] or [fails]"
        for name in document.keys() - {*_SECTIONS}
    ]
    for section in _SECTIONS:
        given = document.get(section, {})
        if not isinstance(given, dict):
            faults.append(f"[{section}] is no table of checks and reasons")
            continue
        faults.extend(
            fault
            for name, reason in given.items()
            for fault in _faults(section, name, reason, known)
        )
    twice = (
        document.get("skip", {}).keys() & document.get("fails", {}).keys()
        if not faults
        else ()
    )
    faults.extend(f"{name} is in both [skip] and [fails]" for name in sorted(twice))
    if faults:
        raise SettingError(
            f"{path}: {'; '.join(faults)}. `accel verify --list` names the checks."
        )
    return Expected(*({**document.get(section, {})} for section in _SECTIONS))


def _faults(section: str, name: str, reason: object, known: list[str]) -> list[str]:
    if name not in known:
        close = get_close_matches(name, known, n=1)
        return [
            f"[{section}] {name!r} is no check"
            + (f"; did you mean {close[0]!r}?" if close else "")
        ]
    if not isinstance(reason, str) or not reason.strip():
        return [
            f"[{section}] {name!r} has no reason; expected a sentence, and it is {reason!r}"
        ]
    return []
