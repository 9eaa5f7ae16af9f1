"""Run a plugin and its device in this process: build the accelerator and count its
devices.

`create` lets errors from the plugin and the vendor's package propagate. `probe_device`
turns every failure into a verdict.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import builtin, checks, errors, torch_import
from accel_core.backend import Backend, ProbeResult, Provenance
from accel_core.exceptions import PLUGIN_ERRORS, hint_for
from accel_core.hardware.visible_devices import visible_devices_variables
from accel_core.hints import hints_of
from accel_core.plugins import (
    Plugin,
    core_mismatch_verdict,
    load_failure_verdict,
    verdict_with_error,
)
from accel_core.sandbox.guard import (
    CodeOwner,
    Step,
    current_step,
    log_step,
    preserved_state,
    stdout_to_stderr,
)
from accel_core.text import short_repr
from accel_core.verdict import Reason, Status, Verdict, Why

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


@dataclass(frozen=True)
class Group:
    """A group of backends that are probed together."""

    verdicts: tuple[Verdict, ...]
    #: Whether this process may import plugins only to explain an error. A child
    #: process may.
    imports_to_explain: bool = False
    #: The accelerators that this process has built, by declaration.
    built: Mapping[Backend, Accelerator] = field(default_factory=dict)

    def others_than(self, verdict: Verdict) -> tuple[Backend, ...]:
        """Return the declarations of all backends except the one in `verdict`.

        For a built-in backend, the result also contains a substitute declaration for
        each blocked plugin, because the declaration of a blocked plugin is not read. A
        substitute takes its device type from the plugin's name. Its vendor imports are
        the packages that torch's autoload imports and that no other backend declares.
        """
        declarations = []
        for other in self.verdicts:
            if other.backend is not None and not other.is_about(verdict):
                declarations.append(other.backend)
        if not verdict.builtin:
            return tuple(declarations)
        for other in self.verdicts:
            if other.backend is None and other.status is Status.BLOCKED:
                substitute = _substitute_for_blocked(other.name, tuple(declarations))
                if substitute is not None:
                    declarations.append(substitute)
        return tuple(declarations)


def _substitute_for_blocked(
    name: str, other_backends: tuple[Backend, ...]
) -> Backend | None:
    """Return a declaration to use for the blocked plugin called `name`, or `None` if
    the entry point's name cannot be a backend's name.
    """
    packages = builtin.undeclared_packages(other_backends)
    modules = tuple(package.module for package in packages)
    device_type, _, _ = name.partition(".")  # "xpu" for "xpu.external"
    try:
        return Backend(
            name=name,
            priority=0,
            device_type=device_type,
            vendor_import=modules or ("torch",),
        )
    except errors.InvalidBackendError:
        return None


# --- The accelerator --------------------------------------------------------------------


def create(verdict: Verdict, group: Group) -> Accelerator:
    """Import torch and the vendor's package, and build the accelerator.

    No device is initialized. Each step is logged before it runs, so that the log names
    the step that fails, hangs or crashes. The output of the vendor's package goes to
    stderr. If this process has already built the accelerator, the same object is
    returned.

    Errors from the plugin and the vendor's package propagate unchanged. Raises
    `BackendUnavailableError` if torch is missing or its PrivateUse1 slot is taken,
    `DeclinedError` if another package has taken over the device's torch namespace, and
    `InvalidAcceleratorError` if the plugin builds an object that is not an accelerator.
    """
    from accel_core.interface import Accelerator, adapted

    backend = verdict.declaration
    if backend in group.built:
        return group.built[backend]
    other_backends = group.others_than(verdict)
    with stdout_to_stderr():
        _import_vendor(verdict, backend, other_backends)
        if verdict.builtin:
            backend = builtin.with_torch_device_type(backend, other_backends)
            if backend in group.built:  # An earlier choice pinned it by another name.
                return group.built[backend]
            result: object = _instance_of_declared_class(backend)
        else:
            result = _call_accel_create(verdict, backend, other_backends)
        if isinstance(result, Accelerator):
            return result
        accelerator = adapted(result, backend)
    if not isinstance(accelerator, Accelerator):
        raise errors.InvalidAcceleratorError(
            f"{current_step.get().text} returned {result!r} ({type(result).__name__}), "
            "expected an accel_core.Accelerator, or an object or class that an adapter "
            "supports (DeepSpeed's DeepSpeedAccelerator)"
        )
    return accelerator


def _import_vendor(
    verdict: Verdict, backend: Backend, other_backends: tuple[Backend, ...]
) -> None:
    """Import torch, and then the package that adds the device to torch."""
    log_step("importing torch", CodeOwner.TORCH)
    torch = torch_import.import_torch()
    if backend.torch_integration.private_use1:
        builtin.require_free_slot(backend, other_backends)
    # If no module is installed, the import of the first raises the right error.
    candidates = checks.installed_imports(backend) or backend.vendor_imports
    name = candidates[0]
    with torch_import.autoload_restored():
        log_step(f"importing {name} ({verdict.provenance})")
        importlib.import_module(name)
    # The vendor's package may have removed torch, which cannot be imported twice.
    sys.modules["torch"] = torch
    overtaker = checks.imported_overtaker(backend)
    if overtaker:  # A start-up hook may load this package when torch is imported.
        reason = f"torch.{backend.device_type} is overridden by {overtaker}"
        hint = f"choose the backend of {overtaker}'s vendor, or do not load {overtaker}"
        raise errors.DeclinedError(reason, hint=hint, deferred=True)


def _call_accel_create(
    verdict: Verdict, backend: Backend, other_backends: tuple[Backend, ...]
) -> object:
    """Return the accelerator from the plugin's `accel_create`, or an instance of the
    declared class if the hook returns none.
    """
    log_step(f"accel_create() of {verdict.provenance}", CodeOwner.PLUGIN)
    plugin = Plugin(verdict.provenance)
    built: object = plugin.hooks.accel_create(backend=backend, others=other_backends)
    if built is not None:
        return built
    if backend.accelerator:
        text = f"accelerator={backend.accelerator!r} of {verdict.provenance}"
        log_step(text, CodeOwner.PLUGIN)
    return _instance_of_declared_class(backend)


#: The class that supports any device module of torch.
_ANY_DEVICE = "accel_core.interface.torch_device:TorchAccelerator"


def _instance_of_declared_class(backend: Backend) -> object:
    """Return an instance of the accelerator class that the backend declares.

    If the class implements the interface of another framework, the class itself is
    returned, for that framework's adapter.
    """
    from accel_core.interface import Accelerator, prepared

    reference = backend.accelerator or _ANY_DEVICE
    module, _, name = reference.partition(":")
    if module.startswith("accel_core."):
        declared_class = getattr(importlib.import_module(module), name)
    else:
        # The module may import a framework, which its adapter has to prepare for.
        with prepared():
            declared_class = getattr(importlib.import_module(module), name)
    if isinstance(declared_class, type) and issubclass(declared_class, Accelerator):
        return declared_class._from_backend(backend)
    # Another framework's class, of which that framework's adapter makes an accelerator.
    return declared_class


# --- The device -------------------------------------------------------------------------


def probe_device(verdict: Verdict, group: Group, *, pinned: bool) -> Verdict:
    """Probe a backend: call its plugin's probe, build the accelerator and count its devices.

    Devices are not counted if the plugin reports that the backend is usable. If the
    accelerator then cannot be built, that failure is the verdict. The verdict contains
    the accelerator, even if a pinned backend has no device.
    """
    answer = plugin_verdict(verdict, group)
    if answer is not None and not answer.usable:
        # A pinned backend needs no device, so a missing one does not end the probe.
        lacks_only_device = pinned and answer.lacks_device
        if not lacks_only_device:
            return answer
    try:
        log_step("importing torch", CodeOwner.TORCH)
        # torch is imported before the state is recorded, because the vendor's package
        # does not cause the changes that torch makes.
        torch_import.import_torch()
        with preserved_state(verdict.provenance) as state:
            accelerator = create(verdict, group)
            if answer is not None:
                state.keep()
                return replace(answer, accelerator=accelerator)
            log_step(f"device_count() of {verdict.provenance}")
            with stdout_to_stderr():
                count: object = accelerator.device_count()
            # The accelerator will be used, so what its package changed must stay.
            if count or pinned:
                state.keep()
    except PLUGIN_ERRORS as error:
        return failure(verdict, error, group)
    # A plugin may violate the annotation of device_count().
    if not checks.is_device_count(count):
        return _invalid_answer(
            verdict, "device_count() returned", count, checks.EXPECTED_COUNT
        )
    assert isinstance(count, int)
    return replace(
        _verdict_on_count(verdict, accelerator, count), accelerator=accelerator
    )


def _verdict_on_count(
    verdict: Verdict, accelerator: Accelerator, count: int
) -> Verdict:
    package = builtin.package_of_generic(accelerator.backend)
    why: Why | None = None
    # No plugin declares a generic device, so the verdict names the package that
    # registers the device.
    if verdict.builtin and (package or not count):
        facts = {
            "package": str(package or "a package"),
            "device_type": accelerator.device_type,
            "count": count,
        }
        why = Why(Reason.REGISTERS, facts)
    elif not count:
        environ = visible_devices_variables(verdict.declaration, os.environ)
        why = Why(Reason.COUNTS_NONE, {"root": "/", "environ": environ})
    status = Status.USABLE if count else Status.NO_DEVICE
    backend = accelerator.backend if verdict.builtin else verdict.backend
    return replace(verdict, status=status, why=why, devices=count, backend=backend)


def plugin_verdict(verdict: Verdict, group: Group) -> Verdict | None:
    """Return the verdict of the plugin's `accel_probe`, or `None` if the plugin leaves
    the verdict to the default probe.
    """
    other_backends = group.others_than(verdict)
    if verdict.builtin:
        return builtin.verdict_without_import(verdict, other_backends)
    plugin = Plugin(verdict.provenance)
    try:
        with stdout_to_stderr(), preserved_state(verdict.provenance):
            hooks = plugin.hooks
            log_step(f"accel_probe() of {verdict.provenance}", CodeOwner.PLUGIN)
            answer = hooks.accel_probe(backend=verdict.backend, others=other_backends)
    except PLUGIN_ERRORS as error:
        return failure(verdict, error, group)
    if answer is None:
        return None
    return _checked_answer(verdict, answer)


def _checked_answer(verdict: Verdict, answer: Any) -> Verdict:
    if not isinstance(answer, ProbeResult):
        expected = "accel_core.ProbeResult or None"
        return _invalid_answer(verdict, "accel_probe() returned", answer, expected)
    invalid = invalid_field(answer)
    if invalid is not None:
        return _invalid_answer(
            verdict,
            "accel_probe() returned",
            invalid.value,
            invalid.expected,
            field_name=invalid.name,
        )
    if answer.usable:
        status = Status.USABLE
    elif answer.deferred:
        status = Status.DEFERRED
    else:
        status = Status.NO_DEVICE
    why = None
    if answer.reason or answer.hint:
        facts = {"text": answer.reason, "step": answer.hint}
        why = Why(Reason.PLUGIN_ANSWERS, facts)
    return replace(verdict, status=status, why=why, devices=answer.devices)


class InvalidField(NamedTuple):
    """A field of a plugin's answer whose value has the wrong type."""

    name: str
    value: object
    #: The expected type in words.
    expected: str


