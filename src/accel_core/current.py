"""The one place with state: the accelerator this process uses, and the record of how it was chosen.

`get_accelerator()` is one global read once a choice is made. `use_accelerator()` overrides it for the
calling context (thread or task) only: while an override is active anywhere, the fast global is empty and
the context is queried.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
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
from accel_core.verdict import How, Selection, Status, Verdict

if TYPE_CHECKING:
    import torch

    from accel_core.operators import OpProvider

#: What `get_accelerator()` returns at once; `None` before the choice and while an override is active.
_fast: Accelerator | None = None
_chosen: Accelerator | None = None
_selection: Selection | None = None
#: The one object of each backend, and of each name that was requested.
_built: dict[Backend, Accelerator] = {}
_by_pin: dict[Pin, Accelerator] = {}
#: The blocks of `use_accelerator` that have not ended, in any thread or task.
_overrides: set[_Override] = set()
_override: ContextVar[_Override | None] = ContextVar(
    "accel_core_override", default=None
)
_lock = threading.RLock()
#: What was warned of, which is said once.
_warned: set[str] = set()


class _Override:
    """One block of `use_accelerator`, and the one around it in this context."""

    def __init__(self, accelerator: Accelerator, outer: _Override | None) -> None:
        self.accelerator = accelerator
        self.outer = outer


def overriding() -> Accelerator | None:
    """Return the accelerator of the innermost active `use_accelerator`; `None` if none is active."""
    override = _override.get()
    while override is not None and override not in _overrides:  # its block has ended
        override = override.outer
    return override.accelerator if override is not None else None


def get_accelerator() -> Accelerator:
    """Return this process's accelerator; the first call chooses it, later calls return the same object.

    Choosing imports torch and the chosen vendor's package, and initialises no device. Raises an `AccelError`
    if a pinned backend (`DS_ACCELERATOR`) cannot be used or a setting is invalid. Warns with
    `AcceleratorFallbackWarning` if the CPU is chosen although an accelerator is installed or present.
    """
    if (current := _fast) is not None:
        return current
    return overriding() or (_chosen if _overrides else None) or _choose_once()


def selection() -> Selection:
    """Return the record of the choice; choose first if this process has not chosen yet.

    `notes` also contain the variables that were changed too late to have an effect. A
    `SettingWarning` reports each of these variables once.
    """
    with _lock:
        if _selection is None:
            _choose_once()
        assert _selection is not None
        late = tuple(map(str, late_changes()))
        if not late:
            return _selection
        return replace(_selection, notes=_selection.notes + late)


@dataclass(frozen=True)
class LateChange:
    """A variable that was changed too late to have an effect, and the next step."""

    what: str
    step: str

    def __str__(self) -> str:
        return f"{self.what}. Next step: {self.step}"


def late_changes() -> tuple[LateChange, ...]:
    """Return which variables were changed too late, and warn of each once.

    They have no effect on this process any more. A mask counts until the device has
    started. A pin that was taken away asks for nothing else.
    """
    if _chosen is None or _selection is None or _selection.how is How.SET:
        return ()
    before = _selection.environ
    late = []
    for name in _variables_of(_chosen):
        now = os.environ.get(name)
        if now == before.get(name):
            continue
        is_mask = name != DS_ACCELERATOR.name
        if is_mask and not _chosen.is_initialized():
            continue
        what = (
            f"{name} was {before.get(name)!r} when {_chosen.name} was chosen and is "
            f"{now!r} now, which has no effect any more"
        )
        late.append(LateChange(what, "set it before Python starts"))
    for change in late:
        _warn_once(str(change))
    return tuple(late)


def _variables_of(chosen: Accelerator) -> list[str]:
    """Return the variables that select the chosen accelerator and its visible devices."""
    mask = chosen.backend.visibility
    names = [*mask.filters, *mask.variables]
    if DS_ACCELERATOR.name in os.environ:
        names.insert(0, DS_ACCELERATOR.name)
    return names


def _warn_once(text: str) -> None:
    if text in _warned:
        return
    _warned.add(text)
    level = user_stacklevel()
    warnings.warn(text, errors.SettingWarning, stacklevel=level)


def set_accelerator(new: object) -> None:
    """Use `new`, an accelerator or a backend's name, from now on; with `None`, choose again at the next call.

    A class is called without arguments. An object or a class with DeepSpeed's interface is adapted. Raises
    `InvalidAcceleratorError` for anything else; for a name, raises what `accelerator(name)` raises.
    """
    if new is None:
        _set_current(None, None)
        return
    resolved = _resolve(new)
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

    `new` is what `set_accelerator` accepts. The accelerator is held in a context
    variable: tasks that start inside the block inherit it, and new threads do not. If a
    suspended generator has set it, the generator's caller sees it too. When the block
    ends, none of them uses `new` any more.
    """
    override = _Override(_resolve(new), _override.get())
    try:
        with _lock:
            _overrides.add(override)
            _set_current(_chosen, _selection)
        _override.set(override)
        yield override.accelerator
    finally:
        _overrides.discard(
            override
        )  # before the lock: a wait for it may be interrupted
        with _lock:
            _set_current(_chosen, _selection)
        if _override.get() is override:
            _override.set(override.outer)


