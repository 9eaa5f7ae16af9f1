"""A plugin and its device, asked in this process.

Nothing is raised: every failure is an outcome with its reason, cause and next step.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from accel_core._support.guarded import begin, preserved, stdout_to_stderr
from accel_core._support.torch_import import cause_and_step, import_torch
from accel_core.backend import Backend, ProbeResult
from accel_core.detection import builtin, plugins
from accel_core.detection.creation import create
from accel_core.detection.facts import hidden
from accel_core.detection.plugins import Unimported
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded
from accel_core.errors import (
    CAUGHT,
    AccelError,
    BackendUnavailableError,
    DeclinedError,
    InvalidAcceleratorError,
    InvalidBackendError,
    raise_if_users,
)
from accel_core.machine import devices

__all__ = ["Group", "ask_device", "explain", "plugin_answer", "report_to", "uncounted"]


class Group(NamedTuple):
    """Candidates that are judged together."""

    candidates: tuple[Candidate | Unloaded, ...]
    #: Whether this process may import plugins for no more than a hint: a child may.
    importing: bool = False

    def beside(self, candidate: Candidate) -> tuple[Backend, ...]:
        """The other backends.

        To what is built in, which takes what nobody claims, also those that the policy refused unread.
        """
        others = tuple(c.backend for c in self.candidates if isinstance(c, Candidate) and c is not candidate)
        return (*others, *self._claimed(others)) if candidate.builtin else others

    def refused(self) -> list[Unloaded]:
        """The plugins that the policy blocks, and nobody loads."""
        return [c for c in self.candidates if isinstance(c, Unloaded) and c.outcome.status is Status.BLOCKED]

    def _claimed(self, others: tuple[Backend, ...]) -> Iterator[Backend]:
        """Stand-ins for plugins that are not to be loaded: nobody knows which vendor's package is theirs.

        So they claim every package that announces itself to torch and that no other backend claims, and the
        device that is named as they are: what a user blocks must not come in by another door.
        """
        for candidate in self.refused():
            packages = tuple(e.module for e in builtin.unclaimed(others)) or ("torch",)
            with contextlib.suppress(InvalidBackendError):  # entry points may be called anything
                yield Backend(
                    name=candidate.name,
                    priority=0,
                    device_type=candidate.name.partition(".")[0],
                    vendor_import=packages,
                )


def ask_device(
    candidate: Candidate, group: Group, *, pinned: bool, counted: Outcome | None = None
) -> Outcome:
    """The plugin's own answer, then build the accelerator and count devices, all in this process.

    A plugin that answers "usable" is believed about its devices; that its accelerator can be built is
    seen here, where a failure is a verdict that leaves the next backend its turn. `counted` is what a child
    process found, where counting here would start the device's runtime.
    """
    answer = plugin_answer(candidate, group)
    forgiven = answer is not None and pinned and answer.is_absence
    if answer is not None and answer.status is not Status.USABLE and not forgiven:
        return answer
    at = ""

    def step(text: str) -> None:
        nonlocal at
        at = text
        begin(text)

    try:
        step("importing torch")
        import_torch()  # before the state is noted: what torch sets is not the vendor's
        with preserved(candidate.provenance) as kept:
            accelerator = create(candidate, group.beside(candidate), step)
            if (known := answer or counted) is not None:
                kept.stays = True
                return known
            step(f"device_count() of {candidate.provenance}")
            with stdout_to_stderr():
                count: object = accelerator.device_count()
            kept.stays = bool(count)
    except CAUGHT as error:
        begin(f"{at}, and what its error means")  # plugins are asked for that
        return _failed(candidate, error, group, at)
    # The annotation of device_count() is a promise of the plugin's, and plugins break promises.
    if type(count) is not int or count < 0:
        return Outcome(
            Status.INVALID,
            f"device_count() gave {count!r} ({type(count).__name__}), expected an int of 0 or more",
            f"report this to the maintainers of {candidate.distribution}",
        )
    return Outcome(Status.USABLE, devices=count) if count else uncounted(candidate.backend)


def plugin_answer(candidate: Candidate, group: Group) -> Outcome | None:
    """Return the checked answer of `accel_probe`; `None` if the plugin leaves the probe to accel_core."""
    others = group.beside(candidate)
    answer: object
    if candidate.builtin:
        answer = builtin.probe(candidate.backend, others)
    else:
        if isinstance(candidate.plugin, Unimported) and not candidate.plugin.is_imported:
            begin(plugins.steps(candidate.plugin.entry_point)[0])
            try:
                with preserved(candidate.provenance):
                    _ = candidate.plugin.imported
            except CAUGHT as error:
                return plugins.failure(candidate.plugin.entry_point, error)
        step = f"accel_probe() of {candidate.provenance}"
        begin(step)
        try:
            with stdout_to_stderr(), preserved(candidate.provenance):
                answers = plugins.ask(
                    candidate.plugin, "accel_probe", backend=candidate.backend, others=others
                )
        except CAUGHT as error:
            unfit = plugins.misfit(candidate.distribution, error)
            return unfit or _failed(candidate, error, group, step)
        answer = answers[0] if answers else None
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


# --- A failure, and what helps -------------------------------------------------------------------------

#: Steps in which a plugin's own code runs; in the others it is the vendor's.
_OF_THE_PLUGIN = ("accel_backends()", "accel_probe()", "accel_create()", "accelerator=")


def _failed(candidate: Candidate, error: BaseException, group: Group, at: str) -> Outcome:
    """The outcome of an error that was raised in the step `at`, which tells whose it is.

    What a signal handler of the program's raised is raised anew.
    """
    raise_if_users(error)
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the record is kept; the frames' objects must not be
    if at.startswith(_OF_THE_PLUGIN) and plugins.is_of_another_core(error):
        return plugins.of_another_core(error, at)
    if isinstance(error, DeclinedError):  # an answer, not a failure: it needs no explanation
        status = Status.STANDS_ASIDE if error.stands_aside else Status.NO_DEVICE
        return Outcome(status, str(error), error.hint, error=error)
    # What we raise ourselves knows its next step; the plugins are asked about everybody else's errors.
    own = getattr(error, "hint", "") if isinstance(error, AccelError) else ""
    _, what, hint, *_ = ProbeResult(False, hint=own) if own else explain(candidate, error, group)
    if isinstance(error, BackendUnavailableError):
        return Outcome(Status.BROKEN, str(error), hint, error=error)
    cause, step = cause_and_step(error)
    hint = hint or step or report_to(candidate, at)
    if isinstance(error, InvalidAcceleratorError):
        return Outcome(Status.INVALID, str(error), hint, error=error)
    failed = at if at.startswith(_OF_THE_PLUGIN) else " or ".join(candidate.backend.vendor_imports)
    return Outcome(Status.BROKEN, f"{what or f'{failed} failed'}: {cause}", hint, error=error)


def report_to(candidate: Candidate, at: str) -> str:
    """Return the advice to report a failure in the step `at`; empty unless it is the plugin's own."""
    own = at.startswith(_OF_THE_PLUGIN) or ", the plugin of " in at
    return f"report this to the maintainers of {candidate.distribution}" if own else ""


