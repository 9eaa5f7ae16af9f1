"""The variables that choose which devices a process sees, mapped to physical and logical device numbers.

It reports what a vendor ignores silently: ids that do not exist, entries that end a list, a variable that
another one overrides.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from accel_core import Backend, Status, Verdict, hardware, torch_build
from accel_core.current import late_changes
from accel_core.hardware import bus, visible_devices
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC", "origin_of_variable"]

#: No process has more above it; also ends a walk over files that lie.
_MOST_ANCESTORS = 64


def _examine(visit: Visit) -> Iterator[Finding]:
    for change in late_changes():  # by the program that examines itself
        code = "visible-devices.changed"
        yield Finding(Level.WARNING, code, change.what, change.step)
    limited = False
    looked_at: dict[str, str] = {}
    for candidate in visit.declared():
        backend = candidate.declaration
        names = (*backend.visibility.filters, *backend.visibility.variables)
        if not names:
            continue
        known = looked_at.get(candidate.name, "").split(", ")
        looked_at[candidate.name] = ", ".join(
            filter(None, dict.fromkeys([*known, *names]))
        )
        if not any(name in visit.environ for name in names):
            continue
        limited = True
        yield from _of(candidate, visit)
    if not limited:
        yield Finding(
            Level.OK,
            "visible-devices.unset",
            "no variable limits which devices are seen",
            facts=looked_at,
        )


def _of(candidate: Verdict, visit: Visit) -> Iterator[Finding]:
    backend = candidate.declaration
    found = next((v for v in visit.survey().verdicts if v.is_about(candidate)), None)
    if (reason := _without_effect(backend, found)) and found is not None:
        names = (*backend.visibility.filters, *backend.visibility.variables)
        facts = {
            name: repr(visit.environ[name]) for name in names if name in visit.environ
        }
        yield Finding(
            Level.OK, "visible-devices.no-effect", f"{', '.join(facts)} changes nothing: {reason}",
            about=candidate.name, facts=facts,
        )  # fmt: skip
        return
    devices = visible_devices.inventory(backend)
    sees = visible_devices.masks(backend, visit.environ, devices)
    count = devices.count
    facts = _table(backend, sees, count, found)
    faults = list(_faults(candidate, sees, found, facts | _origins(sees)))
    yield from faults
    if not faults:
        variables = " with ".join(
            f"{effect.variable}={effect.value!r}" for effect in sees.effects
        )
        number = (
            "every device"
            if sees.devices is None
            else f"{len(sees.devices)} of {count or '?'} devices"
        )
        yield Finding(
            Level.OK, "visible-devices.mapped", f"{variables} shows {number.replace(' of ?', '')}",
            about=candidate.name, facts=facts,
        )  # fmt: skip
    yield from _numbering(candidate, visit.environ)


def _without_effect(backend: Backend, found: Verdict | None) -> str:
    """Why the variables mean nothing here, as a clause; empty where they do."""
    build = torch_build()
    if (
        build
        and backend.torch_integration.builds
        and not any(getattr(build, name) for name in backend.torch_integration.builds)
    ):
        return f"{build} does not drive such devices"
    if found is None or found.evidence or found.usable:
        return ""
    if found.status is Status.NOT_INSTALLED or found.absent:
        return found.reason
    return ""


def _table(
    backend: Backend,
    sees: visible_devices.Masks,
    count: int | None,
    found: Verdict | None,
) -> dict[str, str]:
    """Each variable, then each physical device with its logical number."""
    facts = {effect.variable: repr(effect.value) for effect in sees.effects}
    if sees.devices is not None:
        physical = range(count) if count is not None else ()
        shown = {
            f"physical {item}": f"{backend.device_type}:{at}"
            for at, item in enumerate(sees.devices)
        }
        facts |= {f"physical {item}": "not seen" for item in physical} | shown
    if found is not None and found.devices is not None:
        facts["devices that the vendor counts"] = str(found.devices)
    return facts


def _origins(sees: visible_devices.Masks) -> dict[str, str]:
    """Which process above this one brought each variable; a scheduler's worker often does."""
    origins = {
        e.variable: origin_of_variable(e.variable, e.value) for e in sees.effects
    }
    return {f"{name} comes from": origin for name, origin in origins.items() if origin}


