"""A candidate to its verdict: a funnel, cheapest question first.

1. policy, API level and hooks; 2. platform; 3. the vendor's package, by `find_spec`, and that it fits torch;
4. device nodes and PCI ids, then required distributions; 5. the plugin's own probe, or else the vendor import
and the device count. Nothing is raised: every failure is a verdict with its reason, cause and next step.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from accel_core._support.quiet import stdout_to_stderr
from accel_core._support.torch_import import torch_build
from accel_core.backend import API_LEVEL, Backend, ProbeResult
from accel_core.detection.creation import create, installed_imports
from accel_core.detection.discovery import CAUGHT, Candidate, discover, root_cause
from accel_core.detection.records import Outcome, Status, Verdict, verdict
from accel_core.errors import (
    BackendUnavailableError,
    DeclinedError,
    InvalidAcceleratorError,
    InvalidBackendError,
)
from accel_core.machine import devices, host
from accel_core.settings import Settings

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["examine", "explain", "live", "probe"]


def probe(
    candidate: Candidate,
    settings: Settings,
    others: Iterable[Candidate] = (),
    *,
    pinned: bool = False,
    isolated: bool = False,
) -> Verdict:
    """The verdict on one candidate; never raises what a plugin or vendor raises.

    `pinned`: the user asked for this backend by name, so it may be usable without a device, as on a
    login node. `isolated`: the last step in a child process, and only there, so that this process does
    not import torch. Where the settings or the declaration ask for isolation, the child comes first and
    this process follows only when the child lived.
    """
    start = time.perf_counter()
    backends = tuple(c.backend for c in others if c.backend is not None and c is not candidate)
    outcome = examine(candidate, settings, pinned=pinned) or _ask(
        candidate, settings, backends, pinned=pinned, isolated=isolated
    )
    if pinned and outcome.status is Status.NO_DEVICE and outcome.devices == 0:
        outcome = Outcome(Status.USABLE, f"pinned, though {outcome.reason}", outcome.hint, 0)
    return verdict(candidate, outcome, (time.perf_counter() - start) * 1e3)


def examine(candidate: Candidate, settings: Settings, *, pinned: bool = False) -> Outcome | None:
    """Steps 1 to 4, which import neither torch nor a vendor; `None` where all of them pass."""
    backend = candidate.backend
    refused = _policy(candidate, settings)
    if refused is not None:
        return refused
    if backend is None:
        return _faulty(candidate)
    steps: list[Callable[[], Outcome | None]] = [
        lambda: _api_level(backend),
        lambda: _hooks(candidate),
        lambda: _platform(backend),
        lambda: _installed(backend),
        lambda: _follows_torch(backend),
    ]
    if not pinned:
        steps.append(lambda: _hardware(backend))
    # Last, for reading version ranges costs more than all the rest together.
    steps.append(lambda: _requirements(backend))
    for step in steps:
        outcome = step()
        if outcome is not None:
            return outcome
    return None


def _policy(candidate: Candidate, settings: Settings) -> Outcome | None:
    if candidate.matches(settings.block):
        return Outcome(Status.BLOCKED, "ACCEL_BLOCK names it", f"take {candidate.name} out of ACCEL_BLOCK")
    if settings.allow and not candidate.matches(settings.allow):
        return Outcome(Status.BLOCKED, "ACCEL_ALLOW does not name it", f"add {candidate.name} to ACCEL_ALLOW")
    return None


def _faulty(candidate: Candidate) -> Outcome:
    fault = candidate.fault
    if fault is None:
        return Outcome(Status.NOT_PROBED, "its plugin was not loaded")
    status = Status.INVALID if isinstance(fault.error, InvalidBackendError) else Status.BROKEN
    return Outcome(status, fault.reason, fault.hint, error=fault.error)


def _hooks(candidate: Candidate) -> Outcome | None:
    """Whether the plugin's hooks fit ours; one for a newer API level may have hooks we do not know."""
    if candidate.plugin is None:
        return None
    try:
        candidate.plugin.hook  # noqa: B018 - registers the plugin, which checks it
    except CAUGHT as error:
        return Outcome(
            Status.INVALID,
            f"a hook does not fit: {root_cause(error)}",
            f"pip install --upgrade {candidate.distribution} accel-core",
            error=error,
        )
    return None


def _api_level(backend: Backend) -> Outcome | None:
    if backend.api_level <= API_LEVEL:
        return None
    return Outcome(
        Status.INCOMPATIBLE,
        f"it needs API level {backend.api_level} and this accel-core has {API_LEVEL}",
        "pip install --upgrade accel-core",
    )


def _platform(backend: Backend) -> Outcome | None:
    if host.platform_matches(backend.platforms):
        return None
    return Outcome(Status.NO_DEVICE, f"this device exists on {', '.join(backend.platforms)} only")