def invalid_field(answer: ProbeResult) -> InvalidField | None:
    """Return the first field of a plugin's answer that has the wrong type, or `None` if
    there is none.
    """
    for name in ("usable", "deferred"):
        value = getattr(answer, name)
        if not isinstance(value, bool):
            return InvalidField(name, value, "bool")
    for name in ("reason", "hint"):
        value = getattr(answer, name)
        if not isinstance(value, str):
            return InvalidField(name, value, "str")
    if answer.devices is not None and not checks.is_device_count(answer.devices):
        return InvalidField("devices", answer.devices, checks.EXPECTED_COUNT)
    return None


# --- Failures and next steps ------------------------------------------------------------


def _invalid_answer(
    verdict: Verdict, call: str, answer: object, expected: str, *, field_name: str = ""
) -> Verdict:
    facts = {
        "call": call,
        "field": field_name,
        "value": short_repr(answer),
        "kind": type(answer).__name__,
        "expected": expected,
    }
    why = Why(Reason.ANSWER_INVALID, facts)
    return replace(verdict, status=Status.INVALID, why=why)


def failure(verdict: Verdict, error: BaseException, group: Group) -> Verdict:
    """Return the verdict that results from `error`, which the current step of a probe raised."""
    source = verdict.provenance
    is_plugin_loaded = verdict.builtin or source.module in sys.modules
    if not is_plugin_loaded:
        return replace(load_failure_verdict(source, error), backend=verdict.backend)
    if error.__traceback__ is not None:
        # The traceback is kept, but the objects in its frames must be freed.
        traceback.clear_frames(error.__traceback__)
    step = current_step.get()
    # Plugins are called to explain the error, and their code may fail too.
    log_step(f"{step.text} (explaining its error)", step.owner)
    failed = verdict_with_error(verdict, error)
    if step.owner is CodeOwner.PLUGIN:
        mismatch = core_mismatch_verdict(failed, error, step.text)
        if mismatch is not None:
            return mismatch
    if isinstance(error, errors.DeclinedError):  # This error needs no explanation.
        status = Status.DEFERRED if error.deferred else Status.NO_DEVICE
        facts = {"text": str(error), "step": error.hint}
        return replace(failed, status=status, why=Why(Reason.PLUGIN_ANSWERS, facts))
    return _failure_with_hint(failed, error, step, group)


