"""A plugin and its device, asked in this process: the vendor's package, the accelerator, the count.

`create` raises whatever goes wrong. To `ask_device` every failure is an outcome with its reason, cause and
next step.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from accel_core import errors, torch_import
from accel_core.backend import Backend, ProbeResult, Provenance
from accel_core.detection import Candidate, Outcome, Status, Unloaded, discovery, no_device
from accel_core.exceptions import PLUGIN_ERRORS, hint_for
from accel_core.hardware import bus
from accel_core.packages import is_installed
from accel_core.sandbox.guard import announce, last_step, quiet, restoring
from accel_core.text import short_repr

if TYPE_CHECKING:
    from accel_core.hardware.visible_devices import Masks
    from accel_core.interface import Accelerator


class Group(NamedTuple):
    """Candidates that are judged together."""

    candidates: tuple[Candidate | Unloaded, ...]
    #: Whether this process may import plugins for no more than a hint: a child may.
    importing: bool = False
    #: The accelerators that this process has, by their declaration: each is built once.
    built: Mapping[Backend, Accelerator] = MappingProxyType({})

    def beside(self, candidate: Candidate) -> tuple[Backend, ...]:
        """The other backends.

        To what is built in, which takes what nobody claims, also stand-ins for the plugins that the policy
        blocks, and nobody loads: nobody knows which vendor's package is theirs. So they claim every package
        that announces itself to torch and that no other backend claims, and the device that is named as they
        are: what a user blocks must not come in by another door.
        """
        others = tuple(c.backend for c in self.candidates if isinstance(c, Candidate) and c is not candidate)
        unread = [c for c in self.candidates if isinstance(c, Unloaded) and candidate.builtin]
        for name in (c.name for c in unread if c.outcome.status is Status.BLOCKED):
            packages = tuple(e.module for e in discovery.unclaimed(others)) or ("torch",)
            with contextlib.suppress(errors.InvalidBackendError):  # entry points may be called anything
                kind = name.partition(".")[0]
                others += (Backend(name=name, priority=0, device_type=kind, vendor_import=packages),)
        return others


# --- The accelerator -----------------------------------------------------------------------------------


def create(candidate: Candidate, group: Group) -> Accelerator:
    """Import torch and the vendor's package and build the accelerator; no device is initialised.

    Each step is announced first, so that the step that fails, hangs or crashes is known. Errors of the plugin
    and the vendor's package pass through. Raises `BackendUnavailableError` if torch is missing or its
    PrivateUse1 slot is taken, `DeclinedError` if another package has taken over the device's torch namespace,
    and `InvalidAcceleratorError` if the plugin builds something else. Output of the vendor's package goes to
    stderr. What this process has built before is returned as it is.
    """
    if candidate.backend in group.built:
        return group.built[candidate.backend]
    # Here, for whoever lists or explains creates nothing, and the interface is many modules.
    from accel_core.interface import Accelerator, adapted

    backend, source, others = candidate.backend, candidate.provenance, group.beside(candidate)
    with quiet():
        announce("importing torch")
        torch = torch_import.import_torch()
        if backend.in_torch.private_use1:
            discovery.require_free_slot(backend, others)
        with torch_import.autoload_restored():
            name = next(iter(installed_imports(backend)), backend.vendor_imports[0])
            announce(f"importing {name} ({source})")
            importlib.import_module(name)
        sys.modules["torch"] = torch  # torch cannot be imported twice, should the vendor have deleted it
        if other := discovery.taken_over_by(backend):  # a start-up hook can make torch's import bring it
            aside = impersonated(backend, other)
            raise errors.DeclinedError(aside.reason, hint=aside.hint, stands_aside=True)
        built: object = None
        if candidate.builtin:
            backend = discovery.resolve_builtin(backend, others)
            if backend in group.built:  # it was pinned by another name
                return group.built[backend]
        else:
            announce(f"accel_create() of {source}")
            built = discovery.ask(source, "accel_create", backend=backend, others=others)
        if built is None:
            if backend.accelerator and not candidate.builtin:
                announce(f"accelerator={backend.accelerator!r} of {source}")
            built = _instance(backend)
        if not isinstance(built, Accelerator):
            built = adapted(built, backend) or built
    if not isinstance(built, Accelerator):
        raise errors.InvalidAcceleratorError(
            f"{last_step.get()} gave {built!r} ({type(built).__name__}), expected an accel_core.Accelerator, "
            "or an object or class that an adapter knows (DeepSpeed's DeepSpeedAccelerator)"
        )
    return built


#: Serves any device module of torch.
_ANY = "accel_core.interface.torch_device:TorchAccelerator"


def _instance(backend: Backend) -> object:
    """Return an instance of the declared class; a class of another framework as it is, for its adapter."""
    from accel_core.interface import Accelerator, prepared

    module, _, name = (backend.accelerator or _ANY).partition(":")
    with contextlib.nullcontext() if module.startswith("accel_core.") else prepared():
        kind = getattr(importlib.import_module(module), name)
    return kind._of(backend) if isinstance(kind, type) and issubclass(kind, Accelerator) else kind


def installed_imports(backend: Backend) -> list[str]:
    """Those of the backend's vendor imports whose package can be found, without importing it."""
    return [name for name in backend.vendor_imports if is_installed(name)]