def accelerator(what: str | torch.device | torch.Tensor) -> Accelerator:
    """Return the accelerator of a backend or of a device, whether or not it is the
    chosen one.

    There is one object for each backend. A backend's name is `"npu"` or
    `"npu@distribution"`; if several distributions declare the name, `DS_ACCELERATOR`
    decides. The backend may be usable without a device.

    A device is a `torch.device`, its name with an index (`"npu:0"`), or a tensor on it.
    For the device type of the process's own accelerator, that accelerator is returned.
    For another type, the result is the highest-ranking usable backend of the type, or
    `generic` if torch has the device and no plugin declares it.

    Raises `BackendNotFoundError`, `BackendConflictError` or `BackendUnavailableError`
    as for a pinned name, and `InvalidAcceleratorError`, a `TypeError`, for anything
    else.
    """
    device = what if isinstance(what, str) else getattr(what, "device", what)
    if isinstance(device, str):
        kind: object = device.partition(":")[0]
    else:
        kind = getattr(device, "type", None)
    if isinstance(kind, str) and kind != device:
        return _accelerator_for_type(
            kind.strip().lower(), f"accelerator({str(device)!r})"
        )
    try:
        pin = parse_pin(what)  # type: ignore[arg-type]
    except (ValueError, AttributeError):
        raise errors.InvalidAcceleratorError(
            f"accelerator({what!r}): expected a backend's name ('npu', 'npu@accel-npu'), a "
            "device ('npu:0', a torch.device) or a tensor"
        ) from None
    return accelerator_of_pin(pin, f"accelerator({what!r})")


def accelerator_of_pin(pin: Pin, request: str) -> Accelerator:
    """Return the accelerator that a pin selects.

    `request` is the call or the command that errors quote.
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


def _accelerator_for_type(kind: str, request: str) -> Accelerator:
    """Return the accelerator for a device of torch's type `kind`."""
    own = overriding() or _chosen
    if own is not None and own.device_type == kind:
        return own
    key = Pin(f"{kind}:")  # no backend has that name
    with _lock:
        if key in _by_pin:
            return _by_pin[key]
        settings = read()
        pins = _pins_of_type(kind, request, settings)
        return _select_among(pins, key, request, settings)


def _pins_of_type(kind: str, request: str, settings: Settings) -> tuple[Pin, ...]:
    """Return pins of the backends that may drive the device type, in the order to try
    them.

    Raises `BackendNotFoundError` if there is no such backend.
    """
    names = [v.name for v in discover() if (v.device_type or v.name) == kind]
    if not names:
        device = builtin.current_device()
        current = None if device is None else device.type
        if current != kind and not builtin.packages_named_after(kind):
            raise errors.BackendNotFoundError(
                f"{request}: no installed plugin declares a device of type {kind!r}, and "
                f"torch's own accelerator is {current}. `accel list` shows the installed "
                "plugins."
            )
        names = [kind]
    # DS_ACCELERATOR decides among them, as it does for a choice.
    preferred = [pin.name for pin in settings.pins]
    ranked = sorted(dict.fromkeys(names), key=lambda name: name not in preferred)
    return tuple(qualified_pin(settings, Pin(name)) for name in ranked)


def _select_among(
    pins: tuple[Pin, ...], key: Pin, request: str, settings: Settings
) -> Accelerator:
    """Return the first usable accelerator of `pins`, and remember it under `key`."""
    with selection_in_progress():
        pinned = replace(settings, pins=pins, request=request)
        record = select(pinned, built=_built)
        return _by_pin.setdefault(key, _accelerator_of(record))


