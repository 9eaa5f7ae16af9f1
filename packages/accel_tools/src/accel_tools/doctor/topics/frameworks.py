"""Compare the devices that frameworks would choose on this machine with accel's choice.

A script that uses a framework runs on the device that the framework chooses, which may differ
from the device of `get_accelerator()`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import NamedTuple

from accel_core import builtin, hardware, torch_build
from accel_core.survey import Survey
from accel_core.text import one_line
from accel_tools.doctor.frameworks import FRAMEWORKS, Framework, query_device
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = ["TOPIC"]

#: The environment variable with the frameworks to which accel-train passes accel's device.
_INTEGRATIONS = "ACCEL_INTEGRATIONS"


class _FrameworkChoice(NamedTuple):
    """The device that a framework would choose, or why there is none; exactly one field is set."""

    #: torch's name of the device.
    device: str = ""
    #: The reason why the framework fails.
    failure: str = ""
    #: The reason why the framework's choice could not be determined.
    unknown: str = ""


class _AccelChoice(NamedTuple):
    """The chosen backend, and its device; both are empty if no backend can be chosen."""

    #: The name of the backend.
    backend: str
    #: torch's name of the backend's device.
    device: str


def _examine_frameworks(context: DiagnosticContext) -> Iterator[Finding]:
    versions = _installed_frameworks()
    if not versions:
        names = ", ".join(framework.name for framework in FRAMEWORKS)
        what = f"none of {names} is installed"
        yield Finding(Level.OK, "frameworks.not-installed", what)
        return
    choice_by_framework = _query_frameworks(versions, context)
    accel_choice = _accel_choice(context.survey())
    for framework, version in versions.items():
        title = f"{framework.name} {version}"
        choice = choice_by_framework.get(framework)
        if choice is not None:
            yield _comparison_finding(framework, title, choice, accel_choice)
        else:  # accel's integration makes the framework use accel's choice.
            backend = accel_choice.backend
            what = f"{title} uses {backend}, because {_INTEGRATIONS} names {framework.name}"
            yield Finding(Level.OK, "frameworks.integrated", what)


def _query_frameworks(
    frameworks: Iterable[Framework], context: DiagnosticContext
) -> dict[Framework, _FrameworkChoice]:
    """Return the choice of each framework that does not take accel's choice anyway."""
    from accel_core.sandbox import child

    integrated_names = _integrated_names(context.environ)
    queried = []
    for framework in frameworks:
        if framework.distributions[0] not in integrated_names:
            queried.append(framework)

    def query(framework: Framework) -> _FrameworkChoice:
        return _query_in_child_process(framework, context.settings.probe_timeout)

    choices = child.run_in_parallel(query, queried, hardware.usable_cores())
    return dict(zip(queried, choices, strict=True))


def _installed_frameworks() -> dict[Framework, str]:
    """Return the frameworks whose distributions are all installed, with their versions."""
    installed = {}
    for framework in FRAMEWORKS:
        try:
            versions = [metadata.version(name) for name in framework.distributions]
        except metadata.PackageNotFoundError:
            continue
        version_of_framework = versions[0]  # Its own distribution comes first.
        installed[framework] = version_of_framework
    return installed


def _integrated_names(environ: Mapping[str, str]) -> list[str]:
    """Return the distributions of the frameworks to which accel-train passes accel's device."""
    names = environ.get(_INTEGRATIONS, "").lower().split(",")
    return [name.strip() for name in names]


def _query_in_child_process(framework: Framework, timeout: float) -> _FrameworkChoice:
    """Query the framework's device in a child process with a time limit of `timeout` seconds."""
    from accel_core.sandbox import child

    job = {"framework": framework.name}
    try:
        # torch's autoload is on, as in the user's program.
        report = child.run(query_device, job, timeout, autoload=True)
    except OSError as error:
        return _FrameworkChoice(unknown=f"no child process could be started: {error}")
    if report.answer is not None:
        device, failure = report.answer["device"], report.answer["error"]
        return _FrameworkChoice(one_line(str(device)), one_line(str(failure)))
    if report.timed_out:
        reason = f"no response within {report.timeout:g} s (--timeout sets the limit)"
        return _FrameworkChoice(unknown=reason)
    return _FrameworkChoice(failure=f"its process {report.ending}")


def _comparison_finding(
    framework: Framework,
    title: str,
    choice: _FrameworkChoice,
    accel_choice: _AccelChoice,
) -> Finding:
    """Return the finding about whether a framework chooses the same device as `accel_core`.

    `title` is the framework's name and version.
    """
    backend = accel_choice.backend
    facts = {"call": framework.call}
    if choice.unknown:
        what = f"could not determine the device of {title}: {choice.unknown}"
        return Finding(Level.OK, "frameworks.unknown", what, facts=facts)
    if choice.failure:
        what = f"{title} cannot choose a device: {choice.failure}"
        step = framework.step(backend or "cpu", device="")
        if choice.failure.startswith("ModuleNotFoundError"):
            step = "run `pip check`, and install the packages that it lists"
        return Finding(Level.WARNING, "frameworks.fails", what, step, facts=facts)
    what = f"{title} would choose {choice.device}"
    if not backend:
        return Finding(Level.OK, "frameworks.alone", what, facts=facts)
    if choice.device == accel_choice.device:
        return Finding(Level.OK, "frameworks.same", f"{what} too", facts=facts)
    what = f"{what}, but accel_core chooses {backend}"
    step = framework.step(backend, choice.device)
    return Finding(Level.WARNING, "frameworks.differs", what, step, facts=facts)


def _accel_choice(survey: Survey) -> _AccelChoice:
    """Return the backend that `accel_core` chooses, and its device.

    For the backend `generic`, which has no device type of its own, both are torch's device type.
    """
    backend = survey.selection.name if survey.selection else None
    if backend is None:
        return _AccelChoice(backend="", device="")
    if backend == builtin.GENERIC.name:
        # The generic backend drives the device of the torch build.
        device = _device_of_torch_build()
        return _AccelChoice(backend=device, device=device)
    for verdict in survey.verdicts:
        if verdict.name == backend:
            return _AccelChoice(backend, device=verdict.device_type)
    return _AccelChoice(backend, device=backend)


def _device_of_torch_build() -> str:
    """Return the device type for which torch was built.

    Returns an empty string for the CPU build.
    """
    build = torch_build()
    if build is None:
        return ""
    if build.cuda or build.hip:
        return "cuda"
    if build.xpu:
        return "xpu"
    return "mps" if sys.platform == "darwin" else ""


TOPIC = Topic("frameworks", "Devices other frameworks would use", _examine_frameworks)