def explain(candidate: Candidate, error: BaseException, group: Group) -> ProbeResult:
    """The next step after this error, and what has failed in a plugin's words; both may be empty.

    The candidate's own plugin is asked first, then the hints of its declaration, then the other plugins.
    """
    from accel_core.errors import hint_for  # here, as most processes have no error to explain

    def asked(asking: list[object]) -> ProbeResult | None:
        with stdout_to_stderr():
            answers = plugins.ask_each(asking, "accel_explain", backend=candidate.backend, error=error)
            given = (ProbeResult(False, hint=a) if isinstance(a, str) else a for a in answers if a)
            return next((a for a in given if isinstance(a, ProbeResult) and _is_well_formed(a)), None)

    installed = {id(c.plugin): c.plugin for c in group.candidates if isinstance(c, Candidate) and c.plugin}
    others = [
        plugin
        for plugin in installed.values()
        if plugin is not candidate.plugin
        and (group.importing or not isinstance(plugin, Unimported) or plugin.is_imported)
    ]
    own = asked([candidate.plugin] if candidate.plugin else [])
    hint = hint_for(error, candidate.backend.hints) if own is None else None
    return own or (ProbeResult(False, hint=hint) if hint else asked(others)) or ProbeResult(False)


# --- A count of none -----------------------------------------------------------------------------------


def uncounted(backend: Backend, root: str = "/") -> Outcome:
    """`no_device` with the likeliest reason and the next step; `root` is where nodes and marks are sought."""
    from accel_core.machine.visible_devices import hiding  # here, as whoever has a device never comes here

    hides = hiding(backend, os.environ)
    if hides is not None:
        return hidden(backend, hides)
    reason, hint = _why(backend, root)
    return Outcome(Status.NO_DEVICE, reason, hint, devices=0)


def _why(backend: Backend, root: str) -> tuple[str, str]:
    from accel_core.machine.placement import denied_nodes, permission_step, placement
    from accel_core.machine.visible_devices import beyond, counting_variables

    seen = devices.evidence(backend, root)
    nodes = seen.nodes if seen else ()
    if absent := beyond(backend, os.environ, nodes):
        return absent
    place = placement(root)
    if denied := denied_nodes(nodes, root):
        reason = f"this process may not open {devices.enumerated(denied)}"
        if place.withheld(backend):
            reason += f"; Slurm gave the job {place.slurm_job} none"
        return reason, place.step(backend) or permission_step(denied[0], root)
    reason = "the vendor's runtime counts no device"
    # How the container gets the vendor's libraries with the nodes, which are there.
    if nodes and place.container not in ("", "container") and (step := place.step(backend)):
        return f"{reason} in {place.name}, which shows {devices.enumerated(nodes)}", step
    if variable := next(filter(os.environ.get, counting_variables(backend, os.environ)), None):
        hint = f"unset {variable}, or name in it devices that exist"
        return f"{reason} with {variable}={os.environ[variable]!r}", hint
    return reason, ""