def _failure_with_hint(
    failed: Verdict, error: BaseException, step: Step, group: Group
) -> Verdict:
    """Return the verdict on an error raised by an accelerator, a vendor's package or torch."""
    explanation, hint = _explanation_and_hint(failed, error, group)
    if isinstance(error, torch_import.TorchFailsError):
        facts = {"text": error.WHAT, "cause": error.cause, "step": hint}
        return replace(failed, status=Status.BROKEN, why=Why(Reason.UNAVAILABLE, facts))
    if isinstance(error, errors.BackendUnavailableError):
        facts = {"text": str(error), "step": hint}
        return replace(failed, status=Status.BROKEN, why=Why(Reason.UNAVAILABLE, facts))
    cause, mismatch_step = torch_import.cause_and_step(error)
    if not hint:
        hint = mismatch_step
    if not hint and step.owner is CodeOwner.PLUGIN:
        hint = report_to(failed.distribution)
    if isinstance(error, errors.InvalidAcceleratorError):
        facts = {"text": str(error), "step": hint}
        why = Why(Reason.ACCELERATOR_INVALID, facts)
        return replace(failed, status=Status.INVALID, why=why)
    if not explanation:
        failed_step = step.text
        if step.owner is not CodeOwner.PLUGIN:
            failed_step = " or ".join(failed.vendor_import)
        explanation = f"{failed_step} failed"
    facts = {"what": explanation, "cause": cause, "step": hint}
    return replace(failed, status=Status.BROKEN, why=Why(Reason.VENDOR_FAILS, facts))