def impersonated(backend: Backend, by: str) -> Outcome:
    """Return the outcome if another vendor's package has taken over the backend's torch namespace."""
    reason = f"torch.{backend.device_type} is impersonated by {by}"
    return Outcome(Status.STANDS_ASIDE, reason, f"choose that vendor's own backend, or do not load {by}")


# --- The device ----------------------------------------------------------------------------------------


def ask_device(candidate: Candidate, group: Group, *, pinned: bool) -> Outcome:
    """Ask the plugin, then build the accelerator and count its devices, all in this process.

    If the plugin says "usable", its devices are not counted; but if its accelerator cannot be built, the next
    backend gets its turn. What was built is in the outcome, unless its device is missing.
    """
    answer = plugin_answer(candidate, group)
    if answer and answer.status is not Status.USABLE and not (pinned and answer.is_absence):
        return answer
    try:
        announce("importing torch")
        torch_import.import_torch()  # before the state is noted: what torch sets is not the vendor's
        with restoring(candidate.provenance) as kept:
            accelerator = create(candidate, group)
            if answer:
                kept.stays = True
                return answer._replace(accelerator=accelerator)
            announce(f"device_count() of {candidate.provenance}")
            with quiet():
                count: object = accelerator.device_count()
            kept.stays = bool(count) or pinned  # a pin may be honoured without a device
    except PLUGIN_ERRORS as error:
        return _failed(candidate, error, group)
    # The annotation of device_count() is a promise of the plugin's, and plugins break promises.
    if not _is_count(count):
        return _invalid(candidate, f"device_count() gave {short_repr(count)}", count, _COUNT)
    if candidate.builtin:
        outcome = discovery.counted_builtin(count, accelerator.backend)
    else:
        outcome = Outcome(Status.USABLE, devices=count) if count else uncounted(candidate.backend)
    return outcome._replace(accelerator=accelerator)


def plugin_answer(candidate: Candidate, group: Group) -> Outcome | None:
    """Return the checked answer of `accel_probe`; `None` if the plugin leaves the probe to accel_core."""
    source, others = candidate.provenance, group.beside(candidate)
    if candidate.builtin:
        return discovery.probe_builtin(candidate.backend, others)
    try:
        with quiet(), restoring(source):
            discovery.imported(source)
            announce(f"accel_probe() of {source}")
            answer: object = discovery.ask(source, "accel_probe", backend=candidate.backend, others=others)
    except PLUGIN_ERRORS as error:
        return _failed(candidate, error, group)
    if answer is None:
        return None
    if not isinstance(answer, ProbeResult):
        said = f"accel_probe() returned {short_repr(answer)}"
        return _invalid(candidate, said, answer, "accel_core.ProbeResult or None")
    if misfit := _misfit(answer):
        name, value, expected = misfit
        return _invalid(candidate, f"accel_probe() gave {name}={short_repr(value)}", value, expected)
    aside = Status.STANDS_ASIDE if answer.stands_aside else Status.NO_DEVICE
    return Outcome(Status.USABLE if answer.usable else aside, answer.reason, answer.hint, answer.devices)


def _misfit(answer: ProbeResult) -> tuple[str, object, str] | None:
    """The first field without its type, and which it has: they go into messages and JSON."""
    for field in fields(answer):
        name, value = field.name, getattr(answer, field.name)
        usual = getattr(ProbeResult(usable=False), name)
        if not (value is None or _is_count(value) if usual is None else isinstance(value, type(usual))):
            return name, value, _COUNT if usual is None else type(usual).__name__
    return None


#: Nobody has a million.
_COUNT = "a number of devices from 0 to 999999"


def _is_count(number: object) -> TypeGuard[int]:
    """Whether it is a number of devices that can be."""
    return type(number) is int and 0 <= number < 10**6


# --- A failure, and what helps -------------------------------------------------------------------------


def _invalid(candidate: Candidate, said: str, answer: object, expected: str) -> Outcome:
    reason = f"{said} ({type(answer).__name__}), expected {expected}"
    return Outcome(Status.INVALID, reason, f"report this to the maintainers of {candidate.distribution}")


#: Steps in which a plugin's own code runs; in the others it is the vendor's.
_OF_THE_PLUGIN = ("accel_backends()", "accel_probe()", "accel_create()", "accelerator=")


