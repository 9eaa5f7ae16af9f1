"""A candidate to its verdict: what is known without importing anything, then the device.

Nothing is raised: every failure is a verdict with its reason, cause and next step.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable

from accel_core._support import log
from accel_core._support.quiet import stdout_to_stderr
from accel_core._support.record import Record
from accel_core.backend import Backend, ProbeResult
from accel_core.detection import builtin
from accel_core.detection.creation import create, installed_imports, private_use1_is_free
from accel_core.detection.discovery import discover
from accel_core.detection.facts import examine, is_absence
from accel_core.detection.plugin import Hooks
from accel_core.detection.records import (
    CAUGHT,
    Candidate,
    Outcome,
    Status,
    Unloaded,
    Verdict,
    root_cause,
    root_place,
    verdict,
)
from accel_core.errors import AccelError, BackendUnavailableError, DeclinedError, InvalidAcceleratorError
from accel_core.machine import devices
from accel_core.settings import Settings

__all__ = ["Group", "answer_in_child", "can_be_broken", "in_full", "inspect", "probe"]


class Group(Record):
    """Candidates that are judged together, and the hooks of their plugins."""

    candidates: tuple[Candidate | Unloaded, ...]
    hooks: Hooks

    @classmethod
    def of(cls, candidates: Iterable[Candidate | Unloaded]) -> Group:
        """The group of these candidates."""
        items = tuple(candidates)
        plugins = [c.plugin for c in items if isinstance(c, Candidate)]
        return cls(items, Hooks(plugins, direct=builtin))

    def declares(self, plugin: object) -> Backend:
        """The first backend of that plugin."""
        return next(c.backend for c in self.candidates if isinstance(c, Candidate) and c.plugin is plugin)

    def beside(self, candidate: Candidate) -> tuple[Backend, ...]:
        """The other backends."""
        return tuple(c.backend for c in self.candidates if isinstance(c, Candidate) and c is not candidate)


def inspect(candidate: Candidate | Unloaded, settings: Settings, otherwise: Outcome) -> Verdict:
    """The verdict without probing: what rules `candidate` out statically, else `otherwise`."""
    evidence = _evidence(candidate)
    ruled_out, _ = examine(candidate, settings, evidence)
    if ruled_out is not None:
        log.say(f"{candidate.name}: {ruled_out.status.words}. {ruled_out.reason}")
    return verdict(candidate, ruled_out or otherwise, evidence)


def probe(
    candidate: Candidate | Unloaded,
    settings: Settings,
    group: Group,
    *,
    pinned: bool = False,
    isolated: bool = False,
) -> Verdict:
    """The verdict on one candidate; never raises what a plugin or vendor raises.

    `pinned`: the user asked for this backend by name, so it may be usable without a device, as on a
    login node. `isolated`: the device in a child process, and only there, so that this process does not
    import torch. Where the settings or the declaration ask for isolation, the child comes first and this
    process follows only when the child lived.
    """
    start = time.perf_counter()
    evidence = _evidence(candidate)
    outcome, absence = examine(candidate, settings, evidence, pinned=pinned)
    if outcome is None:
        assert isinstance(candidate, Candidate)
        doubtful = absence is not None and not pinned
        outcome = _ask(candidate, settings, group, pinned=pinned, isolated=isolated, doubtful=doubtful)
        if doubtful and (outcome.status is Status.NO_DEVICE or outcome.status.is_failure):
            outcome = absence  # the vendor counts none either, or fails as one does without its device
    assert outcome is not None
    if pinned and is_absence(outcome):
        why = absence or outcome  # what was seen without the vendor says more than its count
        outcome = Outcome(Status.USABLE, f"pinned, though {why.reason}", why.hint, 0)
    found = verdict(candidate, outcome, evidence, (time.perf_counter() - start) * 1e3)
    log.say(f"{found.name}: {found.status.words}, after {found.ms:.1f} ms. {found.reason}")
    return found


def in_full(candidate: Candidate | Unloaded, first: Verdict, settings: Settings, group: Group) -> Verdict:
    """The verdict with what else is wrong: without a device a broken vendor package would stay unseen.

    Absent hardware remains the verdict, for no mended package changes that. A child process tries it.
    """
    if first.status is not Status.NO_DEVICE or not can_be_broken(candidate):
        return first
    beyond = probe(candidate, settings, group, pinned=True, isolated=True)
    if not beyond.status.is_failure:
        return first
    return first._replace(
        reason=f"{first.reason}; besides, {beyond.reason}",
        hint=beyond.hint,
        cause=beyond.cause,
        where=beyond.where,
        ms=first.ms + beyond.ms,
        broken=True,
    )


def can_be_broken(candidate: Candidate | Unloaded) -> bool:
    """Whether a vendor's package is installed, which need not work."""
    return isinstance(candidate, Candidate) and installed_imports(candidate.backend) not in ([], ["torch"])