def report_to(distribution: str) -> str:
    """Return the advice to report a failure to the maintainers of a distribution."""
    return f"report this to the maintainers of {distribution}"


def _explanation_and_hint(
    verdict: Verdict, error: BaseException, group: Group
) -> tuple[str, str]:
    """Return a plugin's explanation of the error and the next step. Both may be empty.

    An `AccelError` with a hint keeps its hint. Plugins explain all other errors.
    """
    if isinstance(error, errors.AccelError) and error.hint:
        return "", error.hint
    answer = explain_error(verdict, error, group)
    return answer.reason, answer.hint


#: The largest number of plugins that are called for an error. Without a limit, an error
#: would import every installed plugin.
_MAX_EXPLAINING_PLUGINS = 20


def explain_error(verdict: Verdict, error: BaseException, group: Group) -> ProbeResult:
    """Return a plugin's explanation of an error. Its reason and hint are empty if no
    plugin explains the error.

    The backend's own plugin is called first. Next come the hints in the backend's
    declaration, and then the other plugins.
    """
    backend, own_plugin = verdict.declaration, verdict.provenance
    for source in _plugins_to_call(verdict, group):
        is_loaded = source.module in sys.modules
        if source.module and (group.imports_to_explain or is_loaded):
            answer = _call_accel_explain(Plugin(source), backend, error)
            if answer is not None:
                return answer
        if source == own_plugin:
            hint = hint_for(error, hints_of(backend))
            if hint:
                return ProbeResult(False, hint=hint)
    return ProbeResult(False)


def _plugins_to_call(verdict: Verdict, group: Group) -> list[Provenance]:
    """Return the plugins that may explain an error, the backend's own plugin first."""
    plugins: list[Provenance] = []
    for other in (verdict, *group.verdicts):
        is_new = other.provenance not in plugins
        if other.backend is not None and is_new:
            plugins.append(other.provenance)
    return plugins[:_MAX_EXPLAINING_PLUGINS]


def _call_accel_explain(
    plugin: Plugin, backend: Backend, error: BaseException
) -> ProbeResult | None:
    """Return the result of `accel_explain`, or `None` if the hook fails."""
    answer: object = None
    with (
        contextlib.suppress(*PLUGIN_ERRORS),
        stdout_to_stderr(),
        preserved_state(plugin.source),
    ):
        answer = plugin.hooks.accel_explain(backend=backend, error=error)
    if isinstance(answer, str) and answer:
        answer = ProbeResult(False, hint=answer)
    if isinstance(answer, ProbeResult) and invalid_field(answer) is None:
        return answer
    return None
