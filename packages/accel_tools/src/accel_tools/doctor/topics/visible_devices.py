"""The variables that choose which devices a process sees, mapped to physical and logical device numbers.

It reports what a vendor ignores silently: ids that do not exist, entries that end a list, a variable that
another one overrides.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from accel_core import Backend, Candidate, Status, Verdict, torch_build
from accel_core.toolkit import devices, host, visible_devices
from accel_tools.doctor.records import Finding, Level, Topic, Visit
from accel_tools.doctor.visibility import Step, Visibility, rewritten, visibility

__all__ = ["TOPIC", "origin_of_variable"]

#: Grammars whose indices count the numbered device nodes. Of others a card has several devices (a Tecorigin
#: card four), or the nodes are other makers' too.
_ONE_NODE_EACH = ("cuda", "ascending", "mlu")

_GPUS = "/proc/driver/nvidia/gpus"

#: No process has more above it; also ends a walk over files that lie.
_MOST_ANCESTORS = 64


def _examine(visit: Visit) -> Iterator[Finding]:
    limited = False
    looked_at: dict[str, str] = {}
    for candidate in visit.declared():
        backend = candidate.backend
        names = (*backend.visibility.filters, *backend.visibility.variables)
        if not names:
            continue
        known = looked_at.get(candidate.name, "").split(", ")
        looked_at[candidate.name] = ", ".join(filter(None, dict.fromkeys([*known, *names])))
        if not any(name in visit.environ for name in names):
            continue
        limited = True
        yield from _of(candidate, visit)
    if not limited:
        yield Finding(
            Level.OK, "visible-devices.unset", "no variable limits which devices are seen", facts=looked_at
        )


def _of(candidate: Candidate, visit: Visit) -> Iterator[Finding]:
    backend = candidate.backend
    found = next((v for v in visit.survey().verdicts if v.is_about(candidate)), None)
    if (reason := _without_effect(backend, found)) and found is not None:
        names = (*backend.visibility.filters, *backend.visibility.variables)
        facts = {name: repr(visit.environ[name]) for name in names if name in visit.environ}
        yield Finding(
            Level.OK, "visible-devices.no-effect", f"{', '.join(facts)} changes nothing: {reason}",
            about=candidate.name, facts=facts,
        )  # fmt: skip
        return
    count = _count(backend)
    sees = visibility(backend, visit.environ, count, _uuids(backend))
    facts = _table(backend, sees, count, found)
    faults = list(_faults(candidate, sees, count, found, facts | _origins(sees)))
    yield from faults
    if not faults:
        variables = " with ".join(f"{step.variable}={step.value!r}" for step in sees.steps)
        number = "every device" if sees.devices is None else f"{len(sees.devices)} of {count or '?'} devices"
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
        and backend.in_torch.builds
        and not any(getattr(build, name) for name in backend.in_torch.builds)
    ):
        return f"{build} does not drive such devices"
    if found is None or found.evidence or found.usable:
        return ""
    if found.status is Status.NOT_INSTALLED or found.absent:
        return found.reason
    return ""


def _count(backend: Backend) -> int | None:
    """How many devices there are, by their numbered nodes; `None` where these do not tell."""
    if backend.visibility.grammar not in _ONE_NODE_EACH:
        return None
    nodes = devices.device_nodes(backend.hardware.nodes)
    return len(nodes) if nodes and all(node[-1:].isdigit() for node in nodes) else None


def _uuids(backend: Backend, root: str = "/") -> list[str]:
    """The UUIDs of the GPUs that NVIDIA's driver has; none where it is another's, or tells none.

    /proc/driver/nvidia/gpus/*/information, as NVIDIA's driver README has it.
    """
    if "cuda" not in backend.in_torch.builds:
        return []
    files = (f"{_GPUS}/{name}/information" for name in sorted(host.names_in(_GPUS, root)))
    lines = (line.partition(":") for file in files for line in host.read_text(file, root).splitlines())
    return [value.strip() for key, _, value in lines if key.strip() == "GPU UUID"]


def _table(backend: Backend, sees: Visibility, count: int | None, found: Verdict | None) -> dict[str, str]:
    """Each variable, then each physical device with its logical number."""
    facts = {step.variable: repr(step.value) for step in sees.steps}
    if sees.devices is not None:
        physical = range(count) if count is not None else ()
        shown = {f"physical {item}": f"{backend.device_type}:{at}" for item, at in sees.logical.items()}
        facts |= {f"physical {item}": "not seen" for item in physical} | shown
    if found is not None and found.devices is not None:
        facts["devices that the vendor counts"] = str(found.devices)
    return facts


def _origins(sees: Visibility) -> dict[str, str]:
    """Which process above this one brought each variable; a scheduler's worker often does."""
    told = ((step.variable, origin_of_variable(step.variable, step.value)) for step in sees.steps)
    return {f"{name} comes from": origin for name, origin in told if origin}


def _faults(
    candidate: Candidate,
    sees: Visibility,
    count: int | None,
    found: Verdict | None,
    facts: Mapping[str, str],
) -> Iterator[Finding]:
    grammar, about = candidate.backend.visibility.grammar, candidate.name
    if sees.devices == ():
        yield _nothing(sees.steps, found, about, facts, count)
        return
    left = count
    for step in sees.steps:
        said = f"{step.variable}={step.value!r}"
        better = rewritten(grammar, step.value, left)
        write = f"export {step.variable}={shlex.quote(better)}" if better else f"unset {step.variable}"
        if step.malformed:
            level = Level.WARNING if found is not None and found.usable else Level.ERROR
            what = f"{said} is not valid: {step.malformed}"
            yield Finding(level, "visible-devices.malformed", what, write, about, facts)
        elif step.overruled_by:
            what = f"{said} is ignored, because {step.overruled_by} is set too"
            yield Finding(
                Level.WARNING, "visible-devices.overruled", what, f"unset {step.variable}", about, facts
            )
        elif step.lost:
            what = f"{said}: {step.lost}"
            yield Finding(Level.WARNING, "visible-devices.dropped", what, write, about, facts)
        left = None  # the next one counts among what this one left
    if any(step.lost or step.malformed for step in sees.steps):
        return
    if sees.devices and found is not None and found.devices is not None and found.devices < len(sees.devices):
        yield _fewer(sees, found.devices, candidate, facts)


def _nothing(
    steps: tuple[Step, ...], found: Verdict | None, about: str, facts: Mapping[str, str], count: int | None
) -> Finding:
    step = next((step for step in steps if step.lost), steps[-1])
    what = f"{step.variable}={step.value!r} hides every device" + (f": {step.lost}" if step.lost else "")
    # The verdict may know that it was a scheduler who wrote it.
    hint = found.hint if found is not None and found.status is Status.NO_DEVICE else ""
    if count:
        hint = visible_devices.choices(step.variable, count)
    hint = hint or f"unset {step.variable}, or name in it the devices to use"
    return Finding(Level.WARNING, "visible-devices.none", what, hint, about, facts)


def _fewer(sees: Visibility, seen: int, candidate: Candidate, facts: Mapping[str, str]) -> Finding:
    """The vendor counts fewer than the variables name, and nodes did not tell which are missing."""
    assert sees.devices is not None
    variable, value = sees.steps[0][:2]
    kept = ",".join(map(str, sees.devices[:seen]))
    grammar = candidate.backend.visibility.grammar
    # Where an id that is not there ends the list, the first that is not seen is that one.
    which = (
        f": the first one that does not exist is {sees.devices[seen]}" if grammar in _ONE_NODE_EACH else ""
    )
    asked = len(sees.devices)
    if not seen:  # an empty list would hide what is there
        which = ""
    named = f"{asked} device{'s' * (asked > 1)}"
    return Finding(
        Level.WARNING,
        "visible-devices.fewer",
        f"{variable}={value!r} names {named}, but the vendor sees {seen or 'none'}{which}",
        f"export {variable}={shlex.quote(kept)}" if which and len(sees.steps) == 1 else f"unset {variable}",
        candidate.name,
        facts,
    )


def _numbering(candidate: Candidate, environ: Mapping[str, str]) -> Iterator[Finding]:
    """CUDA numbers the fastest GPU first, and nvidia-smi by the bus, unless it is told to do so too.

    https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA Environment Variables", CUDA_DEVICE_ORDER.
    """
    backend = candidate.backend
    if "cuda" not in backend.in_torch.builds or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    gpus = [d for d in devices.pci_devices() if devices.matches_pci(d, backend.hardware.pci_ids)]
    if len({gpu.device for gpu in gpus}) > 1 and environ.get("CUDA_VISIBLE_DEVICES", "")[:1].isdigit():
        yield Finding(
            Level.WARNING,
            "visible-devices.order",
            "the GPUs differ: CUDA numbers them by speed, nvidia-smi by their position on the bus",
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            candidate.name,
        )


# --- Where a variable comes from ------------------------------------------------------------------------


def origin_of_variable(name: str, value: str, root: str = "/", pid: int | None = None) -> str:
    """Return the first process with the variable: `"process 42 (raylet), started by process 1 (bash)"`.

    /proc shows the variables with which a process was started, not those that it has set since. So the parent
    of the first process started with the variable has set it. Returns an empty string if /proc shows nothing,
    or if this process was not started with that value. `pid`: the process to examine instead of this one.
    """
    at = os.getpid() if pid is None else pid
    first = above = 0
    for _ in range(_MOST_ANCESTORS):
        if f"{name}={value}" not in host.read_text(f"/proc/{at}/environ", root).split("\0"):
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
    for line in host.read_text(f"/proc/{pid}/status", root).splitlines():
        if line.startswith("PPid:"):
            return host.parse_number(line.partition(":")[2].strip()) or 0
    return 0


def _command(pid: int, root: str) -> str:
    return host.read_text(f"/proc/{pid}/comm", root) or "not known"


TOPIC = Topic("visible-devices", "Visible devices", _examine)
