"""Hold the state of the process: the accelerator that it uses, and the record of the choice.

After the choice, `get_accelerator()` only reads a global variable. `use_accelerator()`
overrides the choice for the calling context (thread or task) only. While an override is
active anywhere, the global variable is `None`, and `get_accelerator()` queries the
context.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accel_core import builtin, errors
from accel_core.backend import Backend, Provenance
from accel_core.exceptions import user_stacklevel
from accel_core.interface import Accelerator, adapted
from accel_core.log import LOGGER, logged_by
from accel_core.sandbox.guard import selection_in_progress
from accel_core.select import discover, select
from accel_core.settings import (
    ACCEL_LOG,
    DS_ACCELERATOR,
    Pin,
    Settings,
    parse_pin,
    read,
)
from accel_core.verdict import How, Note, Selection, Status, Verdict

if TYPE_CHECKING:
    import torch

    from accel_core.operators import OpProvider

#: The accelerator that `get_accelerator()` returns without any other step, or `None`
#: before the choice and while an override is active.
_current_without_overrides: Accelerator | None = None
_chosen: Accelerator | None = None
_selection: Selection | None = None
#: The accelerator object of each backend, and of each requested name.
_built: dict[Backend, Accelerator] = {}
_by_pin: dict[Pin, Accelerator] = {}
#: The blocks of `use_accelerator` that have not ended, in any thread or task.
_overrides: set[_Override] = set()
_override: ContextVar[_Override | None] = ContextVar(
    "accel_core_override", default=None
)
_lock = threading.RLock()
#: The warnings that were given; each is given once.
_warned: set[str] = set()


class _Override:
    """A `use_accelerator` block, with the enclosing block in the same context."""

    def __init__(self, accelerator: Accelerator, outer: _Override | None) -> None:
        self.accelerator = accelerator
        self.outer = outer


def overriding_accelerator() -> Accelerator | None:
    """Return the accelerator of the innermost active `use_accelerator` block, or `None`
    if no block is active.
    """
    override = _override.get()
    # An override whose block has ended no longer applies.
    while override is not None and override not in _overrides:
        override = override.outer
    return override.accelerator if override is not None else None


def get_accelerator() -> Accelerator:
    """Return this process's accelerator. The first call chooses it, and later calls
    return the same object, unless `set_accelerator` or `use_accelerator` replaces it.

    Choosing imports torch and the chosen vendor's package, but initializes no device.
    Raises an `AccelError` if a pinned backend (`DS_ACCELERATOR`) cannot be used or a
    setting is invalid. Warns with `AcceleratorFallbackWarning` if the CPU is chosen
    although a plugin is installed or an accelerator is present.
    """
    current = _current_without_overrides
    if current is not None:
        return current
    overriding = overriding_accelerator()
    if overriding is not None:
        return overriding
    # A block in another thread or task does not change the choice for this one.
    if _overrides and _chosen is not None:
        return _chosen
    return _choose_once()


def selection() -> Selection:
    """Return the record of this process's choice. If this process has not chosen an
    accelerator yet, the call chooses one.

    `notes` also lists the environment variables that were changed too late to have an
    effect. A `SettingWarning` reports each of them once.
    """
    with _lock:
        if _selection is None:
            _choose_once()
        assert _selection is not None
        late = late_changes()
        if not late:
            return _selection
        return replace(_selection, notes=_selection.notes + late)


def late_changes() -> tuple[Note, ...]:
    """Return a note on each environment variable that was changed too late, and warn once
    about each of them.

    A visible-devices variable has an effect until the device has started.
    `DS_ACCELERATOR` has an effect until the accelerator is chosen. Removing the
    variable later is not reported.
    """
    if _chosen is None or _selection is None or _selection.how is How.SET:
        return ()
    notes = []
    for name in _variables_of(_chosen):
        before = _selection.environ.get(name)
        now = os.environ.get(name)
        if now == before:
            continue
        hides_devices = name != DS_ACCELERATOR.name
        if hides_devices and not _chosen.is_initialized():
            continue  # Before the device starts, a change of the variable has an effect.
        from accel_core.explain.notes import late_change_note

        note = late_change_note(name, before=before, now=now, backend=_chosen.name)
        _warn_once(str(note))
        notes.append(note)
    return tuple(notes)


def _variables_of(chosen: Accelerator) -> list[str]:
    """Return the variables that select the chosen accelerator and its visible devices."""
    names = []
    if DS_ACCELERATOR.name in os.environ:
        names.append(DS_ACCELERATOR.name)
    visibility = chosen.backend.visibility
    return [*names, *visibility.filters, *visibility.variables]


def _warn_once(text: str) -> None:
    if text in _warned:
        return
    _warned.add(text)
    level = user_stacklevel()
    warnings.warn(text, errors.SettingWarning, stacklevel=level)


def set_accelerator(new: object) -> None:
    """Make `new`, an accelerator or a backend's name, the accelerator of this process.
    With `None`, the next call to `get_accelerator` chooses again.

    A class is called without arguments. An object or class that implements DeepSpeed's
    interface is adapted. Raises `InvalidAcceleratorError` for any other object. A
    backend's name raises the same errors as `accelerator(name)`.
    """
    if new is None:
        _set_current(None, None)
        return
    resolved = _to_accelerator(new)
    resolved._by_name = accelerator
    chosen = Verdict(
        resolved.name,
        resolved.backend.provenance or Provenance("", ""),
        resolved.backend,
        status=Status.USABLE,
        accelerator=resolved,
    )
    _set_current(resolved, Selection(chosen, How.SET, pid=os.getpid()))


@contextlib.contextmanager
def use_accelerator(new: object) -> Iterator[Accelerator]:
    """Make `new` the current accelerator of this thread or task until the block ends.

    `new` is any argument that `set_accelerator` accepts except `None`. The accelerator
    is held in a context variable: tasks that start inside the block inherit it, but new
    threads do not. If a suspended generator has entered the block, the generator's
    caller gets `new` too. After the block has ended, no task uses `new` anymore.
    """
    override = _Override(_to_accelerator(new), _override.get())
    try:
        with _lock:
            _overrides.add(override)
            _set_current(_chosen, _selection)  # so that every context is queried
        _override.set(override)
        yield override.accelerator
    finally:
        # This precedes the lock, because an interrupt may end the wait for the lock.
        _overrides.discard(override)
        with _lock:
            _set_current(_chosen, _selection)
        if _override.get() is override:
            _override.set(override.outer)


def accelerator(what: str | torch.device | torch.Tensor) -> Accelerator:
    """Return the accelerator of a backend or device, whether or not it is the chosen one.

    There is one object for each backend. A backend's name is `"npu"` or
    `"npu@distribution"`. If several distributions declare the name, `DS_ACCELERATOR`
    decides which of them is used. The backend may be usable without a device.

    A device is a `torch.device`, a device name with an index (`"npu:0"`), or a tensor
    on the device. If the process's accelerator has that device type, the process's
    accelerator is returned. Otherwise the result is the highest-ranking usable backend
    of the device type, or `generic` if torch has the device and no plugin declares it.

    Raises `BackendNotFoundError`, `BackendConflictError` or `BackendUnavailableError`
    under the same conditions as for a pinned name. Raises `InvalidAcceleratorError`, a
    `TypeError`, for any other argument.
    """
    device: object = what
    if not isinstance(what, str):
        device = getattr(what, "device", what)  # the device of a tensor
    device_type = _device_type_of(device)
    if device_type is not None:
        return _accelerator_for_type(device_type, f"accelerator({str(device)!r})")
    try:
        pin = parse_pin(what)  # type: ignore[arg-type]
    except (ValueError, AttributeError):  # a malformed name, or not a string
        raise errors.InvalidAcceleratorError(
            f"accelerator({what!r}): expected a backend's name ('npu', 'npu@accel-npu'), a "
            "device ('npu:0', a torch.device) or a tensor"
        ) from None
    return accelerator_of_pin(pin, f"accelerator({what!r})")


def _device_type_of(device: object) -> str | None:
    """Return the torch device type of a device or a device name with an index, or
    `None` for any other argument, such as a backend's name.
    """
    device_type = getattr(device, "type", None)
    if isinstance(device, str) and ":" in device:
        device_type, _, _index = device.partition(":")
    if not isinstance(device_type, str):
        return None
    return device_type.strip().lower()


def accelerator_of_pin(pin: Pin, request: str) -> Accelerator:
    """Return the accelerator that a pin selects.

    Error messages quote `request`, the call or the command that contains the pin.
    """
    with _lock:
        if _chosen is not None and _matches_pin(_chosen, pin):
            return _chosen
        if pin in _by_pin:
            return _by_pin[pin]
        settings = read()
        return _select_among((qualified_pin(settings, pin),), pin, request, settings)


def _matches_pin(chosen: Accelerator, pin: Pin) -> bool:
    return pin.matches(chosen.name, chosen.backend.distribution)


def _accelerator_for_type(device_type: str, request: str) -> Accelerator:
    """Return the accelerator for a device of this torch device type."""
    current = overriding_accelerator() or _chosen
    if current is not None and current.device_type == device_type:
        return current
    key = Pin(f"{device_type}:")  # No backend has such a name.
    with _lock:
        if key in _by_pin:
            return _by_pin[key]
        settings = read()
        pins = _pins_of_type(device_type, request, settings)
        return _select_among(pins, key, request, settings)


def _pins_of_type(
    device_type: str, request: str, settings: Settings
) -> tuple[Pin, ...]:
    """Return pins for the backends that may drive a device type, in the order in which
    they are tried.

    Raises `BackendNotFoundError` if there is no such backend.
    """
    names = []
    for verdict in discover():
        # A plugin that was not loaded has no device type.
        declared_type = verdict.device_type or verdict.name
        if declared_type == device_type and verdict.name not in names:
            names.append(verdict.name)
    if not names:
        _require_torch_device(device_type, request)
        names = [device_type]
    pinned_names = [pin.name for pin in settings.pins]

    def is_not_pinned(name: str) -> bool:
        return name not in pinned_names

    # Backends that DS_ACCELERATOR names are tried first, as in a choice.
    names.sort(key=is_not_pinned)
    return tuple(qualified_pin(settings, Pin(name)) for name in names)


def _require_torch_device(device_type: str, request: str) -> None:
    """Raise `BackendNotFoundError` unless torch has a device of this type, or a package
    that torch's autoload imports is named after the type.
    """
    device = builtin.current_torch_device()
    current_type = None if device is None else device.type
    if current_type == device_type or builtin.packages_named_after(device_type):
        return
    raise errors.BackendNotFoundError(
        f"{request}: no installed plugin declares a device of type {device_type!r}, and "
        f"torch's accelerator is {current_type}. `accel list` shows the installed "
        "plugins."
    )


def _select_among(
    pins: tuple[Pin, ...], key: Pin, request: str, settings: Settings
) -> Accelerator:
    """Return the first usable accelerator of `pins`, and remember it under `key`."""
    with selection_in_progress():
        pinned = replace(
            settings, pins=pins, request=request, is_pinned_by_variable=False
        )
        record = select(pinned, built=_built)
        return _by_pin.setdefault(key, _accelerator_of(record))


def qualified_pin(settings: Settings, pin: Pin) -> Pin:
    """Return the pin in the settings with the same name as `pin`, because the pin in the
    settings may also name a distribution. Return `pin` if there is no such pin.
    """
    if pin.distribution:
        return pin
    for pin_in_settings in settings.pins:
        if pin_in_settings.name == pin.name:
            return pin_in_settings
    return pin


def _choose_once() -> Accelerator:
    """Choose the accelerator, unless this process has chosen already.

    One thread chooses while the others wait. A forked child has its parent's choice.
    """
    with _lock:
        if _chosen is not None:
            late_changes()
            _set_current(_chosen, _selection)
            return _chosen
        with selection_in_progress(), _log_to_stderr_if_requested():
            record = select(read(), built=_built)
            built = _accelerator_of(record)
        _set_current(built, record)
        for note in record.notes:
            level = user_stacklevel()
            warnings.warn(str(note), errors.SettingWarning, stacklevel=level)
        _warn_of_fallback(record)
        return built


def _log_to_stderr_if_requested() -> contextlib.AbstractContextManager[None]:
    """Write the log of the choice to stderr if `ACCEL_LOG` is set."""
    if ACCEL_LOG.read(os.environ):
        return logged_by(logging.StreamHandler())
    return contextlib.nullcontext()


def _accelerator_of(record: Selection) -> Accelerator:
    """Return the chosen backend's accelerator, which its probe built. There is one
    object for each backend.

    If the choice failed, raises its error.
    """
    if record.error is not None:
        raise record.error
    assert record.chosen is not None
    assert record.chosen.backend is not None
    built = record.chosen.accelerator
    assert built is not None
    built._op_providers = _op_providers
    built._by_name = accelerator
    return _built.setdefault(record.chosen.backend, built)


def _op_providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Return the operator providers for `backend`. This is called when an operator is requested."""
    from accel_core.op_providers import providers

    return providers(backend)


