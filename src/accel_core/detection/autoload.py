"""Effects of torch's autoload: packages that make `import torch` fail, or take the device away.

torch imports every package that announces itself in its group, wherever it is installed and whatever is
chosen. If accel_core is the first to import torch, it leaves that out; a program that imports torch first,
and every rank that a launcher starts, does not. So a child process does what torch does, a package at a time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core._support.torch_import import (
    AUTOLOAD,
    autoload_is_on,
    cause_and_step,
    failed_before,
    import_torch,
    imported_by_us,
)
from accel_core.backend import Backend
from accel_core.detection.builtin import announced, fails_in_torch, remedies
from accel_core.detection.facts import impersonator
from accel_core.detection.isolated import decode_backend, encode_backend
from accel_core.detection.plugins import EntryPoint
from accel_core.errors import CAUGHT, clean

if TYPE_CHECKING:
    from accel_core._support.child import ChildReport

__all__ = ["Spoiler", "spoilers", "try_in_child"]


class Spoiler(NamedTuple):
    """Effect of an installed package on `import torch`, as a clause that names it, and the next step."""

    reason: str
    hint: str
    #: Whether it was seen; else nothing came in time.
    known: bool = True

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"


def spoilers(chosen: Backend | None, timeout: float) -> tuple[Spoiler, ...]:
    """The packages that break `import torch`, or take torch's slot or namespace from `chosen`.

    None where torch's autoload is off, where this process has imported torch with it, and where nobody's
    package but the chosen backend's own would be loaded. `timeout`: seconds for the child process, which
    imports torch and the packages.
    """
    packages = announced()
    own = [name.partition(".")[0] for name in chosen.vendor_imports] if chosen else []
    foreign = [package.module.partition(".")[0] not in own for package in packages]
    if not any(foreign) or ("torch" in sys.modules and not imported_by_us()):
        return ()
    # What has failed here may have switched it off since, as torch_npu does.
    if not autoload_is_on() and not failed_before():
        return ()
    from accel_core._support import child  # here, as in most environments there is nothing to try

    job: dict[str, object] = {"packages": [tuple(package) for package in packages]}
    if chosen is not None:
        job["chosen"] = encode_backend(chosen)
    try:
        report = child.run(try_in_child, job, timeout)
    except OSError:  # no process is to be had, and nothing is known
        return ()
    found = _read(report, packages)
    # What fails because another package came first is not to be uninstalled for it.
    blamed = [index for index in found if foreign[index]] or list(found)
    return tuple(found[index] for index in sorted(blamed))


def _read(report: ChildReport, packages: list[EntryPoint]) -> dict[int, Spoiler]:
    """Return the child's findings, by the number of the package; if it crashed, at which package."""
    told: Any = report.answer
    if told is not None:
        return _spoilers(told)
    if not report.stage.startswith("["):  # it did not come to the packages, so that they are not to blame
        return {}
    _, at, wrong = json.loads(report.stage)
    found, package = _spoilers(wrong), packages[at]
    failed = Spoiler(fails_in_torch(package, f"its process {report.ending}"), remedies(package))
    if report.timed_out:  # which says nothing of the package
        who = f"{package.distribution} {package.version}"
        what = f"whether torch can load {who} is not known: it {report.ending}"
        failed = Spoiler(what, f"raise ACCEL_PROBE_TIMEOUT, or set {AUTOLOAD}=0", known=False)
    return {**found, at: failed._replace(reason=clean(failed.reason), hint=clean(failed.hint))}


def _spoilers(told: dict[str, list[str]]) -> dict[int, Spoiler]:
    return {int(index): Spoiler(clean(reason), clean(hint)) for index, (reason, hint, _) in told.items()}


def try_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[int, Spoiler]:
    """In the child: load each package as torch does; what is wrong, by the number of the package."""
    stage("import of torch")
    torch = import_torch()
    chosen = decode_backend(job["chosen"]) if "chosen" in job else None
    wrong: dict[int, Spoiler] = {}
    slot = torch._C._get_privateuse1_backend_name()
    for index, fields in enumerate(job["packages"]):
        package = EntryPoint(*fields)
        stage(json.dumps([f"importing {package.module}", index, wrong]))
        try:
            package.load()()  # as torch calls it, whatever it is
        except CAUGHT as error:
            wrong[index] = Spoiler(fails_in_torch(package, cause_and_step(error)[0]), remedies(package))
        before, slot = slot, torch._C._get_privateuse1_backend_name()
        if chosen is None:
            continue
        loaded = f"{package.distribution} {package.version}, which torch loads ({package.value}),"
        if chosen.private_use1 and slot not in (before, chosen.device_type):
            takes = f"{loaded} takes torch's one PrivateUse1 slot, which {chosen.name} needs"
            wrong[index] = Spoiler(takes, remedies(package, "loads"))
        elif other := impersonator(chosen):
            puts = f"{loaded} puts {other} in the place of torch.{chosen.device_type}"
            wrong[index] = Spoiler(puts, remedies(package, "loads"))
            break  # all others would be blamed for it
    return wrong
