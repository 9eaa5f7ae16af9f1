"""Packages that announce themselves to torch: what `generic` makes of them, and what they spoil.

torch imports every package that announces itself in its group, wherever it is installed and whatever is
chosen. If accel_core is the first to import torch, it leaves that out; a program that imports torch first,
and every rank that a launcher starts, does not. So a child process does what torch does, a package at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel_core import errors
from accel_core._support import torch_import
from accel_core.backend import Backend, Provenance, decode_backend, encode_backend
from accel_core.detection import Outcome, Status, Verdict, no_device
from accel_core.detection.discovery import CPU, GENERIC
from accel_core.detection.guard import announce
from accel_core.settings import entry_points


def announced() -> list[Provenance]:
    """Return the packages that torch's autoload imports, in torch's order.

    Without accel-train's own, which brings no device, and without distributions that `ACCEL_BLOCK` blocks as
    a whole: torch imports those too, and accel-core leaves them out.
    """
    every = entry_points(torch_import.TORCH_GROUP)
    return [e for e in every if (e.name, e.distribution) != torch_import.OWN_ENTRY_POINT]


def unclaimed(others: tuple[Backend, ...]) -> list[Provenance]:
    """Return the packages that torch's autoload imports and that no plugin among `others` declares."""
    return [e for e in announced() if not _claimants(e, others)]


def _claimants(entry_point: Provenance, others: tuple[Backend, ...]) -> list[str]:
    """The backends through the package that the entry point names."""
    top = entry_point.module.partition(".")[0]
    return [b.name for b in others if top in [m.partition(".")[0] for m in b.vendor_imports]]


def impersonator(backend: Backend) -> str:
    """Return the package that has taken over the backend's torch namespace; empty if none has.

    torch_supa, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration` take over torch.cuda,
    which then reports a device that is not CUDA's. A package that takes it over below Python is recognised by
    its name only.
    """
    other = taken_over_by(backend)
    if other or backend.vendor_imports != ("torch",):
        return other
    return torch_import.namespace_taken_by(backend.device_type, ("torch", *backend.in_torch.wrapped_by))


def taken_over_by(backend: Backend) -> str:
    """Return the first imported package that `Backend.in_torch.taken_over_by` names; empty if there
    is none.
    """
    return next((name for name in backend.in_torch.taken_over_by if name in sys.modules), "")


# --- What is built in, in the place of a plugin's hooks ------------------------------------------------

_NONE = "torch reports no accelerator"
_UNANNOUNCED = " and no package announces one to torch"


def probe(backend: Backend, others: tuple[Backend, ...]) -> Outcome | None:
    """Probe without importing torch or a vendor's package, which is enough for the CPU; else maybe `None`."""
    if backend.name == CPU.name:
        return Outcome(Status.USABLE)  # wherever torch is installed, and that was checked before
    if unclaimed(others) or os.environ.get(torch_import.IMPORTED):
        return None
    if sys.modules.get("torch") is not None:
        return Outcome(Status.NO_DEVICE, _NONE) if _torchs_device() is None else None
    build = torch_import.torch_build()
    kinds = {"cuda": build and (build.cuda or build.hip), "xpu": build and build.xpu}
    there = [*filter(kinds.get, kinds), *(["mps"] if sys.platform == "darwin" else [])]
    if not {other.device_type for other in others}.issuperset(there):
        return None
    if there:
        return Outcome(Status.STANDS_ASIDE, f"an installed plugin claims {', '.join(there)}")
    claims = ", ".join(f"{e.distribution}: {_claimants(e, others)[0]}" for e in announced())
    why = f", and a plugin claims what announces one to torch ({claims})" if claims else _UNANNOUNCED
    return Outcome(Status.NO_DEVICE, f"{build or 'torch'} has no accelerator{why}")


def require_unclaimed(backend: Backend, others: tuple[Backend, ...]) -> None:
    """Load what nobody claims and ask torch what it has; nothing for the CPU. Raises `DeclinedError`."""
    if backend.name == CPU.name:
        return
    if _torchs_device() is None:
        _load_unclaimed(others)
    if (device := _torchs_device()) is None:
        raise errors.DeclinedError(_NONE)
    if owner := next((other for other in others if other.device_type == device.type), None):
        reason = f"torch's accelerator is {device.type}, which {owner.name} claims"
        raise errors.DeclinedError(reason, stands_aside=True)


def uncounted(device_type: str, others: tuple[Backend, ...]) -> Outcome:
    """`no_device` for what a package that no plugin claims registers with torch."""
    who = " or ".join(map(str, unclaimed(others))) or "a package"
    hint = "run the vendor's own tool: it tells whether the driver sees the device"
    return no_device(errors.clean(f"{who} registers {device_type!r} with torch, and counts no device"), hint)


def loads_unclaimed(backend: Backend, others: tuple[Backend, ...]) -> bool:
    """Whether building the accelerator runs code of packages that no plugin claims.

    torch's autoload would run it wherever it is installed; here a child process tries it first.
    """
    is_asked = backend.name == GENERIC.name and bool(unclaimed(others))
    return is_asked and ("torch" not in sys.modules or _torchs_device() is None)


def _torchs_device() -> Any:
    """The device of `torch.accelerator`, if it is here."""
    from accel_core.accelerators.devices import torchs_device  # here, as most children need no accelerator

    return torchs_device(torch_import.import_torch())


