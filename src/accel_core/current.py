"""The one place with state: the accelerator this process uses, and the record of how it was chosen.

`get_accelerator()` is one global read once a choice is made. `use_accelerator()` overrides it for the
calling context (thread or task) only: while an override is active anywhere, the fast global is empty and
the context is asked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accel_core import errors, torch_import
from accel_core.backend import Backend
from accel_core.detection import Candidate, Choice, How, Selection, discovery
from accel_core.detection.select import discover, select
from accel_core.exceptions import user_stacklevel
from accel_core.interface import Accelerator, adapted
from accel_core.interface.devices import torchs_device
from accel_core.locks import fork_safe_lock
from accel_core.log import LOGGER, logged_by
from accel_core.sandbox.guard import choosing
from accel_core.settings import ACCEL_LOG, DS_ACCELERATOR, Pin, Settings, parse_pin, read

if TYPE_CHECKING:
    import torch

    from accel_core.operators import OpProvider

#: What `get_accelerator()` returns at once; `None` before the choice and while an override is active.
_fast: Accelerator | None = None
_chosen: Accelerator | None = None
_selection: Selection | None = None
#: The one object of each backend, and of each name that was asked for.
_built: dict[Backend, Accelerator] = {}
_by_pin: dict[Pin, Accelerator] = {}
#: The blocks of `use_accelerator` that have not ended, in any thread or task.
_overrides: set[_Override] = set()
_override: ContextVar[_Override | None] = ContextVar("accel_core_override", default=None)
_lock = fork_safe_lock()
#: What was warned of, which is said once.
_warned: set[str] = set()


class _Override:
    """One block of `use_accelerator`, and the one around it in this context."""

    def __init__(self, accelerator: Accelerator, around: _Override | None) -> None:
        self.accelerator = accelerator
        self.around = around


def overriding() -> Accelerator | None:
    """Return the accelerator of the innermost active `use_accelerator`; `None` if none is active."""
    override = _override.get()
    while override is not None and override not in _overrides:  # its block has ended
        override = override.around
    return override.accelerator if override is not None else None


def get_accelerator() -> Accelerator:
    """Return this process's accelerator; the first call chooses it, later calls return the same object.

    Choosing imports torch and the chosen vendor's package, and initialises no device. Raises an `AccelError`
    if a pinned backend (`DS_ACCELERATOR`) cannot be used or a setting is invalid. Warns with
    `AcceleratorFallbackWarning` if the CPU is chosen although an accelerator is installed or present.
    """
    if (current := _fast) is not None:
        return current
    return overriding() or (_chosen if _overrides else None) or _choose()


def selection() -> Selection:
    """Return the record of the choice; make the choice if that has not happened yet.

    `notes` also name the variables that were changed too late to have an effect, each of which is a
    `SettingWarning` once.
    """
    with _lock:
        if _selection is None:
            _choose()
        assert _selection is not None
        return _selection._replace(notes=_selection.notes + late) if (late := late_changes()) else _selection


def late_changes() -> tuple[str, ...]:
    """Return which variables were changed too late to have an effect on this process, and warn of each once.

    A mask counts until the device has started. A pin that was taken away asks for nothing else.
    """
    if _chosen is None or _selection is None or _selection.how is How.SET:
        return ()
    then, mask = _selection.environ, _chosen.backend.visibility
    late = tuple(
        f"{name} was {then.get(name)!r} when {_chosen.name} was chosen and is {os.environ.get(name)!r} now, "
        "which has no effect any more. Next step: set it before Python starts"
        for name in (*filter(os.environ.__contains__, [DS_ACCELERATOR.name]), *mask.filters, *mask.variables)
        if os.environ.get(name) != then.get(name)
        and (name == DS_ACCELERATOR.name or _chosen.is_initialized())  # which may ask the vendor
    )
    for text in dict.fromkeys(late).keys() - _warned:
        _warned.add(text)
        warnings.warn(text, errors.SettingWarning, stacklevel=user_stacklevel())
    return late


def set_accelerator(new: object) -> None:
    """Use `new`, an accelerator or a backend's name, from now on; with `None`, choose again at the next call.

    A class is called without arguments. An object or a class with DeepSpeed's interface is adapted. Raises
    `InvalidAcceleratorError` for anything else; for a name, raises what `accelerator(name)` raises.
    """
    if new is None:
        _settle(None, None)
        return
    resolved = _resolve(new)
    resolved._by_name = accelerator
    _settle(resolved, Selection(resolved.name, How.SET, (), resolved.backend.provenance, os.getpid()))


@contextlib.contextmanager
def use_accelerator(new: object) -> Iterator[Accelerator]:
    """Make `new` the current accelerator of this thread or task until the block ends.

    `new` is what `set_accelerator` accepts. This is a context variable: tasks that start inside the block
    inherit it, new threads do not, and a generator that sets it also sets it for its caller while it is
    suspended. The end of the block ends it for all of them.
    """
    override = _Override(_resolve(new), _override.get())
    try:
        with _lock:
            _overrides.add(override)
            _settle(_chosen, _selection)
        _override.set(override)
        yield override.accelerator
    finally:
        _overrides.discard(override)  # before the lock: a wait for it may be interrupted
        with _lock:
            _settle(_chosen, _selection)
        if _override.get() is override:
            _override.set(override.around)


def accelerator(what: str | torch.device | torch.Tensor) -> Accelerator:
    """Return the accelerator of a backend or of a device, whether it is the chosen one or not.

    There is one object for each backend. A name is `"npu"` or `"npu@distribution"`; if several distributions
    declare the name, `DS_ACCELERATOR` decides. The backend may be usable without a device.

    A device is a `torch.device`, its name with an index (`"npu:0"`), or a tensor, which means the device it
    is on. The process's own accelerator is returned for its device type; for another type, that of the
    highest-ranking usable backend, or `generic` if torch has the device and no plugin declares it.

    Raises `BackendNotFoundError`, `BackendConflictError` or `BackendUnavailableError` as for a pinned name,
    and `InvalidAcceleratorError`, a `TypeError`, for anything else.
    """
    place = what if isinstance(what, str) else getattr(what, "device", what)
    kind = place.partition(":")[0] if isinstance(place, str) else getattr(place, "type", None)
    if isinstance(kind, str) and kind != place:
        return _of_type(kind.strip().lower(), f"accelerator({str(place)!r})")
    try:
        pin = parse_pin(what)  # type: ignore[arg-type]
    except (ValueError, AttributeError):
        raise errors.InvalidAcceleratorError(
            f"accelerator({what!r}): expected a backend's name ('npu', 'npu@accel-npu'), a device ('npu:0', "
            "a torch.device) or a tensor"
        ) from None
    return named(pin, f"accelerator({what!r})")


def named(pin: Pin, asked: str) -> Accelerator:
    """Build the accelerator of `accelerator(name)`; errors call the request `asked`: a call, or a command."""
    with _lock:
        if _chosen is not None and pin.matches(_chosen.name, _chosen.backend.distribution):
            return _chosen
        return _by_pin.get(pin) or _first(pin, asked, lambda settings: (exact(settings, pin),))


def _of_type(kind: str, asked: str) -> Accelerator:
    """Accelerator that `accelerator(device)` returns for a device of torch's type `kind`."""
    own = overriding() or _chosen
    if own is not None and own.device_type == kind:
        return own
    pin = Pin(f"{kind}:")  # no backend has that name

    def pins(settings: Settings) -> tuple[Pin, ...]:
        types = [(c.name, c.backend.device_type if isinstance(c, Candidate) else c.name) for c in discover()]
        names = [name for name, declared in types if declared == kind]
        if not names:
            of_torch = torchs_device(torch_import.import_torch())
            if not discovery.announced_as(kind) and (of_torch is None or of_torch.type != kind):
                raise errors.BackendNotFoundError(
                    f"{asked}: no installed plugin declares a device of type {kind!r}, and torch's own "
                    f"accelerator is {of_torch and of_torch.type}. `accel list` shows the installed plugins."
                )
            names = [kind]
        # DS_ACCELERATOR decides among them, as it does for a choice.
        ranked = sorted(dict.fromkeys(names), key=lambda name: name not in [p.name for p in settings.pins])
        return tuple(exact(settings, Pin(name)) for name in ranked)

    with _lock:
        return _by_pin.get(pin) or _first(pin, asked, pins)


