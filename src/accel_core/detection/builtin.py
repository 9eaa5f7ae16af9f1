"""The backends that accel_core brings itself, and what a plugin's hooks would say of them."""

from __future__ import annotations

import os
import sys

from accel_core._support.guarded import begin
from accel_core._support.packages import EntryPoint
from accel_core._support.torch_import import (
    AUTOLOAD,
    IMPORTED,
    OWN_ENTRY_POINT,
    TORCH_GROUP,
    cause_and_step,
    import_torch,
    torch_build,
)
from accel_core.backend import Backend, ProbeResult
from accel_core.errors import BackendUnavailableError, DeclinedError, raise_if_users
from accel_core.settings import entry_points

CPU = Backend(
    name="cpu",
    priority=0,
    device_type="cpu",
    accelerator="accel_core.accelerators.cpu:CPUAccelerator",
    description="the processor, through torch.cpu",
    install_hint="pip install torch",
    communication_backend="gloo",
)

GENERIC = Backend(
    name="generic",
    priority=100,
    device_type="privateuseone",  # a placeholder: torch says what it is when the accelerator is built
    accelerator="accel_core.accelerators.torch_device:GenericAccelerator",
    description="an accelerator that torch reports and no installed plugin knows",
    install_hint="pip install torch",
    communication_backend="",
)

_NONE = "torch reports no accelerator"


def probe(backend: Backend, others: tuple[Backend, ...]) -> ProbeResult | None:
    """Probe without importing torch or a vendor's package, which is enough for the CPU; else maybe `None`."""
    if backend.name == CPU.name:
        return ProbeResult(usable=True)  # wherever torch is installed, and that was checked before
    if unclaimed(others) or os.environ.get(IMPORTED):
        return None
    if sys.modules.get("torch") is not None:
        torch = import_torch()  # another thread may still be importing it
        ask = getattr(getattr(torch, "accelerator", None), "current_accelerator", lambda: ...)
        return ProbeResult(False, _NONE) if ask() is None else None
    build = torch_build()
    kinds = {
        "cuda": build and (build.cuda or build.hip),
        "xpu": build and build.xpu,
        "mps": sys.platform == "darwin",
    }
    there = [kind for kind, present in kinds.items() if present]
    claimed = {other.device_type for other in others}
    if not there:
        return ProbeResult(False, f"{build or 'torch'} has no accelerator{_announcements(others)}")
    if all(kind in claimed for kind in there):
        return ProbeResult(False, f"an installed plugin claims {', '.join(there)}", stands_aside=True)
    return None


def create(backend: Backend, others: tuple[Backend, ...]) -> object:
    """Nothing special for the CPU; else load what nobody claims and ask torch what it has."""
    if backend.name == CPU.name:
        return None
    torch = import_torch()
    if torch.accelerator.current_accelerator() is None:
        _load_unclaimed(others)
    device = torch.accelerator.current_accelerator()
    if device is None:
        raise DeclinedError(_NONE)
    owner = next((other for other in others if other.device_type == device.type), None)
    if owner is not None:
        raise DeclinedError(
            f"torch's accelerator is {device.type}, which {owner.name} claims", stands_aside=True
        )
    from accel_core.accelerators.torch_device import GenericAccelerator

    return GenericAccelerator(backend)


def loads_unclaimed(backend: Backend, others: tuple[Backend, ...]) -> bool:
    """Whether building the accelerator runs code of packages that no plugin claims.

    torch's autoload would run it wherever it is installed; here a child process tries it first.
    """
    if backend.name != GENERIC.name or not unclaimed(others):
        return False
    torch = sys.modules.get("torch")
    return torch is None or torch.accelerator.current_accelerator() is None


def announced() -> list[EntryPoint]:
    """The packages that torch loads by itself, in its order.

    But accel-train's, which brings no device, and what is blocked as a whole distribution: torch loads that
    all the same, and we do not.
    """
    return [e for e in entry_points(TORCH_GROUP) if e.name != OWN_ENTRY_POINT]


def unclaimed(others: tuple[Backend, ...]) -> list[EntryPoint]:
    """Those of them whose package no plugin among `others` claims."""
    return [e for e in announced() if not _claimants(e, others)]


def _claimants(entry_point: EntryPoint, others: tuple[Backend, ...]) -> list[str]:
    """The backends through the package that the entry point names."""
    top = entry_point.module.partition(".")[0]
    return [b.name for b in others if top in [m.partition(".")[0] for m in b.vendor_imports]]


def _announcements(others: tuple[Backend, ...]) -> str:
    """Name the packages that announce an accelerator to torch, for a reason; plugins claim all of them."""
    claimed = ", ".join(f"{e.distribution}: {_claimants(e, others)[0]}" for e in announced())
    if not claimed:
        return " and no package announces one to torch"
    return f", and a plugin claims what announces one to torch ({claimed})"


def fails_in_torch(package: EntryPoint, how: str) -> str:
    """Return the clause that says that torch cannot load the package, the same for every message."""
    at = f"{TORCH_GROUP}: {package.name} = {package.value}"
    return f"{package.distribution} {package.version} fails when torch loads it ({at}): {how}"


def remedies(package: EntryPoint, does: str = "fails with") -> str:
    """Return the next step against what the package does to `import torch`."""
    return f"`import torch` {does} it: pip uninstall {package.distribution}, or set {AUTOLOAD}=0"


def _load_unclaimed(others: tuple[Backend, ...]) -> None:
    """Run torch's autoload for unclaimed packages, one at a time.

    torch itself would fail at the first broken one; the last failure is raised when none worked. It names
    the distribution, which breaks every `import torch` of this environment.
    """
    failure: BackendUnavailableError | None = None
    for entry_point in unclaimed(others):
        begin(f"importing {entry_point.value} ({entry_point.distribution} {entry_point.version})")
        try:
            entry_point.load()()
        except (Exception, SystemExit) as error:  # one vendor's failure leaves the next one its turn
            raise_if_users(error)
            reason = fails_in_torch(entry_point, cause_and_step(error)[0])
            failure = BackendUnavailableError(reason, hint=remedies(entry_point))
            failure.__cause__ = error
        else:
            return
    if failure is not None:
        raise failure
