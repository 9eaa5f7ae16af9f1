"""Report the variables that limit the visible devices, and the logical number of each device.

The topic also reports values that vendors ignore silently: ids that do not exist, entries
that end a list, and variables that a different variable overrides.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from accel_core import Backend, Status, Verdict, hardware, torch_build
from accel_core.current import late_changes
from accel_core.hardware import bus, visible_devices
from accel_core.hardware.placement import detect_placement
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = ["TOPIC", "may_hide_devices", "origin_of_variable"]

#: The code of the finding on valid variables, and facts on devices that they show and hide.
_MAPPED = "visible-devices.mapped"
_PHYSICAL = "physical"
_NOT_VISIBLE = "not visible"

#: The maximum number of ancestors to examine, which ends the loop if /proc is inconsistent.
_MAX_ANCESTORS = 64


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    # A program that examines itself may have changed variables after its start.
    for note in late_changes():
        code = "visible-devices.changed"
        yield Finding(Level.WARNING, code, note.text, note.step)
    is_limited = False
    examined: dict[str, list[str]] = {}
    for candidate in context.declared():
        names = _variables(candidate.declaration)
        if names:
            examined.setdefault(candidate.name, []).extend(names)
        if any(name in context.environ for name in names):
            is_limited = True
            yield from _findings(candidate, context)
    if not is_limited:
        code = "visible-devices.unset"
        what = "no variable limits the visible devices"
        facts = {
            backend: ", ".join(dict.fromkeys(names))
            for backend, names in examined.items()
        }
        yield Finding(Level.OK, code, what, facts=facts)


def _variables(backend: Backend) -> tuple[str, ...]:
    return (*backend.visibility.filters, *backend.visibility.variables)


def _findings(candidate: Verdict, context: DiagnosticContext) -> Iterator[Finding]:
    """Yield findings on the problems of a backend's variables, or on the devices that are visible."""
    backend = candidate.declaration
    verdicts = context.survey().verdicts
    verdict = next((v for v in verdicts if v.is_about(candidate)), None)
    reason = _why_without_effect(backend, verdict)
    if reason and verdict is not None:
        yield _without_effect(candidate, context.environ, reason)
        return
    devices = visible_devices.inventory(backend)
    masks = visible_devices.masks(backend, context.environ, devices)
    facts = _mapping(backend, masks, devices.count, verdict)
    faults = list(_faults(candidate, masks, verdict, facts | _origins(masks)))
    yield from faults or [_mapped(candidate, masks, devices.count, facts)]
    yield from _numbering(candidate, context.environ)


def _why_without_effect(backend: Backend, verdict: Verdict | None) -> str:
    """Return why the variables have no effect, as a clause; empty if they have an effect."""
    build = torch_build()
    builds = backend.torch_integration.builds
    if build and builds and not any(getattr(build, name) for name in builds):
        return f"{build} does not drive such devices"
    if verdict is None or verdict.evidence or verdict.usable:
        return ""
    if verdict.status is Status.NOT_INSTALLED or verdict.absent:
        return verdict.reason
    return ""


def _without_effect(
    candidate: Verdict, environ: Mapping[str, str], reason: str
) -> Finding:
    facts = {}
    for name in _variables(candidate.declaration):
        if name in environ:
            facts[name] = repr(environ[name])
    what = f"{', '.join(facts)} has no effect: {reason}"
    code = "visible-devices.no-effect"
    return Finding(Level.OK, code, what, about=candidate.name, facts=facts)


def _mapping(
    backend: Backend,
    masks: visible_devices.Masks,
    count: int | None,
    verdict: Verdict | None,
) -> dict[str, str]:
    """Return the value of each variable, and the logical number of each physical device."""
    facts = {effect.variable: repr(effect.value) for effect in masks.effects}
    if masks.devices is not None:
        for index in range(count or 0):
            facts[f"{_PHYSICAL} {index}"] = _NOT_VISIBLE
        for index, device in enumerate(masks.devices):
            facts[f"{_PHYSICAL} {device}"] = f"{backend.device_type}:{index}"
    if verdict is not None and verdict.devices is not None:
        facts["devices that the vendor counts"] = str(verdict.devices)
    return facts


def _origins(masks: visible_devices.Masks) -> dict[str, str]:
    """Return the process that set each variable, which is often a scheduler's worker."""
    facts = {}
    for effect in masks.effects:
        origin = origin_of_variable(effect.variable, effect.value)
        if origin:
            facts[f"{effect.variable} comes from"] = origin
    return facts


def _mapped(
    candidate: Verdict,
    masks: visible_devices.Masks,
    count: int | None,
    facts: Mapping[str, str],
) -> Finding:
    """Return the finding on the number of devices that the variables make visible."""
    settings = [f"{effect.variable}={effect.value!r}" for effect in masks.effects]
    shown = "every device"
    if masks.devices is not None:
        of = f" of {count}" if count else ""
        plural = "" if (count or len(masks.devices)) == 1 else "s"
        shown = f"{len(masks.devices)}{of} device{plural}"
    what = f"{' with '.join(settings)} shows {shown}"
    for effect in masks.effects:
        if _is_set_since_start(effect.variable, effect.value):
            what += (
                f"; {effect.variable} was set after Python had started, as start-up "
                "files do: accel doctor --all --topic import-hooks lists them"
            )
    return Finding(Level.OK, _MAPPED, what, about=candidate.name, facts=facts)


