"""From a candidate to a live accelerator: torch, the vendor's package, the object."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from accel_core._support.guarded import begin, stdout_to_stderr
from accel_core._support.packages import is_installed
from accel_core._support.torch_import import (
    AUTOLOAD,
    FREE_SLOT,
    autoload_is_on,
    autoload_restored,
    import_torch,
    imported_by_us,
)
from accel_core.backend import Backend
from accel_core.detection import builtin, plugins
from accel_core.detection.records import Candidate
from accel_core.errors import BackendUnavailableError, DeclinedError, InvalidAcceleratorError, raise_if_users

if TYPE_CHECKING:
    from accel_core.accelerators import Accelerator

__all__ = ["create", "impersonated", "installed_imports", "taken_over_by"]


def create(
    candidate: Candidate, others: tuple[Backend, ...], step: Callable[[str], None] = begin
) -> Accelerator:
    """Import torch and the vendor's package and build the accelerator; no device is initialised.

    `step` announces each step before it is taken, so that a step that fails, hangs or crashes is named.

    Whatever the plugin or the vendor's package raises comes out as it is. Raises
    `BackendUnavailableError` when torch is missing or its PrivateUse1 slot is taken, `DeclinedError` when
    torch's import brought a package that takes the device's namespace over, and `InvalidAcceleratorError`
    when the plugin builds something else. What vendors print while they are imported goes to stderr.
    """
    # Here, for whoever lists or explains creates nothing, and the interface is seventeen modules.
    from accel_core.accelerators import Accelerator

    backend = candidate.backend
    with stdout_to_stderr():
        step("importing torch")
        torch = import_torch()
        _require_private_use1(backend, others)
        failure: BaseException | None = None
        with autoload_restored():
            for name in installed_imports(backend) or backend.vendor_imports[:1]:
                step(f"importing {name} ({candidate.provenance})")
                try:
                    importlib.import_module(name)
                except (Exception, SystemExit) as error:
                    raise_if_users(error)
                    failure = failure or error
                else:
                    failure = None
                    break
        if failure is not None:  # none of the vendor's imports works
            raise failure
        sys.modules["torch"] = torch  # torch cannot be imported twice, should the vendor have deleted it
        _require_own_namespace(backend)
        built = _built(candidate, others, step)
        if not isinstance(built, Accelerator):
            from accel_core.accelerators.adapters import adapted  # here, as nearly every plugin builds ours

            built = adapted(built, backend) or built
    if not isinstance(built, Accelerator):
        raise InvalidAcceleratorError(
            f"{candidate} built {built!r} ({type(built).__name__}), expected an accel_core.Accelerator, or "
            "an object or class that an adapter knows (DeepSpeed's DeepSpeedAccelerator)"
        )
    return built


def _built(candidate: Candidate, others: tuple[Backend, ...], step: Callable[[str], None]) -> object:
    """Return the accelerator from `accel_create`, else an instance of the declared class."""
    backend = candidate.backend
    if candidate.builtin:
        return builtin.create(backend, others) or _made(backend)
    step(f"accel_create() of {candidate.provenance}")
    given = plugins.ask(candidate.plugin, "accel_create", backend=backend, others=others)
    if given:
        return given[0]
    if backend.accelerator:
        step(f"accelerator={backend.accelerator!r} of {candidate.provenance}")
    return _made(backend)


def installed_imports(backend: Backend) -> list[str]:
    """Those of the backend's vendor imports whose package can be found, without importing it."""
    return [name for name in backend.vendor_imports if is_installed(name)]


def _made(backend: Backend) -> object:
    """Return an instance of the declared class; an adapter wraps a class of another framework."""
    from accel_core.accelerators import Accelerator

    if not backend.accelerator or backend.accelerator.startswith("accel_core."):
        return _class(backend)(backend)
    from accel_core.accelerators.adapters import adapted, frameworks_prepared  # here, as ours needs neither

    with frameworks_prepared():
        kind = _class(backend)
    if not issubclass(kind, Accelerator) and (made := adapted(kind, backend)) is not None:
        return made
    return kind(backend)


def _class(backend: Backend) -> type:
    """The class that the declaration names, else the one over any device module of torch."""
    if not backend.accelerator:
        from accel_core.accelerators.torch_device import TorchAccelerator  # not for a process on the CPU

        return TorchAccelerator
    module, _, name = backend.accelerator.partition(":")
    named = getattr(importlib.import_module(module), name)
    if not isinstance(named, type):
        raise InvalidAcceleratorError(
            f"accelerator={backend.accelerator!r} of {backend.provenance} is {named!r}, expected a class"
        )
    return named


def taken_over_by(backend: Backend) -> str:
    """The imported package that `Backend.taken_over_by` names; empty where there is none."""
    return next((name for name in backend.taken_over_by if name in sys.modules), "")


def impersonated(backend: Backend, by: str) -> tuple[str, str]:
    """Why the backend stands aside where `by` has taken over its namespace, and the next step."""
    reason = f"torch.{backend.device_type} is impersonated by {by}"
    return reason, f"choose that vendor's own backend, or do not load {by}"


def _require_own_namespace(backend: Backend) -> None:
    """Raise `DeclinedError` where importing torch brought the package, as a start-up hook can make it."""
    if other := taken_over_by(backend):
        reason, hint = impersonated(backend, other)
        raise DeclinedError(reason, hint=hint, stands_aside=True)


def _require_private_use1(backend: Backend, others: tuple[Backend, ...]) -> None:
    """A process has one PrivateUse1 slot, and it can be named once only."""
    if not backend.private_use1:
        return
    holder = import_torch()._C._get_privateuse1_backend_name()
    if holder in (FREE_SLOT, backend.device_type):
        return
    raise BackendUnavailableError(
        f"torch's one PrivateUse1 slot is held by {holder} in this process",
        hint=f"set DS_ACCELERATOR={backend.name} {_before(holder, others)}",
    )


def _before(holder: str, others: tuple[Backend, ...]) -> str:
    """Return the step, beside the pin, that keeps `holder` from taking the slot first."""
    holders = [b for b in others if b.device_type == holder]
    tops = {name.partition(".")[0] for b in holders for name in b.vendor_imports}
    loaded = [e.distribution for e in builtin.announced() if not tops or e.module.partition(".")[0] in tops]
    if loaded and autoload_is_on() and not imported_by_us():
        return f"and {AUTOLOAD}=0 before Python starts: `import torch` loads {' and '.join(loaded)}"
    return f"before Python starts, and import nothing of {holder}'s"
