"""The choices of other frameworks on this machine, compared with ours.

A script that another framework starts runs on the device that the framework chooses, not on that of
`get_accelerator()`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata

from accel_core import builtin, hardware, torch_build
from accel_core.survey import Survey
from accel_core.text import one_line
from accel_tools.doctor.frameworks import FRAMEWORKS, Framework, ask
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC"]

#: Names the frameworks to which accel-train hands our accelerator.
_INTEGRATIONS = "ACCEL_INTEGRATIONS"


def _examine(visit: Visit) -> Iterator[Finding]:
    installed = [
        (framework, version)
        for framework in FRAMEWORKS
        if (version := _version(framework))
    ]
    if not installed:
        names = ", ".join(framework.name for framework in FRAMEWORKS)
        yield Finding(
            Level.OK, "frameworks.not-installed", f"none of {names} is installed"
        )
        return
    from accel_core.sandbox import child

    integrated = (
        visit.environ.get(_INTEGRATIONS, "").lower().replace(" ", "").split(",")
    )
    seconds = visit.settings.probe_timeout
    asked = [
        framework
        for framework, _ in installed
        if framework.distributions[0] not in integrated
    ]
    answers = iter(
        child.run_in_parallel(
            lambda framework: _answer(framework, seconds),
            asked,
            hardware.usable_cores(),
        )
    )
    ours, device = _ours(visit.survey())
    for framework, version in installed:
        who = f"{framework.name} {version}"
        if framework in asked:
            yield _compared(framework, who, next(answers), ours, device)
        else:
            what = f"{who} uses {ours}, because {_INTEGRATIONS} names it"
            yield Finding(Level.OK, "frameworks.integrated", what)


def _version(framework: Framework) -> str:
    """Return the version that is installed; empty where something of it is missing."""
    try:
        versions = [metadata.version(name) for name in framework.distributions]
    except metadata.PackageNotFoundError:
        return ""
    return versions[0]


def _answer(framework: Framework, seconds: float) -> tuple[str, str, str]:
    """Return the device that it chooses; else how it fails; else why that is not known."""
    from accel_core.sandbox import child

    try:
        # With torch's autoload, as the user's program has it.
        report = child.run(ask, {"framework": framework.name}, seconds, autoload=True)
    except OSError as error:
        return "", "", f"no child process could be started to probe it: {error}"
    if report.answer is not None:
        return (
            one_line(str(report.answer["device"])),
            one_line(str(report.answer["fails"])),
            "",
        )
    if report.timed_out:
        return "", "", f"no response within {report.waited:g} s (--timeout allows more)"
    return "", f"its process {report.ending}", ""


def _compared(
    framework: Framework, who: str, answer: tuple[str, str, str], ours: str, device: str
) -> Finding:
    """Compare its answer with `ours`, a backend's name, and `device`, torch's name of the same."""
    theirs, fails, unknown = answer
    facts = {"asked": framework.question}
    if unknown:
        what = f"the choice of {who} is not known: {unknown}"
        return Finding(Level.OK, "frameworks.unknown", what, facts=facts)
    if fails:
        what = f"{who} chooses nothing: {fails}"
        incomplete = fails.startswith("ModuleNotFoundError")
        step = (
            "install what pip check names"
            if incomplete
            else framework.step(ours or "cpu", "")
        )
        return Finding(Level.WARNING, "frameworks.fails", what, step, facts=facts)
    if not ours:
        return Finding(
            Level.OK, "frameworks.alone", f"{who} would choose {theirs}", facts=facts
        )
    if theirs == device:
        return Finding(
            Level.OK, "frameworks.same", f"{who} would choose {theirs} too", facts=facts
        )
    what = f"{who} would choose {theirs}, but accel_core chooses {ours}"
    return Finding(
        Level.WARNING,
        "frameworks.differs",
        what,
        framework.step(ours, theirs),
        facts=facts,
    )


def _ours(surveyed: Survey) -> tuple[str, str]:
    """Return the backend that is chosen, and torch's name of its device; of `generic` torch's for both."""
    chosen = (surveyed.selection.name if surveyed.selection else "") or ""
    if chosen == builtin.GENERIC.name:
        return _of_the_build(), _of_the_build()
    return chosen, next(
        (v.device_type for v in surveyed.verdicts if v.name == chosen), chosen
    )


def _of_the_build() -> str:
    """Return the device that torch was built for; empty for its CPU build."""
    build = torch_build()
    if build is None:
        return ""
    if build.cuda or build.hip:
        return "cuda"
    return "xpu" if build.xpu else "mps" if sys.platform == "darwin" else ""


TOPIC = Topic("frameworks", "Devices other frameworks would use", _examine)