def may_hide_devices(finding: Finding) -> bool:
    """Return whether the finding is about variables that hide devices, or may: the number is unknown."""
    if finding.code != _MAPPED:
        return False
    is_list = any(name.startswith(_PHYSICAL) for name in finding.facts)
    is_hidden = _NOT_VISIBLE in finding.facts.values()
    return is_hidden or (is_list and " of " not in finding.what)


def _is_set_since_start(name: str, value: str, root: str = "/") -> bool:
    """Return whether this process has set the variable itself, by /proc; False if unknown."""
    if os.environ.get(name) != value:
        return False
    environ = hardware.read_text("/proc/self/environ", root)
    return bool(environ) and f"{name}={value}" not in environ.split("\0")


def _faults(
    candidate: Verdict,
    masks: visible_devices.Masks,
    verdict: Verdict | None,
    facts: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield a finding if all devices are hidden, or otherwise on each variable with a wrong value."""
    about = candidate.name
    if masks.devices == ():
        code = "visible-devices.none"
        step = _step_if_hidden(masks, verdict)
        yield Finding(Level.WARNING, code, str(masks), step, about, facts)
        return
    is_usable = verdict is not None and verdict.usable
    for effect in masks.effects:
        finding = _fault(effect, is_usable=is_usable)
        if finding is not None:
            yield finding._replace(about=about, facts=facts)


def _step_if_hidden(masks: visible_devices.Masks, verdict: Verdict | None) -> str:
    """Return the step that makes devices visible; the verdict's step if Slurm has hidden the devices."""
    if verdict is None or verdict.backend is None or not verdict.hint:
        return masks.next_step
    if detect_placement().is_withheld_by_slurm(verdict.backend):
        return verdict.hint
    return masks.next_step


def _fault(effect: visible_devices.Effect, *, is_usable: bool) -> Finding | None:
    """Return the finding on a variable, or `None` if the variable's value is correct."""
    unset = f"unset {effect.variable}"
    correct = unset
    if effect.suggestion:
        correct = f"export {effect.variable}={shlex.quote(effect.suggestion)}"
    if effect.malformed:
        level = Level.WARNING if is_usable else Level.ERROR
        return Finding(level, "visible-devices.malformed", str(effect), correct)
    if effect.overruled_by:
        what = f"{effect} is ignored, because {effect.overruled_by} is set too"
        return Finding(Level.WARNING, "visible-devices.overruled", what, unset)
    if effect.ignored:
        code = "visible-devices.dropped"
        return Finding(Level.WARNING, code, str(effect), correct)
    return None


def _numbering(candidate: Verdict, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if the machine has different GPUs, which CUDA and nvidia-smi number differently.

    CUDA numbers the fastest GPU first; nvidia-smi numbers GPUs by their position on the bus:
    https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA Environment Variables",
    CUDA_DEVICE_ORDER.
    """
    backend = candidate.declaration
    is_by_index = environ.get("CUDA_VISIBLE_DEVICES", "")[:1].isdigit()
    is_by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not is_by_index or is_by_bus or "NVIDIA" not in backend.hardware.name:
        return
    models = set()
    for device in bus.pci_devices():
        if bus.matches_pci(device, backend.hardware.pci_ids):
            models.add(device.device)
    if len(models) > 1:
        what = (
            "the GPUs are of different models: CUDA numbers them by speed, nvidia-smi by "
            "their position on the bus"
        )
        step = "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
        code = "visible-devices.order"
        yield Finding(Level.WARNING, code, what, step, candidate.name)


# --- The process that set a variable -------------------------------------------------


def origin_of_variable(
    name: str, value: str, root: str = "/", pid: int | None = None
) -> str:
    """Return the first ancestor process with the variable, and the parent that set the variable.

    The result is text such as `"process 42 (raylet), started by process 1 (bash)"`. It is empty if
    /proc does not list the variables, or if the process was not started with this value. /proc
    lists the variables with which a process was started, so the parent of the first process with
    the variable has set it.

    Args:
        name: The name of the variable.
        value: The value of the variable.
        root: The folder that contains `/proc`.
        pid: The id of the process to examine; `None` for this process.
    """
    current = os.getpid() if pid is None else pid
    first = setter = 0
    for _ in range(_MAX_ANCESTORS):
        environ = hardware.read_text(f"/proc/{current}/environ", root)
        if f"{name}={value}" not in environ.split("\0"):
            setter = current
            break
        first = current
        current = _parent(current, root)
        if current == 0:
            break
    if not first:
        return ""
    origin = f"process {first} ({_command(first, root)})"
    if setter:
        origin += f", started by process {setter} ({_command(setter, root)})"
    return origin


def _parent(pid: int, root: str) -> int:
    """Return the id of the parent process; 0 if the process has no parent or the id is unknown."""
    for line in hardware.read_text(f"/proc/{pid}/status", root).splitlines():
        if line.startswith("PPid:"):
            return hardware.parse_number(line.partition(":")[2].strip()) or 0
    return 0


def _command(pid: int, root: str) -> str:
    return hardware.read_text(f"/proc/{pid}/comm", root) or "unknown"


TOPIC = Topic("visible-devices", "Visible devices", _examine)
