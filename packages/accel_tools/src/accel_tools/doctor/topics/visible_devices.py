"""Report the variables that limit the visible devices, and the logical number of each device.

The topic also reports values that a vendor ignores silently: ids that do not exist, entries
after which the vendor ignores the rest of a list, and variables that another variable overrides.
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

#: The code of the finding about variables with valid values.
_MAPPED_CODE = "visible-devices.mapped"
#: The facts of this finding have names such as "physical 0". The value is the logical device, or that the
#: device is not visible.
_PHYSICAL = "physical"
_NOT_VISIBLE = "not visible"
#: The name of the fact with the number of physical devices, and its value if nothing reports the number.
_PHYSICAL_COUNT = "physical devices"
_UNKNOWN = "unknown"

#: The maximum number of ancestors to examine, which ends the loop if /proc is inconsistent.
_MAX_ANCESTORS = 64


def _examine_variables(context: DiagnosticContext) -> Iterator[Finding]:
    # A program that examines itself may have changed variables after its start.
    for note in late_changes():
        code = "visible-devices.changed"
        yield Finding(Level.WARNING, code, note.text, note.step)
    is_any_variable_set = False
    variables_by_backend: dict[str, list[str]] = {}
    for candidate in context.examined_candidates():
        variables = _visibility_variables(candidate.declaration)
        if variables:
            variables_by_backend.setdefault(candidate.name, []).extend(variables)
        has_set_variable = any(name in context.environ for name in variables)
        if has_set_variable:
            is_any_variable_set = True
            yield from _variable_findings(candidate, context)
    if not is_any_variable_set:
        what = "no variable limits the visible devices"
        facts = {}
        for backend, all_variables in variables_by_backend.items():
            unique_variables = dict.fromkeys(all_variables)
            facts[backend] = ", ".join(unique_variables)
        yield Finding(Level.OK, "visible-devices.unset", what, facts=facts)


def _visibility_variables(backend: Backend) -> tuple[str, ...]:
    """Return the names of the variables that limit the backend's visible devices."""
    return (*backend.visibility.filters, *backend.visibility.variables)


