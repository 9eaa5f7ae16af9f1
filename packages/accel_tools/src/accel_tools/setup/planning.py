"""A machine's plan: which of its hardware it is for, and who knows the packages."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from accel_core.toolkit import host, packages, vendors
from accel_tools.setup.builds import OLDEST_GLIBC
from accel_tools.setup.by_build import PYTORCH, by_build
from accel_tools.setup.by_table import by_table
from accel_tools.setup.hardware import UNNAMED, Hardware, Present, seen
from accel_tools.setup.machines import ALPINE, Machine, unknown_devices
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import Recipe, recipes

__all__ = ["names", "planned"]


def names() -> tuple[str, ...]:
    """The backends that can be asked for."""
    tables, _ = recipes()
    return tuple(sorted({"cpu", *vendors.FIRST_PARTY, *tables}))


def planned(machine: Machine, name: str = "", torch: str = "", python: str = "") -> Plan:
    """Plan for the best hardware of the machine, or for the backend `name`, present or not.

    `torch`: the version that it must be; empty for the newest that fits.
    """
    hardware = seen(machine)
    machine = machine._replace(python=python or machine.python)
    tables, problems = recipes()
    of_name = [p for p in hardware.present if not name or p.backend == name]
    here = of_name[0] if of_name else Present(_label(name), name, "") if name not in ("", "cpu") else None
    if "Jetson" in hardware.kind and name in ("", "cuda"):  # its GPU is on no bus
        here = Present("NVIDIA GPU", "cuda", hardware.kind)
    if name == "xpu" and hardware.intel == UNNAMED:
        hardware = hardware._replace(intel="")
    plan = _for(machine, hardware, here, tables, torch)
    card = next((p for p in of_name if p.label == "Intel discrete GPU"), None)
    if plan.unknown and not name and plan.target == "AMD GPU" and hardware.gfx and card:
        here, plan = card, _for(machine, hardware, card, tables, torch)  # AMD's is a part of the processor
    others = [p for p in hardware.present if here is not None and p is not here]
    if machine.is_here:
        plan = _without_our_installed(plan)
    notes = (*plan.notes, *_of_others(plan, others), *_of_unknown(machine), *problems)
    return plan._replace(notes=notes)


def _without_our_installed(plan: Plan) -> Plan:
    ours = {name for name in vendors.FIRST_PARTY.values() if packages.version(name)}
    return plan._replace(
        packages=tuple(package for package in plan.packages if package not in ours),
        parts=tuple(part for part in plan.parts if part.what not in ours),
    )


def _label(name: str) -> str:
    return next((v.label for v in vendors.VENDORS if v.backend == name), name)


def _of_others(plan: Plan, others: Sequence[Present]) -> tuple[str, ...]:
    labels = list(dict.fromkeys(o.label for o in others if o.label != plan.target))
    if not labels:
        return ()
    return (
        f"also here: {', '.join(labels)}. An environment holds one build of torch: use another for each.",
    )


def _of_unknown(machine: Machine) -> tuple[str, ...]:
    found = ", ".join(map(str, unknown_devices(machine)))
    return (
        (f"here is what may be an accelerator, for which no plugin is known: PCI {found}",) if found else ()
    )


def _for(
    machine: Machine, hardware: Hardware, here: Present | None, tables: dict[str, Recipe], torch: str
) -> Plan:
    target, backend = (here.label, here.backend) if here else ("CPU", "cpu")
    plan = Plan(hardware, target, backend, machine.python)
    if unfit := _unfit(machine, torch):
        return plan._replace(unknown=unfit, url=PYTORCH)
    if backend in tables and target not in ("NVIDIA GPU", "AMD GPU"):
        return by_table(plan, tables[backend], machine, torch)
    return by_build(plan, machine, torch)


def _unfit(machine: Machine, torch: str) -> str:
    """Why no wheel of torch fits the system, whichever its hardware; empty where one may."""
    if machine.system == "darwin" and machine.architecture != "arm64":
        return (
            "PyTorch has no wheels for Macs with Intel processors since torch 2.3; Apple silicon needs a "
            "Python built for arm64"
        )
    if host.path_exists(ALPINE, machine.root):
        return "this is Alpine Linux, whose C library is musl, and PyTorch's wheels need glibc"
    is_old = machine.glibc and Version(machine.glibc) < Version(OLDEST_GLIBC)
    if is_old and (not torch or Version(torch) >= Version("2.7")):
        return f"PyTorch's wheels since torch 2.7 need glibc {OLDEST_GLIBC}; this system has {machine.glibc}"
    return ""
