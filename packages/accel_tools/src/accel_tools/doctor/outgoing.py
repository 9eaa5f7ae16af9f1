"""A redacted record of a visit that may leave this machine: the report, the ranking, versions, variables.

`--issue`, `--html` and `--bundle` write this record and read nothing else.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accel_core import Verdict, __version__, packages
from accel_core.packages import normalize_distribution
from accel_core.survey import Survey
from accel_tools.doctor.identity import Identity, matters, may_be_told
from accel_tools.doctor.records import Report, Visit
from accel_tools.doctor.redact import Redactor

__all__ = ["Outgoing", "Ranked", "distributions", "outgoing"]


class Ranked(NamedTuple):
    """One backend in the ranking."""

    name: str
    distribution: str
    priority: int
    #: The verdict's status in words: `"no device"`.
    status: str
    #: Whether something that is installed for it does not work.
    failed: bool
    usable: bool
    chosen: bool
    #: Milliseconds that its probe took.
    ms: float


class Outgoing(NamedTuple):
    """A visit that may be shown to strangers."""

    report: Report
    #: In rank order; none where no topic asked for the backends.
    ranking: tuple[Ranked, ...]
    #: Versions by name, this machine's platform among them.
    versions: Mapping[str, str]
    #: Variables that matter, with their values or `"set"`.
    variables: Mapping[str, str]

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON: the report's keys, and the fields of this record."""
        return {
            **self.report.to_dict(),
            "ranking": [row._asdict() for row in self.ranking],
            "versions": dict(self.versions),
            "variables": dict(self.variables),
        }


def outgoing(
    visit: Visit, report: Report, redactor: Redactor | None = None
) -> Outgoing:
    """Return the visit without texts that identify people, machines and folders."""
    redactor = redactor or Redactor(Identity.here(visit.environ))
    surveyed = visit.surveyed
    return redactor.of(
        Outgoing(
            report,
            tuple(_ranking(surveyed)) if surveyed else (),
            dict(_versions(surveyed)),
            {
                name: _told(name, value)
                for name, value in sorted(visit.environ.items())
                if matters(name)
            },
        )
    )


def _told(name: str, value: str) -> str:
    return value if may_be_told(name, value) else "set"


def _ranking(surveyed: Survey) -> Iterator[Ranked]:
    candidate = surveyed.selection.chosen if surveyed.selection else None
    for verdict in surveyed.verdicts:
        yield Ranked(
            verdict.name,
            str(verdict.provenance),
            verdict.priority,
            verdict.status.label,
            verdict.status.is_failure or verdict.also is not None,
            verdict.usable,
            candidate is not None and verdict.is_about(candidate),
            verdict.ms,
        )


def _versions(surveyed: Survey | None) -> Iterator[tuple[str, str]]:
    yield "accel-core", __version__
    yield (
        "Python",
        f"{platform.python_version()} ({platform.python_implementation()}, {sys.platform})",
    )
    yield "platform", f"{platform.system()} {platform.release()}, {platform.machine()}"
    libc = " ".join(platform.libc_ver())
    if libc.strip():
        yield "C library", libc
    for name in ("accel-train", "accel-tools", "accel-testing"):
        if beside := packages.version(name):
            yield name, beside
    yield "torch", packages.version("torch") or "not installed"
    for name in dict.fromkeys(_packages(surveyed.verdicts if surveyed else ())):
        if (version := packages.version(name)) is not None and name not in (
            "torch",
            "accel-core",
        ):
            yield name, version


def _packages(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    """The distributions that a verdict may hang on: plugins, and vendors' as most of them are named."""
    for verdict in verdicts:
        yield verdict.provenance.distribution
        yield from (
            normalize_distribution(module.partition(".")[0])
            for module in verdict.vendor_import
        )


def distributions() -> list[str]:
    """List installed distributions as `name==version`, sorted by name; of duplicates, the imported one."""
    found: dict[str, str] = {}
    for distribution in packages.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # metadata may be broken in any way
            continue
        if name:
            found.setdefault(normalize_distribution(name), f"{name}=={version}")
    return [line for _, line in sorted(found.items())]
