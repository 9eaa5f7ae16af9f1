"""A plugin and its device, asked in this process.

Nothing is raised: every failure is an outcome with its reason, cause and next step.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from accel_core._support.quiet import stdout_to_stderr
from accel_core._support.torch_import import import_torch
from accel_core.backend import Backend, ProbeResult
from accel_core.detection import builtin
from accel_core.detection.creation import create
from accel_core.detection.facts import is_absence
from accel_core.detection.plugin import Hooks, Unimported
from accel_core.detection.records import CAUGHT, Candidate, Outcome, Status, Unloaded, root_cause
from accel_core.errors import (
    AccelError,
    BackendUnavailableError,
    DeclinedError,
    InvalidAcceleratorError,
    InvalidBackendError,
)

if TYPE_CHECKING:
    from accel_core._support.guest import Guest

__all__ = ["Group", "ask_device", "explain", "guest_of", "plugin_answer", "report_to"]


class _Own:
    """In the place of a `Guest` where no code but accel_core's and torch's runs."""

    stays = False

    def __enter__(self) -> _Own:
        return self

    def __exit__(self, *_: object) -> None: ...


def guest_of(candidate: Candidate) -> Guest | _Own:
    """What to run the candidate's code in, and its vendor's; the CPU's is ours and torch's.

    That of `generic` is not: it may load what announces itself to torch.
    """
    if candidate.builtin and candidate.name == builtin.CPU.name:
        return _Own()
    from accel_core._support.guest import Guest  # here, as a process without plugins has no guest

    return Guest(candidate.provenance)


class Group(NamedTuple):
    """Candidates that are judged together, and the hooks of their plugins."""

    candidates: tuple[Candidate | Unloaded, ...]
    hooks: Hooks
    #: Whether this process may import plugins for no more than a hint: a child may.
    importing: bool = False

    @classmethod
    def of(cls, candidates: Iterable[Candidate | Unloaded], *, importing: bool = False) -> Group:
        """The group of these candidates."""
        items = tuple(candidates)
        plugins = [c.plugin for c in items if isinstance(c, Candidate)]
        return cls(items, Hooks(plugins, direct=builtin), importing)

    def declares(self, plugin: object) -> Backend:
        """The first backend of that plugin."""
        return next(c.backend for c in self.candidates if isinstance(c, Candidate) and c.plugin is plugin)

    def beside(self, candidate: Candidate) -> tuple[Backend, ...]:
        """The other backends.

        To what is built in, which takes what nobody claims, also those that the policy refused unread.
        """
        others = tuple(c.backend for c in self.candidates if isinstance(c, Candidate) and c is not candidate)
        return (*others, *self._claimed(others)) if candidate.builtin else others

    def refused(self) -> list[Unloaded]:
        """The plugins that the policy does not leave, and nobody loads."""
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

    if isinstance(candidate.plugin, Unimported):
        from accel_core.detection.loading import failure  # here, as only what was loaded apart comes here

        step(f"import of {candidate.provenance.value}, the plugin of {candidate.provenance}")
        try:
            with guest_of(candidate):
                candidate.plugin.imported()
        except CAUGHT as error:
            return failure(candidate.plugin.entry_point, error)
    step(f"accel_probe() of {candidate.provenance}")
    answer = plugin_answer(candidate, group)
    forgiven = answer is not None and pinned and is_absence(answer)
    if answer is not None and answer.status is not Status.USABLE and not forgiven:
        return answer
    try:
        step("import of torch")
        import_torch()  # before the guest comes: what torch sets is not the vendor's
        with guest_of(candidate) as guest:
            accelerator = create(candidate, group.beside(candidate), group.hooks, step)
            if answer is not None or counted is not None:
                guest.stays = True
                return answer or counted  # type: ignore[return-value]  # one of them is there
            step(f"device_count() of {candidate.provenance}")
            with stdout_to_stderr():
                count: object = accelerator.device_count()
            guest.stays = bool(count)
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


def plugin_answer(candidate: Candidate, group: Group) -> Outcome | None:
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
    ask = functools.partial(
        group.hooks.of,
        candidate.plugin,
        "accel_probe",
        backend=candidate.backend,
        others=group.beside(candidate),
    )
    try:
        if candidate.builtin:  # our own hook, which needs no guard
            answers = ask()
        else:
            with stdout_to_stderr(), guest_of(candidate):
                answers = ask()
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
_OF_THE_PLUGIN = ("accel_backends()", "accel_probe()", "accel_create()", "accelerator=")


def _failed(candidate: Candidate, error: BaseException, group: Group, at: str) -> Outcome:
    """The outcome of an error that was raised in the step `at`, which tells whose it is."""
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the record is kept; the frames' objects must not be
    if at.startswith(_OF_THE_PLUGIN):
        from accel_core.detection.loading import is_of_another_core, of_another_core

        if is_of_another_core(error):
            return of_another_core(error, at)
    if isinstance(error, DeclinedError):  # an answer, not a failure: it needs no explanation
        status = Status.STANDS_ASIDE if error.stands_aside else Status.NO_DEVICE
        return Outcome(status, str(error), error.hint, error=error)
    # What we raise ourselves knows its next step; the plugins are asked about everybody else's errors.
    hint = getattr(error, "hint", "") if isinstance(error, AccelError) else ""
    hint = hint or explain(candidate, error, group)
    if isinstance(error, BackendUnavailableError):
        return Outcome(Status.BROKEN, str(error), hint, error=error)
    hint = hint or report_to(candidate, at)
    if isinstance(error, InvalidAcceleratorError):
        return Outcome(Status.INVALID, str(error), hint, error=error)
    if at.startswith(_OF_THE_PLUGIN):
        return Outcome(Status.BROKEN, f"{at} failed: {root_cause(error)}", hint, error=error)
    vendor = " or ".join(candidate.backend.vendor_imports)
    return Outcome(Status.BROKEN, f"{vendor} failed: {root_cause(error)}", hint, error=error)


def report_to(candidate: Candidate, at: str) -> str:
    """Who is to hear of a failure in the step `at`; empty where it is not the plugin's own."""
    own = at.startswith(_OF_THE_PLUGIN) or ", the plugin of " in at
    return f"report this to the maintainers of {candidate.distribution}" if own else ""


def explain(candidate: Candidate, error: BaseException, group: Group) -> str:
    """The next step after this error; empty where nobody knows one.

    The candidate's own plugin is asked first, then the hints of its declaration, then the other plugins.
    """
    from accel_core._support.hints import hint_for  # here, as most processes have no error to explain

    with stdout_to_stderr():
        answers = group.hooks.each(
            "accel_explain",
            first=candidate.plugin,
            importing=group.importing,
            backend=candidate.backend,
            error=error,
        )
        others: list[str] = []
        for plugin, hint in answers:
            if not isinstance(hint, str) or not hint:
                continue
            if plugin is candidate.plugin:
                return hint
            others.append(hint)
    return hint_for(error, candidate.backend.hints) or next(iter(others), "")
