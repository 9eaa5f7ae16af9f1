"""The words and styles that the commands share. Knows nothing of rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from accel_core.detection import Status, Verdict, messages
from accel_core.errors import clean
from accel_core.settings import normalize_distribution

__all__ = ["AUTOLOAD", "clean", "count", "folded", "remark", "style", "uninstalled"]

#: The heading above what torch's autoload spoils.
AUTOLOAD = "Programs that import torch first"

#: Not probed, or blocked by the user: nothing that anybody has to mend.
_UNJUDGED = (Status.NOT_PROBED, Status.BLOCKED)


def style(verdict: Verdict) -> str:
    """The style for the status: green is usable, red is broken, the rest is merely not there."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    return "dim" if verdict.status in _UNJUDGED else "yellow"


def remark(verdict: Verdict) -> str:
    """Text beside the status: the reason, else the devices, else a description of the backend."""
    if verdict.reason or not verdict.usable:
        return clean(verdict.reason)
    return count(verdict.devices, "device") if verdict.devices else clean(verdict.description)


def uninstalled(verdicts: Iterable[Verdict]) -> str:
    """One line for backends of which only a package is missing; empty without any."""
    of_torch: dict[bool, dict[str, None]] = {}
    for verdict in verdicts:
        of_torch.setdefault(verdict.vendor_import == ("torch",), {})[clean(verdict.name)] = None
    parts = (
        f"{'need torch' if torch else 'vendor package not installed'}: {', '.join(names)}"
        for torch, names in of_torch.items()
    )
    line = "; ".join(parts)
    return f"{line[:1].upper()}{line[1:]}"


def count(number: int, noun: str) -> str:
    """`"1 device"`, `"8 devices"`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def folded(verdicts: Iterable[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """The verdicts that have a row of their own, their reasons in plain words, and those that share one line.

    Declarations of one backend, of one distribution, whose devices are all absent have one row; none where
    another declaration of that backend says more. What is only not installed shares the line, unless it is
    so few that each can say what to do.
    """
    every = list(verdicts)
    uninstalled = [v for v in every if messages.is_uninstalled(v)]
    shared = uninstalled if len({v.name for v in uninstalled}) >= messages.MANY else []
    rows: list[Verdict] = []
    for v in every:
        if v in shared:
            continue
        if not _is_only_absent(v):
            rows.append(v._replace(reason=messages.reason(v)))
            continue
        alike = [w for w in every if _key(w) == _key(v)]
        absent = [w for w in alike if _is_only_absent(w)]
        if absent[0] is v and all(w in absent or messages.is_uninstalled(w) for w in alike):
            rows.append(v._replace(reason=messages.none_found(w.hardware for w in absent)))
    told = {_key(v) for v in rows}
    return [*_once(rows)], [v for v in shared if _key(v) not in told]


def _once(rows: Iterable[Verdict]) -> Iterator[Verdict]:
    """The rows, each cause in full where it stands first: it may be long, and a broken torch breaks all."""
    told: dict[str, str] = {"": ""}
    for v in rows:
        same = f", for the same reason as {told[v.cause]}" if told.get(v.cause) else ""
        yield v._replace(reason=v.reason.replace(f": {v.cause}", same)) if same else v
        told.setdefault(v.cause, v.name)


def _is_only_absent(verdict: Verdict) -> bool:
    return verdict.absent and verdict.status is Status.NO_DEVICE and not verdict.broken


def _key(verdict: Verdict) -> tuple[str, str]:
    return verdict.name, normalize_distribution(verdict.provenance.distribution)