def qualified_pin(settings: Settings, pin: Pin) -> Pin:
    """Return the settings' pin of the same name, which may name a distribution; else
    `pin` itself.
    """
    if not pin.distribution:
        for preferred in settings.pins:
            if preferred.name == pin.name:
                return preferred
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
            warnings.warn(note, errors.SettingWarning, stacklevel=level)
        _warn_of_fallback(record)
        return built


def _log_to_stderr_if_requested() -> contextlib.AbstractContextManager[None]:
    """Show the log of the choice on stderr if `ACCEL_LOG` is set."""
    if ACCEL_LOG.read(os.environ):
        return logged_by(logging.StreamHandler())
    return contextlib.nullcontext()


def _accelerator_of(record: Selection) -> Accelerator:
    """Return the one accelerator object of the chosen backend; its probe built it.

    Raises the error of a failed choice.
    """
    if record.error is not None:
        raise record.error
    assert record.chosen is not None
    assert record.chosen.backend is not None
    built = record.chosen.accelerator
    assert built is not None
    built._op_providers, built._by_name = _op_providers, accelerator
    return _built.setdefault(record.chosen.backend, built)


def _op_providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Providers of operators for `backend`, looked up when an operator is requested."""
    from accel_core.op_providers import providers

    return providers(backend)


def _set_current(chosen: Accelerator | None, record: Selection | None) -> None:
    global _fast, _chosen, _selection
    with _lock:
        _chosen, _selection = chosen, record
        _fast = None if _overrides else chosen


def swap_state(choice: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Replace the choice and the built accelerators of this process; return the
    previous ones.

    `None` resets the process to its state before any choice. For tests that make a
    choice of their own and restore the previous one. Active `use_accelerator` blocks
    stay active.
    """
    global _built, _by_pin, _warned
    with _lock:
        before = (_chosen, _selection, _built, _by_pin, _warned)
        chosen, record, _built, _by_pin, _warned = choice or (None, None, {}, {}, set())
        _set_current(chosen, record)
        return before


def _resolve(new: object) -> Accelerator:
    if isinstance(new, type) and issubclass(new, Accelerator):
        new = new()
    if isinstance(new, Accelerator):
        new._op_providers = new._op_providers or _op_providers
        return new
    if isinstance(new, str):
        return accelerator(new)
    adapted_accelerator = adapted(new)
    if adapted_accelerator is not None:
        return _resolve(adapted_accelerator)
    raise errors.InvalidAcceleratorError(
        f"{new!r} ({type(new).__name__}) is not an accelerator: "
        "expected an accel_core.Accelerator or a backend's name"
    )


def _warn_of_fallback(record: Selection) -> None:
    """Warn once per job that the CPU is used, at the user's line that led to the
    choice.
    """
    if record.how is not How.FALLBACK or "fallback" in _warned:
        return
    reported = [verdict for verdict in record.verdicts if verdict.is_reported]
    missing = record.missing_plugins
    if not missing and not reported:
        return
    _warned.add("fallback")
    must_act = bool(missing) or any(v.needs_attention for v in reported)
    if _is_reporting_rank(must_act):
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


def _is_reporting_rank(must_act: bool) -> bool:
    """Whether this rank of a job is the one that warns.

    Global rank 0 reports that none was found; local rank 0 of each host reports what is
    broken there: the host of rank 0 may be another.
    """
    ranks = []
    for name in ("LOCAL_RANK", "RANK"):
        rank = os.environ.get(name, "").strip()
        if rank:
            ranks.append(rank)
    if must_act:
        return not ranks or ranks[0] == "0"
    return all(rank == "0" for rank in ranks)


# A fork waits for a choice that is under way, so that a child never inherits half of one:
# it has the parent's accelerator or chooses for itself. The wait is bounded, for the thread
# that chooses may itself wait for the one that forks.
_FORK_SECONDS = 10.0
_is_held_for_fork = False


def _before_fork() -> None:
    global _is_held_for_fork
    _is_held_for_fork = _lock.acquire(timeout=_FORK_SECONDS)


def _after_fork_in_parent() -> None:
    global _fast
    _fast = None  # the next call looks which variables have changed
    if _is_held_for_fork:
        _lock.release()


def _after_fork_in_child() -> None:
    global _fast, _lock
    _fast = None
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
