"""Report the changes that plugins and vendors' packages make to the process that imports them.

Each package is imported in a child process, which compares its state before and after the
import. A vendor's package may replace functions of torch if its device needs this, but it
must not change other devices, Python or the user's settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_core import Provenance, Verdict, hardware, is_installed
from accel_core.checks import installed_imports
from accel_core.text import one_line
from accel_tools.doctor.child_functions import import_and_find_changes
from accel_tools.doctor.process_snapshot import Change
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.side_effects import (
    SideEffect,
    find_all_side_effects,
    find_side_effects,
)

__all__ = ["TOPIC"]

#: The device namespaces of torch. A package that replaces their functions may break other devices.
_DEVICES = (
    "torch.cuda.",
    "torch.xpu.",
    "torch.mps.",
    "torch.cpu.",
    "torch.accelerator.",
)
#: Prefixes of environment variables that launchers, Python or the dynamic loader read.
_SHARED_VARIABLES = (
    "PATH",
    "LD_",
    "PYTHON",
    "OMP_NUM_THREADS",
    "ACCEL_",
    "DS_",
    "XDG_CACHE_HOME",
    "LOCAL_SIZE",
    "LOCAL_RANK",
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
#: The maximum number of names in a sentence. The facts have all names.
_MAX_NAMES = 3


def _examine_changes(context: DiagnosticContext) -> Iterator[Finding]:
    candidates = context.examined_candidates()
    findings = [
        *_plugin_findings(candidates, context),
        *_vendor_package_findings(candidates, context),
    ]
    if not findings:
        what = (
            "plugins and vendors' packages do not change the process that imports them"
        )
        findings.append(Finding(Level.OK, "monkeypatches.nothing", what))
    yield from findings


# --- Plugins: no change is permitted -------------------------------------------------


def _plugin_findings(
    candidates: Sequence[Verdict], context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield a finding on each side effect of a plugin during discovery."""
    names: dict[Provenance, str] = {}
    for candidate in candidates:
        if not candidate.builtin:
            names.setdefault(candidate.provenance, candidate.name)
    timeout = context.settings.probe_timeout

    def examine(provenance: Provenance) -> tuple[SideEffect, ...]:
        return find_side_effects(provenance, timeout)

    by_plugin = find_all_side_effects(list(names), timeout, examine)
    for provenance, effects in by_plugin.items():
        for effect in effects:
            yield _side_effect_finding(provenance, names[provenance], effect)


def _side_effect_finding(
    provenance: Provenance, backend: str, effect: SideEffect
) -> Finding:
    where = f" ({one_line(effect.where)})" if effect.where else ""
    what = f"the plugin {provenance} {one_line(effect.what)} during discovery{where}"
    maintainers = f"the maintainers of {one_line(provenance.distribution)}"
    step = f"report this to {maintainers}: {effect.instead}"
    return Finding(Level.WARNING, "monkeypatches.plugin", what, step, backend)


# --- Vendors' packages ---------------------------------------------------------------


def _vendor_package_findings(
    candidates: Sequence[Verdict], context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield findings on the changes that imports of vendors' packages make."""
    from accel_core.sandbox import child

    modules: dict[str, Verdict] = {}
    for candidate in candidates:
        for module in installed_imports(candidate.declaration)[:1]:
            modules.setdefault(module, candidate)
    modules.pop("torch", None)
    if not modules or not is_installed("torch"):
        return
    timeout = context.settings.probe_timeout
    results = child.run_in_parallel(
        lambda module: _find_changes(module, timeout), modules, hardware.usable_cores()
    )
    for (module, candidate), changes in zip(modules.items(), results, strict=True):
        if changes is None:
            what = (
                f"could not determine what {module} changes on import: "
                "its process crashed or took too long"
            )
            yield Finding(Level.OK, "monkeypatches.unknown", what, about=candidate.name)
        else:
            yield from _change_findings(module, candidate, changes)


def _find_changes(module: str, timeout: float) -> list[Change] | None:
    """Return the changes that the import of a module makes; `None` if its process crashes or hangs."""
    from accel_core.sandbox import child

    try:
        report = child.run(import_and_find_changes, {"module": module}, timeout)
    except OSError:
        return None
    if report.answer is None:
        return None
    return [Change(*row) for row in report.answer["changes"]]


def _change_findings(
    module: str, candidate: Verdict, changes: Sequence[Change]
) -> Iterator[Finding]:
    """Yield one finding per kind of change, without changes to the namespace of the vendor's device."""
    device_namespace = f"torch.{candidate.declaration.device_type}."
    by_kind: dict[tuple[Level, str, str], list[Change]] = {}
    for change in changes:
        if not f"{change.name}.".startswith(device_namespace):
            by_kind.setdefault(_classify(change), []).append(change)
    for (level, code, verb), same in sorted(
        by_kind.items(), key=lambda kind: kind[0][1]
    ):
        names = [one_line(change.name) for change in same]
        listed = ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            listed += f" and {len(names) - _MAX_NAMES} more"
        step = ""
        if level is not Level.OK:
            step = (
                f"ACCEL_BLOCK={candidate.name} keeps accel_core from importing {module}"
            )
        yield Finding(
            level,
            code,
            f"importing {module} {verb} {listed}",
            step,
            candidate.name,
            {one_line(change.name): one_line(change.to) for change in same},
        )


def _classify(change: Change) -> tuple[Level, str, str]:
    """Return the level, the code and the verb of a change."""
    if change.kind == "function":
        if change.name.startswith(_DEVICES):
            return (
                Level.WARNING,
                "monkeypatches.device",
                "replaces functions of other devices:",
            )
        if change.name.partition(".")[0] == "torch":
            return Level.OK, "monkeypatches.torch", "replaces"
        return Level.WARNING, "monkeypatches.python", "replaces functions of Python:"
    if change.kind == "environment" and change.name.startswith(_SHARED_VARIABLES):
        return (
            Level.WARNING,
            "monkeypatches.shared-variable",
            "sets a variable that other programs read:",
        )
    return _CATEGORIES[change.kind]


#: The level, code and verb by kind of change. Hooks, threads and variables of a package are harmless.
_CATEGORIES = {
    "environment": (Level.OK, "monkeypatches.variable", "sets the variable"),
    "hook": (Level.OK, "monkeypatches.hook", "replaces"),
    "thread": (Level.OK, "monkeypatches.thread", "leaves a thread running:"),
    "process": (Level.WARNING, "monkeypatches.process", "leaves a process running:"),
    "signal": (Level.WARNING, "monkeypatches.signal", "installs a handler for"),
    "locale": (Level.WARNING, "monkeypatches.locale", "changes the"),
    "umask": (Level.WARNING, "monkeypatches.umask", "changes the"),
    "folder": (Level.WARNING, "monkeypatches.folder", "changes the working"),
}


TOPIC = Topic("monkeypatches", "Monkey-patches", _examine_changes)