def _requirements(backend: Backend) -> Outcome | None:
    """Required distributions and their versions, from metadata; markers that do not apply are passed over."""
    if not backend.requires:
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    from accel_core._support.metadata import version

    for text in backend.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            return Outcome(Status.INVALID, f"its requirement {text!r} is malformed: {error}", error=error)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        found = version(requirement.name)
        if found is None:
            hint = backend.install_hint or f"pip install '{text}'"
            return Outcome(Status.NOT_INSTALLED, f"{requirement.name} is not installed", hint)
        if not _satisfies(found, requirement):
            return Outcome(
                Status.INCOMPATIBLE,
                f"it needs {text} and {requirement.name} {found} is installed",
                f"pip install '{text}'",
            )
    return None


def _satisfies(found: str, requirement: Requirement) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return requirement.specifier.contains(Version(found), prereleases=True)
    except InvalidVersion:  # a private build's own scheme lies in no range
        return not requirement.specifier


def _follows_torch(backend: Backend) -> Outcome | None:
    """Whether what is built for one release of torch was built for the torch that is here.

    Some such packages end the process when they are imported beside another torch.
    """
    build = torch_build() if backend.follows_torch else None
    if build is None:  # creation says that torch is missing
        return None
    from accel_core._support.metadata import version

    for name in backend.follows_torch:
        found = version(name)
        if found is None:
            return Outcome(Status.NOT_INSTALLED, f"{name} is not installed", backend.install_hint)
        release = _minor(found)
        if release != _minor(build.version):
            hint = f"pip install 'torch=={release}.*', or: {backend.install_hint}".removesuffix(", or: ")
            reason = f"{name} {found} works with torch {release} only, and torch {build.version} is installed"
            return Outcome(Status.INCOMPATIBLE, reason, hint)
    return None


def _minor(text: str) -> str:
    """`"2.8"` of `"2.8.10+xpu"`."""
    return ".".join(text.split("+", maxsplit=1)[0].split(".")[:2])


def _installed(backend: Backend) -> Outcome | None:
    if installed_imports(backend):
        return None
    missing = " or ".join(backend.vendor_imports)
    reason = f"{missing} is not installed"
    found = devices.evidence(backend)
    if found:
        reason += f", though the hardware is there: {found}"
    return Outcome(Status.NOT_INSTALLED, reason, backend.install_hint)


def _hardware(backend: Backend) -> Outcome | None:
    found = devices.evidence(backend)
    if found is None or found:
        return None
    sought = [*backend.device_nodes, *(f"PCI {pattern}" for pattern in backend.pci_ids)]
    return Outcome(Status.NO_DEVICE, f"this machine has none of {', '.join(sought)}", devices=0)


def _ask(
    candidate: Candidate, settings: Settings, others: tuple[Backend, ...], *, pinned: bool, isolated: bool
) -> Outcome:
    """Step 5, here or in a child process first."""
    # Our own backends answer without importing anything, and need no child for that.
    if candidate.builtin and (answer := _plugin_answer(candidate, others)) is not None:
        return answer
    if isolated or settings.isolated or (candidate.backend is not None and candidate.backend.isolated_probe):
        outcome = _in_child(candidate, settings.probe_timeout)
        if isolated or outcome.status not in (Status.USABLE, Status.NO_DEVICE):
            return outcome
        if outcome.status is Status.NO_DEVICE and not pinned:
            return outcome
    return live(candidate, others)