def _set_current(chosen: Accelerator | None, record: Selection | None) -> None:
    global _current_without_overrides, _chosen, _selection
    with _lock:
        _chosen, _selection = chosen, record
        _current_without_overrides = None if _overrides else chosen


def swap_state(choice: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Replace this process's choice and built accelerators, and return the previous state.

    `None` resets the process to its state before any choice. Tests use this to make a
    separate choice and restore the previous one. Active `use_accelerator` blocks stay
    active.
    """
    global _built, _by_pin, _warned
    with _lock:
        previous_state = (_chosen, _selection, _built, _by_pin, _warned)
        if choice is None:
            choice = (None, None, {}, {}, set())
        chosen, record, _built, _by_pin, _warned = choice
        _set_current(chosen, record)
        return previous_state


def _to_accelerator(new: object) -> Accelerator:
    if isinstance(new, type) and issubclass(new, Accelerator):
        new = new()
    if isinstance(new, Accelerator):
        new._op_providers = new._op_providers or _op_providers
        return new
    if isinstance(new, str):
        return accelerator(new)
    adapted_accelerator = adapted(new)
    if adapted_accelerator is not None:
        return _to_accelerator(adapted_accelerator)
    raise errors.InvalidAcceleratorError(
        f"{new!r} ({type(new).__name__}) is not an accelerator: "
        "expected an accel_core.Accelerator or a backend's name"
    )


def _warn_of_fallback(record: Selection) -> None:
    """Warn once per job that the CPU is used as a fallback. The warning points to the
    user's line that led to the choice.
    """
    if record.how is not How.FALLBACK or "fallback" in _warned:
        return
    reported = [verdict for verdict in record.verdicts if verdict.is_reported]
    missing = record.missing_plugins
    if not missing and not reported:
        return
    _warned.add("fallback")
    needs_attention = bool(missing) or any(v.needs_attention for v in reported)
    if _is_reporting_rank(needs_attention=needs_attention):
        warning = _fallback_warning(reported, missing)
        warnings.warn(warning, stacklevel=user_stacklevel())


def _fallback_warning(
    reported: Sequence[Verdict], missing: Sequence[str]
) -> errors.AcceleratorFallbackWarning:
    from accel_core.explain import messages

    verbose = LOGGER.isEnabledFor(logging.DEBUG)
    text = messages.fallback_message(reported, missing, verbose=verbose)
    warning = errors.AcceleratorFallbackWarning(text)
    is_absence = all(messages.is_merely_absent(verdict) for verdict in reported)
    warning.merely_absent = is_absence and not missing
    return warning


def _is_reporting_rank(*, needs_attention: bool) -> bool:
    """Return whether this rank of a job gives the CPU fallback warning.

    Global rank 0 reports that no accelerator was found. Local rank 0 of each host
    reports a backend that is broken on that host, because global rank 0 may be on
    another host.
    """
    # A process outside of a job, which has no rank, counts as rank 0.
    global_rank = os.environ.get("RANK", "").strip() or "0"
    local_rank = os.environ.get("LOCAL_RANK", "").strip()
    if needs_attention:
        return (local_rank or global_rank) == "0"
    return global_rank == "0" and (local_rank or "0") == "0"


# A fork waits until a running choice is complete, so that a child never inherits an
# incomplete choice. The child has the parent's accelerator, or makes a choice of its own.
# The wait is bounded, because the choosing thread may wait for the forking thread.
_FORK_SECONDS = 10.0
_is_held_for_fork = False


def _before_fork() -> None:
    global _is_held_for_fork
    _is_held_for_fork = _lock.acquire(timeout=_FORK_SECONDS)


def _after_fork_in_parent() -> None:
    global _current_without_overrides
    # The next call checks which variables have changed.
    _current_without_overrides = None
    if _is_held_for_fork:
        _lock.release()


def _after_fork_in_child() -> None:
    global _current_without_overrides, _lock
    _current_without_overrides = None
    if _is_held_for_fork:
        _lock.release()
    else:
        _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