def _variable_findings(
    candidate: Verdict, context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield findings about wrong values of a backend's variables, or otherwise about the visible devices."""
    backend = candidate.declaration
    verdict = _verdict_on(candidate, context)
    reason = _why_variables_have_no_effect(backend, verdict)
    if reason and verdict is not None:
        yield _no_effect_finding(candidate, context.environ, reason)
        return
    devices = visible_devices.inventory(backend)
    visibility = visible_devices.read_visible_devices(backend, context.environ, devices)
    facts = _describe_mapping(backend, visibility, devices.count, verdict)
    facts_with_origins = {**facts, **_describe_origins(visibility)}
    problems = list(
        _problem_findings(candidate, visibility, verdict, facts_with_origins)
    )
    if problems:
        yield from problems
    else:
        yield _visible_devices_finding(candidate, visibility, devices.count, facts)
    yield from _gpu_order_findings(candidate, context.environ)


def _verdict_on(candidate: Verdict, context: DiagnosticContext) -> Verdict | None:
    """Return the survey's verdict on the candidate.

    Returns `None` if the survey does not contain the candidate.
    """
    for verdict in context.survey().verdicts:
        if verdict.is_about(candidate):
            return verdict
    return None


def _why_variables_have_no_effect(backend: Backend, verdict: Verdict | None) -> str:
    """Return why the backend's variables have no effect, as a clause.

    Returns an empty string if they have an effect.
    """
    build = torch_build()
    required_builds = backend.torch_integration.builds
    if build is not None and required_builds:
        is_required_build = any(getattr(build, name) for name in required_builds)
        if not is_required_build:
            return f"{build} does not support this backend's devices"
    if verdict is None or verdict.evidence or verdict.usable:
        return ""
    if verdict.status is Status.NOT_INSTALLED or verdict.absent:
        return verdict.reason
    return ""


def _no_effect_finding(
    candidate: Verdict, environ: Mapping[str, str], reason: str
) -> Finding:
    """Return the finding about variables that are set, but have no effect."""
    facts = {}
    for name in _visibility_variables(candidate.declaration):
        if name in environ:
            facts[name] = repr(environ[name])
    what = f"{', '.join(facts)} has no effect: {reason}"
    code = "visible-devices.no-effect"
    return Finding(Level.OK, code, what, about=candidate.name, facts=facts)


def _describe_mapping(
    backend: Backend,
    visibility: visible_devices.VisibleDevices,
    count: int | None,
    verdict: Verdict | None,
) -> dict[str, str]:
    """Return the value of each variable, and the logical device of each physical device, as facts."""
    facts = {effect.variable: repr(effect.value) for effect in visibility.effects}
    if visibility.devices is not None:
        if not count:
            facts[_PHYSICAL_COUNT] = _UNKNOWN
        for physical_index in range(count or 0):
            facts[f"{_PHYSICAL} {physical_index}"] = _NOT_VISIBLE
        # torch numbers the visible devices from 0.
        for index, physical_device in enumerate(visibility.devices):
            facts[f"{_PHYSICAL} {physical_device}"] = f"{backend.device_type}:{index}"
    if verdict is not None and verdict.devices is not None:
        facts["devices that the vendor counts"] = str(verdict.devices)
    return facts


def _describe_origins(visibility: visible_devices.VisibleDevices) -> dict[str, str]:
    """Return facts about the process that set each variable, which often belongs to a scheduler."""
    facts = {}
    for effect in visibility.effects:
        origin = origin_of_variable(effect.variable, effect.value)
        if origin:
            facts[f"{effect.variable} comes from"] = origin
    return facts


def _visible_devices_finding(
    candidate: Verdict,
    visibility: visible_devices.VisibleDevices,
    count: int | None,
    facts: Mapping[str, str],
) -> Finding:
    """Return the finding about the number of devices that the variables make visible."""
    settings = [f"{effect.variable}={effect.value!r}" for effect in visibility.effects]
    what = f"{' with '.join(settings)} shows {_describe_visible(visibility, count)}"
    what += _describe_late_variables(visibility)
    return Finding(Level.OK, _MAPPED_CODE, what, about=candidate.name, facts=facts)


def _describe_visible(
    visibility: visible_devices.VisibleDevices, count: int | None
) -> str:
    """Return the number of visible devices as text, such as `"1 of 2 devices"`.

    `count` is the number of physical devices, or `None` if it is unknown.
    """
    if visibility.devices is None:
        return "every device"
    visible = len(visibility.devices)
    if count:
        return f"{visible} of {count} device{'' if count == 1 else 's'}"
    return f"{visible} device{'' if visible == 1 else 's'}"


def may_hide_devices(finding: Finding) -> bool:
    """Return whether the finding is about variables that hide devices, or may hide devices.

    Variables may hide devices if the number of physical devices is unknown.
    """
    if finding.code != _MAPPED_CODE:
        return False
    hides_device = _NOT_VISIBLE in finding.facts.values()
    if hides_device:
        return True
    return finding.facts.get(_PHYSICAL_COUNT) == _UNKNOWN


def _describe_late_variables(visibility: visible_devices.VisibleDevices) -> str:
    """Return a clause about each variable that was set after Python had started.

    Returns an empty string if there is none.
    """
    clauses = []
    for effect in visibility.effects:
        if _is_set_by_this_process(effect.variable, effect.value):
            clauses.append(
                f"; {effect.variable} was set after Python had started, probably by a start-up "
                "file: `accel doctor --all --topic import-hooks` lists these files"
            )
    return "".join(clauses)


def _is_set_by_this_process(name: str, value: str, root: str = "/") -> bool:
    """Return whether this process has set the variable to the value itself.

    Otherwise the process was started with this value, or /proc is not available.
    """
    if os.environ.get(name) != value:
        return False
    environ_at_start = hardware.read_text("/proc/self/environ", root)
    if not environ_at_start:
        return False
    return f"{name}={value}" not in environ_at_start.split("\0")


def _problem_findings(
    candidate: Verdict,
    visibility: visible_devices.VisibleDevices,
    verdict: Verdict | None,
    facts: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield a finding if all devices are hidden, or otherwise on each variable with a wrong value."""
    about = candidate.name
    if visibility.devices == ():  # The variables hide all devices.
        code = "visible-devices.none"
        step = _step_if_hidden(visibility, verdict)
        what = f"{visibility}{_describe_late_variables(visibility)}"
        yield Finding(Level.WARNING, code, what, step, about, facts)
        return
    is_usable = verdict is not None and verdict.usable
    for effect in visibility.effects:
        finding = _finding_on_effect(effect, is_usable=is_usable)
        if finding is not None:
            yield finding._replace(about=about, facts=facts)


def _step_if_hidden(
    visibility: visible_devices.VisibleDevices, verdict: Verdict | None
) -> str:
    """Return the step that makes hidden devices visible.

    If Slurm has hidden the devices, the verdict on the backend has a better step.
    """
    if verdict is None or verdict.backend is None or not verdict.hint:
        return visibility.next_step
    if detect_placement().is_withheld_by_slurm(verdict.backend):
        return verdict.hint  # It shows how to request devices from Slurm.
    return visibility.next_step


def _finding_on_effect(
    effect: visible_devices.Effect, *, is_usable: bool
) -> Finding | None:
    """Return the finding about a variable with a wrong value.

    Returns `None` if the value is correct.

    `is_usable` is whether the backend is usable in spite of the variable.
    """
    unset_step = f"unset {effect.variable}"
    correct_step = unset_step
    if effect.suggestion:
        correct_step = f"export {effect.variable}={shlex.quote(effect.suggestion)}"
    if effect.malformed:
        level = Level.WARNING if is_usable else Level.ERROR
        return Finding(level, "visible-devices.malformed", str(effect), correct_step)
    if effect.overruled_by:
        what = f"{effect} is ignored, because {effect.overruled_by} is set too"
        return Finding(Level.WARNING, "visible-devices.overruled", what, unset_step)
    if effect.ignored:
        code = "visible-devices.dropped"
        return Finding(Level.WARNING, code, str(effect), correct_step)
    return None


def _gpu_order_findings(
    candidate: Verdict, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a finding if the machine has different GPUs, which CUDA and nvidia-smi number differently.

    CUDA numbers the fastest GPU first; nvidia-smi numbers GPUs by their position on the bus:
    https://docs.nvidia.com/cuda/cuda-programming-guide/, "CUDA Environment Variables",
    CUDA_DEVICE_ORDER.
    """
    backend = candidate.declaration
    is_nvidia = "NVIDIA" in backend.hardware.name
    first_character = environ.get("CUDA_VISIBLE_DEVICES", "")[:1]
    uses_indices = first_character.isdigit()  # Otherwise the variable contains UUIDs.
    is_bus_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not is_nvidia or not uses_indices or is_bus_order:
        return
    models = set()
    for device in bus.pci_devices():
        if bus.matches_pci(device, backend.hardware.pci_ids):
            models.add(device.device)
    if len(models) > 1:
        what = (
            "the GPUs are of different models: CUDA numbers them by speed, but nvidia-smi numbers them by "
            "their position on the bus"
        )
        step = "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
        code = "visible-devices.order"
        yield Finding(Level.WARNING, code, what, step, candidate.name)


# --- The process that set a variable -------------------------------------------------


def origin_of_variable(
    name: str, value: str, root: str = "/", pid: int | None = None
) -> str:
    """Return which ancestor process first had the variable, and which process started it.

    The result is text such as `"process 42 (raylet), started by process 1 (bash)"`: process 42 was started
    with the variable, but process 1 was not, so process 1 has set the variable. `/proc` lists the variables
    with which each process was started. The result is an empty string if `/proc` does not list the variables,
    or if the examined process was not started with this value.

    Args:
        name: The name of the variable.
        value: The value of the variable.
        root: The folder that contains `/proc`.
        pid: The id of the process to examine, or `None` for this process.
    """
    # The file `environ` of a process contains the variables with which the process was started. The
    # process that has set the variable is the nearest ancestor that was started without it.
    oldest_with_variable = setter = None
    current = os.getpid() if pid is None else pid
    for _ in range(_MAX_ANCESTORS):
        environ = hardware.read_text(f"/proc/{current}/environ", root)
        if f"{name}={value}" not in environ.split("\0"):
            setter = current
            break
        oldest_with_variable = current
        current = _parent_pid(current, root)
        if current == 0:
            break
    if oldest_with_variable is None:
        return ""
    origin = _describe_process(oldest_with_variable, root)
    if setter is not None:
        origin += f", started by {_describe_process(setter, root)}"
    return origin


def _parent_pid(pid: int, root: str) -> int:
    """Return the id of the parent process.

    Returns 0 if the process has no parent or the id is unknown.
    """
    for line in hardware.read_text(f"/proc/{pid}/status", root).splitlines():
        if line.startswith("PPid:"):
            return hardware.parse_number(line.partition(":")[2].strip()) or 0
    return 0


def _describe_process(pid: int, root: str) -> str:
    """Return a text such as `"process 42 (raylet)"`."""
    command_name = hardware.read_text(f"/proc/{pid}/comm", root) or "unknown"
    return f"process {pid} ({command_name})"


TOPIC = Topic("visible-devices", "Visible devices", _examine_variables)