def live(
    candidate: Candidate, others: tuple[Backend, ...], stage: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Step 5 in this process: the plugin's own answer, then build the accelerator and count devices.

    A plugin that answers "usable" is believed about its devices; that its accelerator can be built is
    seen here, where a failure is a verdict that leaves the next backend its turn.
    """
    stage(f"accel_probe of {candidate}")
    answer = _plugin_answer(candidate, others)
    if answer is not None and answer.status is not Status.USABLE:
        return answer
    try:
        stage(f"import of {', '.join(installed_imports(candidate.backend)) if candidate.backend else ''}")
        accelerator = create(candidate, others)
        if answer is not None:
            return answer
        stage("device_count()")
        with stdout_to_stderr():
            count: object = accelerator.device_count()
    except CAUGHT as error:
        return _failed(candidate, error)
    # The annotation of device_count() is a promise of the plugin's, and plugins break promises.
    if type(count) is not int or count < 0:
        return Outcome(
            Status.INVALID,
            f"device_count() gave {count!r} ({type(count).__name__}), expected an int of 0 or more",
            f"report this to the maintainers of {candidate.distribution}",
        )
    if count == 0:
        return Outcome(Status.NO_DEVICE, _why_none(candidate), devices=0)
    return Outcome(Status.USABLE, devices=count)


def _why_none(candidate: Candidate) -> str:
    from accel_core.machine.visible_devices import hidden_by

    hidden = hidden_by(candidate.backend, os.environ) if candidate.backend else None
    return hidden or "the vendor's runtime counts no device"


def _plugin_answer(candidate: Candidate, others: tuple[Backend, ...]) -> Outcome | None:
    """What `accel_probe` says, checked; `None` where the plugin leaves it to us."""
    if candidate.plugin is None:
        return None
    try:
        with stdout_to_stderr():
            answer: object = candidate.plugin.hook.accel_probe(backend=candidate.backend, others=others)
    except CAUGHT as error:
        return _failed(candidate, error)
    if answer is None:
        return None
    if not isinstance(answer, ProbeResult) or not _is_well_formed(answer):
        return Outcome(
            Status.INVALID,
            f"accel_probe() returned {answer!r} ({type(answer).__name__}), "
            "expected accel_core.ProbeResult or None",
            f"report this to the maintainers of {candidate.distribution}",
        )
    if answer.usable:
        return Outcome(Status.USABLE, answer.reason, answer.hint, answer.devices)
    status = Status.STANDS_ASIDE if answer.stands_aside else Status.NO_DEVICE
    return Outcome(status, answer.reason, answer.hint, answer.devices)


def _is_well_formed(answer: ProbeResult) -> bool:
    """Whether the fields have their types: they go into messages and JSON."""
    devices: object = answer.devices
    flags = type(answer.usable) is bool and type(answer.stands_aside) is bool
    texts = isinstance(answer.reason, str) and isinstance(answer.hint, str)
    return flags and texts and (devices is None or (type(devices) is int and devices >= 0))


def _failed(candidate: Candidate, error: BaseException) -> Outcome:
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the record is kept; the frames' objects must not be
    hint = explain(candidate, error)
    if isinstance(error, DeclinedError):
        status = Status.STANDS_ASIDE if error.stands_aside else Status.NO_DEVICE
        return Outcome(status, str(error), error.hint or hint, error=error)
    if isinstance(error, (BackendUnavailableError, InvalidAcceleratorError)):
        status = Status.BROKEN if isinstance(error, BackendUnavailableError) else Status.INVALID
        return Outcome(status, str(error), hint, error=error)
    what = " or ".join(candidate.backend.vendor_imports) if candidate.backend else candidate.name
    return Outcome(Status.BROKEN, f"{what} failed: {root_cause(error)}", hint, error=error)


def explain(candidate: Candidate, error: BaseException) -> str:
    """The plugin's hint for this error; empty where it has none or fails itself."""
    if candidate.plugin is None:
        return ""
    try:
        with stdout_to_stderr():
            hint: object = candidate.plugin.hook.accel_explain(backend=candidate.backend, error=error)
    except CAUGHT:
        return ""
    return hint if isinstance(hint, str) else ""


def _in_child(candidate: Candidate, timeout: float) -> Outcome:
    """Step 5 in a child process, whose end, whatever it was, is an ordinary outcome."""
    from accel_core._support import child as isolation

    job: dict[str, object] = {
        "name": candidate.name,
        "distribution": candidate.distribution,
        "priority": str(candidate.priority),
    }
    try:
        report = isolation.run("accel_core.detection.probe:answer_in_child", job, timeout)
    except OSError as error:
        hint = "unset ACCEL_PROBE to probe in this process" if os.environ.get("ACCEL_PROBE") else ""
        return Outcome(Status.CRASHED, f"no process could be started to probe it: {error}", hint, error=error)
    if report.answer is not None:
        answer = report.answer
        devices = answer["devices"]
        return Outcome(
            Status(answer["status"]),
            str(answer["reason"]),
            str(answer["hint"]),
            devices if isinstance(devices, int) else None,
        )
    if report.timed_out:
        return Outcome(
            Status.TIMED_OUT,
            f"no answer within {timeout:g} s; it was at: {report.stage}",
            f"raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK={candidate.name}",
        )
    said = f"; last words: {report.stderr.splitlines()[-1]}" if report.stderr else ""
    return Outcome(
        Status.CRASHED,
        f"the process that probed it {report.ending} at: {report.stage}{said}",
        f"reinstall the vendor's package, or set ACCEL_BLOCK={candidate.name}",
    )


def answer_in_child(job: dict[str, str], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: find the candidate again and go through step 5."""
    candidates = discover()
    for candidate in candidates:
        if (candidate.name, candidate.distribution, str(candidate.priority)) == (
            job["name"], job["distribution"], job["priority"],
        ):  # fmt: skip
            others = tuple(c.backend for c in candidates if c.backend is not None and c is not candidate)
            outcome = live(candidate, others, stage)
            break
    else:
        outcome = Outcome(Status.BROKEN, "the probing process did not find the plugin")
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "hint": outcome.hint,
        "devices": outcome.devices,
    }