def _first(pin: Pin, asked: str, pins: Callable[[Settings], tuple[Pin, ...]]) -> Accelerator:
    """Build the first usable one of `pins`, which from then on is what `pin` means."""
    settings = read()
    with choosing():
        choice = select(replace(settings, pins=pins(settings), asked=asked), built=_built)
        return _by_pin.setdefault(pin, _accelerator_of(choice))


def exact(settings: Settings, pin: Pin) -> Pin:
    """Return the pin of the settings that says more of the same name; else the pin as it is."""
    return next((p for p in settings.pins if p.name == pin.name and not pin.distribution), pin)


def _choose() -> Accelerator:
    """The first call: one thread chooses, the others wait for it. A forked child's choice is its parent's."""
    with _lock:
        if _chosen is not None:
            late_changes()
            _settle(_chosen, _selection)
            return _chosen
        shown = logged_by(logging.StreamHandler()) if ACCEL_LOG.read(os.environ) else contextlib.nullcontext()
        with choosing(), shown:
            choice = select(read(), built=_built)
            built, record = _accelerator_of(choice), choice.selection
        _settle(built, record)
        for note in record.notes:
            warnings.warn(note, errors.SettingWarning, stacklevel=user_stacklevel())
        _warn_of_fallback(record)
        return built


def _accelerator_of(choice: Choice) -> Accelerator:
    """The chosen backend's one object, which its probe built; raises the error of a choice that failed."""
    if choice.error is not None:
        raise choice.error
    candidate, chosen = choice.candidate, choice.accelerator
    assert candidate is not None
    assert chosen is not None
    chosen._op_providers, chosen._by_name = _op_providers, accelerator
    # A built-in declaration learns torch's type of the device when it is built.
    declared = chosen.backend if candidate.builtin else candidate.backend
    return _built.setdefault(declared, chosen)


