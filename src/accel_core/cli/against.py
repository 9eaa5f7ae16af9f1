"""`accel verify --against`: a plugin under another release of accel-core."""

from __future__ import annotations

from collections.abc import Iterator

from accel_core.cli import text
from accel_core.cli.output import Output
from accel_core.cli.page import Heading, Marked, Paragraph, Part, paragraph
from accel_core.conformance.against import Comparison, against, to_dict
from accel_core.detection.records import Candidate, Unloaded
from accel_core.errors import InvalidBackendError

__all__ = ["answer"]

_TITLES = {
    "refused": "Refused: the plugin does not load there",
    "fails": "Fails where it is used",
    "called otherwise": "Called otherwise",
    "not called": "Not called",
}


def answer(candidate: Candidate | Unloaded, given: str, output: Output, *, as_json: bool) -> int:
    """Write the comparison, and give the exit status: 0 where nothing differs, 1 where something does.

    Raises `SettingError` as `against` does, and `InvalidBackendError` where nothing is declared.
    """
    if isinstance(candidate, Unloaded):
        outcome = candidate.outcome
        raise InvalidBackendError(f"{candidate} cannot be read: {outcome.reason}. {outcome.hint}")
    found = against(candidate, given)
    if as_json:
        output.write_json(to_dict(candidate, found))
    else:
        output.write_page(_page(candidate, found))
    return 1 if found.differences or found.unread else 0


def _page(candidate: Candidate, found: Comparison) -> Iterator[Part]:
    release = f"accel-core {found.version}, API level {found.api_level}"
    if found.differences:
        yield paragraph((f"{candidate}", "bold"), (f" under {release}: {len(found.differences)} differ", ""))
    elif not found.unread:
        yield paragraph((f"{candidate}", "bold"), (f" fits {release}", "green"))
    for effect, title in _TITLES.items():
        rows = [difference for difference in found.differences if difference.effect == effect]
        if rows:
            yield Heading(title)
        for row in rows:
            words = paragraph((text.clean(row.what), "bold"), (f"  {text.clean(row.message)}", ""))
            yield Marked(("✗", "bold red"), words, 2)
    if found.unread:
        yield Paragraph()
        yield paragraph((f"Its class could not be looked at: {text.clean(found.unread)}", "yellow"))