def _load_unclaimed(others: tuple[Backend, ...]) -> None:
    """Run torch's autoload for unclaimed packages, one at a time.

    torch itself would fail at the first broken one; the last failure is raised when none worked. It names
    the distribution, which breaks every `import torch` of this environment.
    """
    failure: errors.BackendUnavailableError | None = None
    for package in unclaimed(others):
        announce(f"importing {package.value} ({package})")
        try:
            package.load()()
            return
        except errors.CAUGHT as error:  # one vendor's failure leaves the next one its turn
            errors.raise_if_users(error)
            spoiler = _failing(package, error)
            failure = errors.BackendUnavailableError(spoiler.reason, hint=spoiler.hint)
            failure.__cause__ = error
    if failure is not None:
        raise failure


# --- What torch's autoload spoils ----------------------------------------------------------------------


class Spoiler(NamedTuple):
    """Effect of an installed package on `import torch`, as a clause that names it, and the next step."""

    reason: str
    hint: str
    #: Type and message of the error, which end the reason; empty where there was none.
    cause: str = ""
    #: Whether it was seen; else nothing came in time.
    known: bool = True

    def beside(self, verdicts: Sequence[Verdict]) -> str:
        """The same in words, beside verdicts: a cause that one of them has too is read there."""
        same = next((v for v in verdicts if v.cause and v.cause == self.cause), None)
        if same is None:
            return str(self)
        # A verdict that has a remedy says it, unless that is a report to somebody else.
        hint = self.hint if same.hint[:6] in ("", "report") else self.hint.partition(": ")[0]
        return f"{self.reason.removesuffix(f': {self.cause}')}, for the same reason as {same.name}. {hint}"

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"


def _failing(package: Provenance, error: BaseException | None, ending: str = "") -> Spoiler:
    """The package fails with `error`, or its process had that `ending`."""
    how = torch_import.cause_and_step(error)[0] if error else f"its process {ending}"
    at = f"{torch_import.TORCH_GROUP}: {package.name} = {package.value}"
    reason = errors.clean(f"{package} fails when torch loads it ({at}): {how}")
    cause = errors.clean(errors.root_cause(error)) if error else ""
    return Spoiler(reason, _remedy(package, "fails with"), cause)


def _taking(package: Provenance, what: str) -> Spoiler:
    loaded = f"{package}, which torch loads ({package.value}),"
    return Spoiler(errors.clean(f"{loaded} {what}"), _remedy(package, "loads"))


def _remedy(package: Provenance, does: str) -> str:
    step = f"pip uninstall {package.distribution}, or set {torch_import.AUTOLOAD}=0"
    return f"`import torch` {does} it: {step}"


def spoilers(chosen: Backend | None, timeout: float) -> tuple[Spoiler, ...]:
    """Return the packages that break `import torch`, or take torch's slot or namespace from `chosen`.

    The result is empty if torch's autoload is off, if this process has imported torch with autoload on, or if
    torch would load only the chosen backend's own package. A child process imports torch and the packages,
    within `timeout` seconds; if a package crashes it, another child continues without that package.
    """
    packages = announced()
    own = [name.partition(".")[0] for name in chosen.vendor_imports] if chosen else []
    foreign = [package for package in packages if package.module.partition(".")[0] not in own]
    if not foreign or ("torch" in sys.modules and not torch_import.imported_by_us()):
        return ()
    # What has failed here may have switched it off since, as torch_npu does.
    if not torch_import.autoload_is_on() and not torch_import.failed_before():
        return ()
    from accel_core._support import child  # here, as in most environments there is nothing to try

    found: dict[Provenance, Spoiler] = {}
    while left := [package for package in packages if package not in found]:
        job: dict[str, object] = {"packages": left, "chosen": encode_backend(chosen) if chosen else None}
        try:
            report = child.run(try_in_child, job, timeout)
        except OSError:  # no process is to be had, and nothing is known
            return ()
        if report.answer is not None:
            told: Any = report.answer["spoilers"]
            found |= {left[index]: Spoiler(*spoiler) for index, spoiler in told}
            break
        package = next((package for package in left if report.stage == _step(package)), None)
        if package is None:  # it did not come to the packages, so that they are not to blame
            break
        found[package] = _failing(package, None, report.ending)
        if report.timed_out:  # which says nothing of the package
            what = f"whether torch can load {package} is not known: it {report.ending}"
            found[package] = Spoiler(
                what, f"raise ACCEL_PROBE_TIMEOUT, or set {torch_import.AUTOLOAD}=0", known=False
            )
    # What fails because another package came first is not to be uninstalled for it.
    blamed = [package for package in foreign if package in found] or found
    return tuple(found[package] for package in packages if package in blamed)


def _step(package: Provenance) -> str:
    return f"importing {package.module}"


def try_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load each package as torch does; what is wrong, by the number of the package."""
    stage("import of torch")
    torch = torch_import.import_torch()
    chosen = decode_backend(job["chosen"]) if job["chosen"] else None
    wrong: dict[int, Spoiler] = {}
    slot = torch._C._get_privateuse1_backend_name()
    for index, package in enumerate(Provenance(*fields) for fields in job["packages"]):
        stage(_step(package))
        try:
            package.load()()  # as torch calls it, whatever it is
        except errors.CAUGHT as error:
            wrong[index] = _failing(package, error)
        before, slot = slot, torch._C._get_privateuse1_backend_name()
        if chosen is None:
            continue
        if chosen.in_torch.private_use1 and slot not in (before, chosen.device_type):
            wrong[index] = _taking(package, f"takes torch's one PrivateUse1 slot, which {chosen.name} needs")
        elif other := impersonator(chosen):
            wrong[index] = _taking(package, f"puts {other} in the place of torch.{chosen.device_type}")
            break  # all others would be blamed for it
    return {"spoilers": list(wrong.items())}