def _op_providers(backend: Backend) -> tuple[OpProvider, ...]:
    """Providers of operators for `backend`, looked up when an operator is requested."""
    from accel_core.op_providers import providers

    return providers(backend)


def _settle(chosen: Accelerator | None, record: Selection | None) -> None:
    global _fast, _chosen, _selection
    with _lock:
        _chosen, _selection = chosen, record
        _fast = None if _overrides else chosen


def exchange(choice: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Make `choice` what this process has chosen and built, nothing yet for `None`; gives what it was.

    For tests that look at a choice of their own and put the process's back. What `use_accelerator` overrides
    stays overridden.
    """
    global _built, _by_pin, _warned
    with _lock:
        before = (_chosen, _selection, _built, _by_pin, _warned)
        chosen, record, _built, _by_pin, _warned = choice or (None, None, {}, {}, set())
        _settle(chosen, record)
        return before


def _resolve(new: object) -> Accelerator:
    if isinstance(new, type) and issubclass(new, Accelerator):
        new = new()
    if isinstance(new, Accelerator):
        new._op_providers = new._op_providers or _op_providers
        return new
    if isinstance(new, str):
        return accelerator(new)
    if (made := adapted(new)) is not None:
        return _resolve(made)
    raise errors.InvalidAcceleratorError(
        f"{new!r} ({type(new).__name__}) is not an accelerator: "
        "expected an accel_core.Accelerator or a backend's name"
    )


def _warn_of_fallback(record: Selection) -> None:
    """One warning a job, at the user's line that led here.

    Of the ranks of a job the first says that no accelerator was found, and on each host the first what is to
    be mended there: the host of rank 0 may be another.
    """
    news = [verdict for verdict in record.verdicts if verdict.is_news]
    more = (*record.missing_plugins, *record.autoload)
    if record.how is not How.FALLBACK or "fallback" in _warned or not (more or news):
        return
    from accel_core.detection import messages  # here, as most choices have nothing to say

    _warned.add("fallback")
    serious = bool(more) or any(v.needs_mending for v in news)
    given = [r for n in ("LOCAL_RANK", "RANK") if (r := os.environ.get(n, "").strip())]
    if any(rank != "0" for rank in (given[:1] if serious else given)):  # another rank says it
        return
    text = messages.fallback(news, more, in_full=LOGGER.isEnabledFor(logging.DEBUG))
    warning = errors.AcceleratorFallbackWarning(text)
    warning.merely_absent = not more and all(map(messages.merely_absent, news))
    warnings.warn(warning, stacklevel=user_stacklevel())


# A fork waits for a choice that is under way, so that a child never inherits half of one: it has the
# parent's accelerator or chooses for itself. The wait is bounded, for the thread that chooses may itself
# wait for the one that forks.
_FORK_WAIT = 10.0


def _forked() -> None:
    """On both sides: give back the lock, and look at the next call which variables have changed."""
    global _fast
    _fast = None
    if _lock._is_owned():  # type: ignore[attr-defined]  # else the wait was in vain
        _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire(timeout=_FORK_WAIT), after_in_parent=_forked, after_in_child=_forked
    )