def _evidence(candidate: Candidate | Unloaded) -> devices.Evidence | None:
    return devices.evidence(candidate.backend) if isinstance(candidate, Candidate) else None


def _ask(
    candidate: Candidate, settings: Settings, group: Group, *, pinned: bool, isolated: bool, doubtful: bool
) -> Outcome:
    """The plugin and the device, here or in a child process first.

    A child comes first too where the device is doubtful: some vendors' packages end the process without it.
    """
    # Our own backends answer without importing anything, and need no child for that.
    if candidate.builtin and (answer := _plugin_answer(candidate, group)) is not None:
        return answer
    untried = candidate.builtin and builtin.loads_unclaimed(candidate.backend, group.beside(candidate))
    untried = untried or (not pinned and _takes_the_slot(candidate, settings, group))
    elsewhere = candidate.backend.isolated_probe or candidate.backend.count_starts_device
    if isolated or settings.isolated or elsewhere or doubtful or untried:
        outcome = _in_child(candidate, settings.probe_timeout, pinned=pinned)
        if isolated or outcome.status not in (Status.USABLE, Status.NO_DEVICE):
            return outcome
        if outcome.status is Status.NO_DEVICE and not pinned:
            return outcome
        if candidate.backend.count_starts_device:
            return ask_device(candidate, group, pinned=pinned, counted=outcome)
    return ask_device(candidate, group, pinned=pinned)


def _takes_the_slot(candidate: Candidate, settings: Settings, group: Group) -> bool:
    """Whether its import takes torch's one PrivateUse1 slot, for which another candidate would be too late.

    A package that then counts no device, or fails, would leave this process to nobody.
    """
    if not candidate.backend.private_use1 or not private_use1_is_free():
        return False
    others = group.beside(candidate)
    rivals = [b for b in others if b.private_use1 and installed_imports(b)]
    return bool(rivals or len(settings.pins) > 1 or builtin.unclaimed((*others, candidate.backend)))


def ask_device(
    candidate: Candidate,
    group: Group,
    *,
    pinned: bool,
    stage: Callable[[str], None] = lambda _: None,
    counted: Outcome | None = None,
) -> Outcome:
    """The plugin's own answer, then build the accelerator and count devices, all in this process.

    A plugin that answers "usable" is believed about its devices; that its accelerator can be built is
    seen here, where a failure is a verdict that leaves the next backend its turn. `counted` is what a child
    process found, where counting here would start the device's runtime.
    """
    at = ""

    def step(text: str) -> None:
        nonlocal at
        at = text
        stage(text)

    step(f"accel_probe() of {candidate.provenance}")
    answer = _plugin_answer(candidate, group)
    forgiven = answer is not None and pinned and is_absence(answer)
    if answer is not None and answer.status is not Status.USABLE and not forgiven:
        return answer
    try:
        accelerator = create(candidate, group.beside(candidate), group.hooks, step)
        if answer is not None or counted is not None:
            return answer or counted  # type: ignore[return-value]  # one of them is there
        step(f"device_count() of {candidate.provenance}")
        with stdout_to_stderr():
            count: object = accelerator.device_count()
    except CAUGHT as error:
        stage(f"{at}, and what its error means")  # plugins are asked for that
        return _failed(candidate, error, group, at)
    # The annotation of device_count() is a promise of the plugin's, and plugins break promises.
    if type(count) is not int or count < 0:
        return Outcome(
            Status.INVALID,
            f"device_count() gave {count!r} ({type(count).__name__}), expected an int of 0 or more",
            f"report this to the maintainers of {candidate.distribution}",
        )
    if count == 0:
        from accel_core.detection.uncounted import uncounted

        return uncounted(candidate.backend)
    return Outcome(Status.USABLE, devices=count)


def _plugin_answer(candidate: Candidate, group: Group) -> Outcome | None:
    """What `accel_probe` says, checked; `None` where the plugin leaves it to us."""
    try:
        group.hooks.check(candidate.plugin)
    except CAUGHT as error:
        return Outcome(
            Status.INVALID,
            f"a hook does not fit: {root_cause(error)}",
            f"pip install --upgrade {candidate.distribution} accel-core",
            error=error,
        )
    try:
        with stdout_to_stderr():
            answers = group.hooks.of(
                candidate.plugin, "accel_probe", backend=candidate.backend, others=group.beside(candidate)
            )
    except CAUGHT as error:
        return _failed(candidate, error, group, f"accel_probe() of {candidate.provenance}")
    if not answers:
        return None
    answer: object = answers[0]
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


#: Steps in which a plugin's own code runs; in the others it is the vendor's.
_OF_THE_PLUGIN = ("accel_probe()", "accel_create()", "accelerator=")