def _failed(candidate: Candidate, error: BaseException, group: Group) -> Outcome:
    """The outcome of an error that was raised in the step announced last, which tells whose it is.

    What a signal handler of the program's raised is raised anew.
    """
    if not (candidate.builtin or candidate.provenance.module in sys.modules):
        return discovery.failure(candidate.provenance, error)
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the record is kept; the frames' objects must not be
    at = last_step.get()
    announce(f"{at}, and what its error means")  # plugins are asked for that
    own = at.startswith(_OF_THE_PLUGIN)
    if own and (unfit := discovery.unfit(candidate.distribution, error, at)):
        return unfit
    if isinstance(error, errors.DeclinedError):  # an answer, not a failure: it needs no explanation
        status = Status.STANDS_ASIDE if error.stands_aside else Status.NO_DEVICE
        return Outcome(status, str(error), error.hint, error=error)
    # What we raise ourselves knows its next step; the plugins are asked about everybody else's errors.
    known = getattr(error, "hint", "") if isinstance(error, errors.AccelError) else ""
    explained = ProbeResult(False, hint=known) if known else explain(candidate, error, group)
    what, hint = explained.reason, explained.hint
    if isinstance(error, errors.BackendUnavailableError):
        return Outcome(Status.BROKEN, str(error), hint, error=error)
    cause, step = torch_import.cause_and_step(error)
    hint = hint or step or report_to(candidate.distribution, at)
    if isinstance(error, errors.InvalidAcceleratorError):
        return Outcome(Status.INVALID, str(error), hint, error=error)
    failed = at if own else " or ".join(candidate.backend.vendor_imports)
    return Outcome(Status.BROKEN, f"{what or f'{failed} failed'}: {cause}", hint, error=error)


def report_to(distribution: str, at: str) -> str:
    """Return the advice to report a failure in the step `at`; empty unless it is the plugin's own."""
    own = at.startswith(_OF_THE_PLUGIN) or ", the plugin of " in at
    return f"report this to the maintainers of {distribution}" if own else ""


def explain(candidate: Candidate, error: BaseException, group: Group) -> ProbeResult:
    """The next step after this error, and what has failed in a plugin's words; both may be empty.

    The candidate's own plugin is asked first, then the hints of its declaration, then the other plugins, at
    most 19 of them: among hundreds, each backend that fails would import all.
    """
    own, backend = candidate.provenance, candidate.backend
    plugins = [c.provenance for c in (candidate, *group.candidates) if isinstance(c, Candidate)]
    for plugin in [*dict.fromkeys(plugins)][:20]:
        at_hand = plugin.module and (group.importing or plugin.module in sys.modules)
        if at_hand and (answer := _explained(plugin, backend, error)):
            return answer
        if plugin is own and (hint := hint_for(error, backend.hints)):
            return ProbeResult(False, hint=hint)
    return ProbeResult(False)


def _explained(plugin: Provenance, backend: Backend, error: BaseException) -> ProbeResult | None:
    """The answer of the plugin's `accel_explain`; one that fails has none."""
    answer: object = None
    with suppress(*PLUGIN_ERRORS), quiet(), restoring(plugin):
        answer = discovery.ask(plugin, "accel_explain", backend=backend, error=error)
    given = ProbeResult(False, hint=answer) if answer and isinstance(answer, str) else answer
    return given if isinstance(given, ProbeResult) and not _misfit(given) else None


# --- A count of none -----------------------------------------------------------------------------------


def uncounted(backend: Backend, root: str = "/") -> Outcome:
    """Return `no_device` with the most likely reason and the next step; files are looked up below `root`."""
    # These here, as whoever has a device never comes here.
    from accel_core.hardware.placement import denied_nodes, permission_step, placement
    from accel_core.hardware.visible_devices import masks, there

    nodes = (bus.evidence(backend, root) or bus.Evidence()).nodes
    mask = masks(backend, os.environ, there(backend, root))
    if mask.faulty:
        return hidden(backend, mask)
    place = placement(root)
    if denied := denied_nodes(nodes, root):
        reason = f"this process may not open {bus.enumerated(denied)}{place.withheld(backend)}"
        return no_device(reason, permission_step(denied[0], root, place.step(backend)))
    reason = "the vendor's runtime counts no device"
    # How the container gets the vendor's libraries with the nodes, which are there.
    if nodes and place.container not in ("", "container") and (step := place.step(backend)):
        return no_device(f"{reason} in {place.name}, which shows {bus.enumerated(nodes)}", step)
    used = [step for step in mask.steps if not step.overruled_by]
    hint = f"unset {used[-1].variable}, or name in it devices that exist" if used else ""
    return no_device(" with ".join(filter(None, [reason, " and ".join(map(str, used))])), hint)


def hidden(backend: Backend, mask: Masks) -> Outcome:
    """Return `no_device` for a variable that hides every device of `backend`."""
    from accel_core.hardware.placement import placement

    place = placement()
    # Slurm writes NoDevFiles, or nothing, into the variable of a job without any.
    withheld = place.withheld(backend)
    return no_device(f"{mask}{withheld}", place.schedulers_step(backend) if withheld else mask.step)