def _faults(
    candidate: Verdict,
    sees: visible_devices.Masks,
    found: Verdict | None,
    facts: Mapping[str, str],
) -> Iterator[Finding]:
    about = candidate.name
    if sees.devices == ():
        # The verdict may know that it was a scheduler who wrote it.
        told = found.hint if found is not None and "Slurm" in found.reason else ""
        yield Finding(
            Level.WARNING,
            "visible-devices.none",
            str(sees),
            told or sees.next_step,
            about,
            facts,
        )
        return
    for effect in sees.effects:
        write = f"unset {effect.variable}"
        if effect.suggestion:
            write = f"export {effect.variable}={shlex.quote(effect.suggestion)}"
        if effect.malformed:
            level = Level.WARNING if found is not None and found.usable else Level.ERROR
            yield Finding(
                level, "visible-devices.malformed", str(effect), write, about, facts
            )
        elif effect.overruled_by:
            what = f"{effect} is ignored, because {effect.overruled_by} is set too"
            yield Finding(
                Level.WARNING,
                "visible-devices.overruled",
                what,
                f"unset {effect.variable}",
                about,
                facts,
            )
        elif effect.ignored:
            yield Finding(
                Level.WARNING,
                "visible-devices.dropped",
                str(effect),
                write,
                about,
                facts,
            )


def _numbering(candidate: Verdict, environ: Mapping[str, str]) -> Iterator[Finding]:
    """CUDA numbers the fastest GPU first, and nvidia-smi by the bus, unless it is told to do so too.

    https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA Environment Variables", CUDA_DEVICE_ORDER.
    """
    backend = candidate.declaration
    if environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    own = backend.hardware.pci_ids if "NVIDIA" in backend.hardware.name else ()
    gpus = [d for d in bus.pci_devices() if bus.matches_pci(d, own)]
    if (
        len({gpu.device for gpu in gpus}) > 1
        and environ.get("CUDA_VISIBLE_DEVICES", "")[:1].isdigit()
    ):
        yield Finding(
            Level.WARNING,
            "visible-devices.order",
            "the GPUs differ: CUDA numbers them by speed, nvidia-smi by their position on the bus",
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            candidate.name,
        )


# --- Where a variable comes from ------------------------------------------------------------------------


def origin_of_variable(
    name: str, value: str, root: str = "/", pid: int | None = None
) -> str:
    """Return the first process with the variable: `"process 42 (raylet), started by process 1 (bash)"`.

    /proc shows the variables with which a process was started, not those that it has set since. So the parent
    of the first process started with the variable has set it. Returns an empty string if /proc shows nothing,
    or if this process was not started with that value. `pid`: the process to examine instead of this one.
    """
    at = os.getpid() if pid is None else pid
    first = above = 0
    for _ in range(_MOST_ANCESTORS):
        if f"{name}={value}" not in hardware.read_text(
            f"/proc/{at}/environ", root
        ).split("\0"):
            above = at
            break
        first, at = at, _parent(at, root)
        if at == 0:
            break
    if not first:
        return ""
    giver = f", started by process {above} ({_command(above, root)})" if above else ""
    return f"process {first} ({_command(first, root)}){giver}"


def _parent(pid: int, root: str) -> int:
    """Return the pid of the parent; 0 where there is none, or it is unknown."""
    for line in hardware.read_text(f"/proc/{pid}/status", root).splitlines():
        if line.startswith("PPid:"):
            return hardware.parse_number(line.partition(":")[2].strip()) or 0
    return 0


def _command(pid: int, root: str) -> str:
    return hardware.read_text(f"/proc/{pid}/comm", root) or "not known"


TOPIC = Topic("visible-devices", "Visible devices", _examine)