def _failed(candidate: Candidate, error: BaseException, group: Group, at: str) -> Outcome:
    """The outcome of an error that was raised in the step `at`, which tells whose it is."""
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the record is kept; the frames' objects must not be
    if isinstance(error, DeclinedError):  # an answer, not a failure: it needs no explanation
        status = Status.STANDS_ASIDE if error.stands_aside else Status.NO_DEVICE
        return Outcome(status, str(error), error.hint, error=error)
    # What we raise ourselves knows its next step; the plugins are asked about everybody else's errors.
    hint = getattr(error, "hint", "") if isinstance(error, AccelError) else ""
    hint = hint or explain(candidate, error, group)
    if isinstance(error, BackendUnavailableError):
        return Outcome(Status.BROKEN, str(error), hint, error=error)
    hint = hint or _report_to(candidate, at)
    if isinstance(error, InvalidAcceleratorError):
        return Outcome(Status.INVALID, str(error), hint, error=error)
    if at.startswith(_OF_THE_PLUGIN):
        return Outcome(Status.BROKEN, f"{at} failed: {root_cause(error)}", hint, error=error)
    vendor = " or ".join(candidate.backend.vendor_imports)
    return Outcome(Status.BROKEN, f"{vendor} failed: {root_cause(error)}", hint, error=error)


def _report_to(candidate: Candidate, at: str) -> str:
    """Who is to hear of a failure in the step `at`; empty where it is not the plugin's own."""
    own = at.startswith(_OF_THE_PLUGIN)
    return f"report this to the maintainers of {candidate.distribution}" if own else ""


def explain(candidate: Candidate, error: BaseException, group: Group) -> str:
    """The next step after this error; empty where nobody knows one.

    The candidate's own plugin is asked first, then the hints of its declaration, then the other plugins.
    Before API level 2 a plugin could take every error for one of its own backend's, so it is asked about
    no other.
    """
    from accel_core._support.hints import hint_for  # here, as most processes have no error to explain

    with stdout_to_stderr():
        answers = group.hooks.each(
            "accel_explain", first=candidate.plugin, backend=candidate.backend, error=error
        )
        others: list[str] = []
        for plugin, hint in answers:
            if not isinstance(hint, str) or not hint:
                continue
            if plugin is candidate.plugin:
                return hint
            if group.declares(plugin).api_level >= 2:
                others.append(hint)
    return hint_for(error, candidate.backend.hints) or next(iter(others), "")


# --- In a child process --------------------------------------------------------------------------------


def _in_child(candidate: Candidate, timeout: float, *, pinned: bool) -> Outcome:
    """The plugin and the device in a child process, whose end, whatever it was, is an ordinary outcome."""
    from accel_core._support import child  # here, as most processes start none

    job: dict[str, object] = {
        "name": candidate.name,
        "distribution": candidate.distribution,
        "priority": candidate.priority,
        "pinned": pinned,
    }
    log.say(f"try {candidate} in a child process, for at most {timeout:g} s")
    try:
        report = child.run(answer_in_child, job, timeout)
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
            cause=str(answer["cause"]),
            where=str(answer["where"]),
        )
    if report.timed_out:
        return Outcome(
            Status.TIMED_OUT,
            f"no answer within {timeout:g} s; it was at: {report.stage}",
            f"{_report_to(candidate, report.stage) or 'raise ACCEL_PROBE_TIMEOUT'}, or set "
            f"ACCEL_BLOCK={candidate.name}",
        )
    mend = "reinstall the vendor's package"
    last_line = f"; last words: {report.stderr.splitlines()[-1]}" if report.stderr else ""
    return Outcome(
        Status.CRASHED,
        f"the process that probed it {report.ending} at: {report.stage}{last_line}",
        f"{_report_to(candidate, report.stage) or mend}, or set ACCEL_BLOCK={candidate.name}",
    )


def answer_in_child(job: dict[str, object], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: find the candidate again and ask its plugin and its device."""
    stage("loading of the plugins")
    builtin.on_step = stage
    group = Group.of(discover())
    wanted = (job["name"], job["distribution"], job["priority"])
    for candidate in group.candidates:
        if isinstance(candidate, Candidate) and wanted == (
            candidate.name, candidate.distribution, candidate.priority,
        ):  # fmt: skip
            outcome = ask_device(candidate, group, pinned=bool(job["pinned"]), stage=stage)
            break
    else:
        outcome = Outcome(Status.BROKEN, "the probing process did not find the plugin")
    return {
        "status": outcome.status,
        "reason": outcome.reason,
        "hint": outcome.hint,
        "devices": outcome.devices,
        "cause": root_cause(outcome.error) if outcome.error else "",
        "where": root_place(outcome.error) if outcome.error else "",
    }
