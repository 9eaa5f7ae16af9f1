"""Plan for a machine: choose its hardware, and the source that knows the packages."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from accel_core import hardware
from accel_core.hardware import vendors
from accel_core.isolation import IsolatedLoader
from accel_core.plugins import find_backends, installed_names
from accel_core.settings import Pin
from accel_core.settings import read as read_settings
from accel_tools.setup.builds import OLDEST_GLIBC
from accel_tools.setup.by_build import PYTORCH, by_build
from accel_tools.setup.by_table import by_table
from accel_tools.setup.hardware import UNNAMED, Hardware, Present, seen
from accel_tools.setup.machines import ALPINE, Machine, unknown_devices
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import Recipe, recipes

__all__ = ["names", "planned", "toolkits"]

#: AMD's GPUs, which the backend `cuda` drives too.
_ROCM = "rocm"


def names() -> tuple[str, ...]:
    """Return the names that can be requested: the backends, and `rocm`."""
    tables, _ = recipes()
    declared = {
        name for name in installed_names() if name != "generic" and "." not in name
    }
    return tuple(sorted({"cpu", _ROCM, *vendors.FIRST_PARTY, *tables, *declared}))


def toolkits() -> dict[str, str]:
    """Return the toolkit whose version decides, by backend: CUDA for `cuda`."""
    tables, _ = recipes()
    own = {
        name: recipe.toolkit.name for name, recipe in tables.items() if recipe.toolkit
    }
    return {"cuda": "CUDA", _ROCM: "ROCm", **own}


def planned(
    machine: Machine,
    name: str = "",
    torch: str = "",
    *,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """Return a plan for the best hardware of the machine, or for `name`, present or not.

    `torch`: the required version; empty for the newest that fits. `driver` and `toolkit`: versions of
    NVIDIA's driver and of the vendor's toolkit, used instead of those on the machine.
    """
    hardware = seen(machine)
    tables, problems = recipes()
    here = _wanted(hardware, name, is_given=bool(driver or toolkit))
    if name == "xpu" and hardware.intel == UNNAMED:
        hardware = hardware._replace(intel="")
    plan = _for(
        _start(machine, hardware, here, driver, toolkit), machine, tables, torch
    )
    card = next((p for p in hardware.present if p.label == "Intel discrete GPU"), None)
    # PyTorch has no wheels for AMD's GPU, which is a part of the processor where a card is there too.
    is_second = bool(plan.unknown or plan.torch_index)
    if is_second and not name and plan.target == "AMD GPU" and hardware.gfx and card:
        here = card
        plan = _for(_start(machine, hardware, card), machine, tables, torch)
    others = [p for p in hardware.present if here is not None and p is not here]
    notes = (*plan.notes, *_of_others(plan, others), *_of_unknown(machine), *problems)
    return plan._replace(notes=notes)


def _wanted(hardware: Hardware, name: str, *, is_given: bool) -> Present | None:
    """The hardware that the plan is for; `None` for the processor. It has no evidence if it is not here."""
    if name == "cpu":
        return None
    if (
        "Jetson" in hardware.kind and name in ("", "cuda") and not is_given
    ):  # its GPU is on no bus
        return Present("NVIDIA GPU", "cuda", hardware.kind)
    backend = "cuda" if name == _ROCM else name
    fitting = [
        found for found in hardware.present if not name or found.backend == backend
    ]
    label = (
        "AMD GPU"
        if name == _ROCM
        else next((v.label for v in vendors.VENDORS if v.backend == name), name)
    )
    if name == _ROCM or (
        name == "cuda" and is_given
    ):  # by its label, as `cuda` has two makers
        fitting = [found for found in fitting if found.label == label]
    if fitting or not name:
        return fitting[0] if fitting else None
    return Present(label, backend, "")


def _of_others(plan: Plan, others: Sequence[Present]) -> tuple[str, ...]:
    labels = list(dict.fromkeys(o.label for o in others if o.label != plan.target))
    if not labels:
        return ()
    return (
        f"also here: {', '.join(labels)}. An environment holds one build of torch, so each needs its own.",
    )


def _of_unknown(machine: Machine) -> tuple[str, ...]:
    found = ", ".join(map(str, unknown_devices(machine)))
    return (
        (
            f"here is what may be an accelerator, for which no plugin is known: PCI {found}",
        )
        if found
        else ()
    )


def _for(plan: Plan, machine: Machine, tables: dict[str, Recipe], torch: str) -> Plan:
    if unfit := _unfit(machine, torch):
        return plan._replace(unknown=unfit, url=PYTORCH)
    if plan.backend in tables and plan.target not in ("NVIDIA GPU", "AMD GPU"):
        return by_table(plan, tables[plan.backend], machine, torch)
    if plan.backend not in ("cpu", *vendors.FIRST_PARTY):
        return _by_declaration(plan)
    return by_build(plan, machine, torch)


def _by_declaration(plan: Plan) -> Plan:
    """A plugin without a table: what its declaration says, in its words."""
    settings = read_settings()
    found = find_backends(
        Pin(plan.backend), settings, IsolatedLoader(settings.probe_timeout)
    )
    backend = next((c.backend for c in found if c.backend is not None), None)
    hint, url = (backend.install_hint, backend.url) if backend else ("", "")
    what = f"the plugin of {plan.target} has no table that says which packages it needs"
    notes = (f"Its plugin says: {hint}",) if hint else ()
    return plan._replace(unknown=what, url=url or PYTORCH, notes=notes)


def _start(
    machine: Machine,
    hardware: Hardware,
    here: Present | None,
    driver: str = "",
    toolkit: str = "",
) -> Plan:
    """A plan's beginning: for what it is, and what of it was given and is not found on the machine."""
    target, backend = (here.label, here.backend) if here else ("CPU", "cpu")
    given = [target] if here and not here.evidence else []
    given += (
        [f"NVIDIA's driver {driver}"] if driver not in ("", hardware.nvidia) else []
    )
    given += (
        [f"{toolkits()[_ROCM if target == 'AMD GPU' else backend]} {toolkit}"]
        if toolkit
        else []
    )
    return Plan(
        hardware,
        target,
        backend,
        machine.python,
        driver=driver or hardware.nvidia,
        toolkit=toolkit,
        given=tuple(given),
    )


def _unfit(machine: Machine, torch: str) -> str:
    """Why no wheel of torch fits the system, whichever its hardware; empty where one may."""
    if machine.system == "darwin" and machine.architecture != "arm64":
        return (
            "PyTorch has no wheels for Macs with Intel processors since torch 2.3; Apple silicon needs a "
            "Python built for arm64"
        )
    if hardware.path_exists(ALPINE, machine.root):
        return "this is Alpine Linux, whose C library is musl, and PyTorch's wheels need glibc"
    is_old = machine.glibc and Version(machine.glibc) < Version(OLDEST_GLIBC)
    if is_old and (not torch or Version(torch) >= Version("2.7")):
        return f"PyTorch's wheels since torch 2.7 need glibc {OLDEST_GLIBC}; this system has {machine.glibc}"
    return ""
