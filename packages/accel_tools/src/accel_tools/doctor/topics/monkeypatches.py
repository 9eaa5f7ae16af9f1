"""Report the changes that plugins and vendor packages make to the process that imports them.

Each package is imported in a child process, which compares its state before and after the
import. A vendor package may replace functions of torch if its device needs the replacement, but
the package must not change other devices, Python or the user's settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
#: The maximum number of names in a sentence. The facts contain all names.
_MAX_NAMES = 3


def _examine_changes(context: DiagnosticContext) -> Iterator[Finding]:
    candidates = context.examined_candidates()
    findings = [
        *_plugin_findings(candidates, context),
        *_vendor_package_findings(candidates, context),
    ]
    if not findings:
        what = "plugins and vendor packages do not change the process that imports them"
        findings.append(Finding(Level.OK, "monkeypatches.nothing", what))
    yield from findings


# --- Plugins: no change is permitted -------------------------------------------------


def _plugin_findings(
    candidates: Sequence[Verdict], context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield a finding about each side effect of a plugin during discovery."""
    backend_by_plugin: dict[Provenance, str] = {}
    for candidate in candidates:
        if not candidate.builtin:
            backend_by_plugin.setdefault(candidate.provenance, candidate.name)
    plugins = list(backend_by_plugin)
    timeout = context.settings.probe_timeout

    def examine(plugin: Provenance) -> tuple[SideEffect, ...]:
        return find_side_effects(plugin, timeout)

    effects_by_plugin = find_all_side_effects(plugins, timeout, examine)
    for plugin, effects in effects_by_plugin.items():
        for effect in effects:
            yield _side_effect_finding(plugin, backend_by_plugin[plugin], effect)


def _side_effect_finding(
    plugin: Provenance, backend: str, effect: SideEffect
) -> Finding:
    what = f"the plugin {plugin} {one_line(effect.what)} during discovery"
    if effect.where:
        what += f" ({one_line(effect.where)})"
    maintainers = f"the maintainers of {one_line(plugin.distribution)}"
    step = f"report this to {maintainers}: {effect.instead}"
    return Finding(Level.WARNING, "monkeypatches.plugin", what, step, backend)


# --- Vendor packages -----------------------------------------------------------------


def _vendor_package_findings(
    candidates: Sequence[Verdict], context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield findings about the changes that the imports of vendor packages make."""
    from accel_core.sandbox import child

    candidate_by_module: dict[str, Verdict] = {}
    for candidate in candidates:
        modules = installed_imports(candidate.declaration)
        if modules and modules[0] != "torch":
            candidate_by_module.setdefault(modules[0], candidate)
    if not candidate_by_module or not is_installed("torch"):
        return
    timeout = context.settings.probe_timeout

    def find_changes(module: str) -> list[Change] | None:
        return _find_changes_in_child_process(module, timeout)

    results = child.run_in_parallel(
        find_changes, candidate_by_module, hardware.usable_cores()
    )
    for module, changes in zip(candidate_by_module, results, strict=True):
        candidate = candidate_by_module[module]
        if changes is None:
            what = (
                f"could not determine what {module} changes on import: "
                "its process crashed or took too long"
            )
            yield Finding(Level.OK, "monkeypatches.unknown", what, about=candidate.name)
        else:
            yield from _change_findings(module, candidate, changes)


def _find_changes_in_child_process(module: str, timeout: float) -> list[Change] | None:
    """Return the changes that the import of a module makes.

    Returns `None` if its process crashes or hangs.
    """
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
    """Yield one finding per category of change that the import of a module makes.

    Changes to the namespace of the vendor's own device, such as `torch.npu`, are left out.
    """
    # A vendor's package is expected to change its own namespace, such as torch.npu.
    own_namespace = f"torch.{candidate.declaration.device_type}."
    changes_by_category: dict[_Category, list[Change]] = {}
    for change in changes:
        is_own = f"{change.name}.".startswith(own_namespace)
        if not is_own:
            changes_by_category.setdefault(_category_of(change), []).append(change)
    for category in sorted(changes_by_category, key=lambda category: category.code):
        new_value_by_name = {}
        for change in changes_by_category[category]:
            new_value_by_name[one_line(change.name)] = one_line(change.to)
        step = ""
        if category.level is not Level.OK:
            step = f"to keep accel_core from importing {module}: export ACCEL_BLOCK={candidate.name}"
        objects = _list_first_names(list(new_value_by_name))
        yield Finding(
            level=category.level,
            code=category.code,
            what=f"importing {module} {category.verb} {objects}",
            step=step,
            about=candidate.name,
            facts=new_value_by_name,
        )


def _list_first_names(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of the others."""
    text = ", ".join(names[:_MAX_NAMES])
    others = len(names) - _MAX_NAMES
    if others > 0:
        text += f" and {others} more"
    return text


class _Category(NamedTuple):
    """A category of changes that the import of a vendor package makes."""

    level: Level
    #: The code of the finding.
    code: str
    #: The verb before the names of what changed.
    verb: str


_OTHER_DEVICES = _Category(
    Level.WARNING, "monkeypatches.device", "replaces functions of other devices:"
)
_TORCH = _Category(Level.OK, "monkeypatches.torch", "replaces")
_PYTHON = _Category(
    Level.WARNING, "monkeypatches.python", "replaces functions of Python:"
)
_SHARED_VARIABLE = _Category(
    Level.WARNING,
    "monkeypatches.shared-variable",
    "sets a variable that other programs read:",
)
#: The other categories by kind of change. Hooks, threads and variables of a package are harmless.
_CATEGORIES = {
    "environment": _Category(Level.OK, "monkeypatches.variable", "sets the variable"),
    "hook": _Category(Level.OK, "monkeypatches.hook", "replaces"),
    "thread": _Category(Level.OK, "monkeypatches.thread", "leaves a thread running:"),
    "process": _Category(
        Level.WARNING, "monkeypatches.process", "leaves a process running:"
    ),
    "signal": _Category(
        Level.WARNING, "monkeypatches.signal", "installs a handler for"
    ),
    "locale": _Category(Level.WARNING, "monkeypatches.locale", "changes the"),
    "umask": _Category(Level.WARNING, "monkeypatches.umask", "changes the"),
    "folder": _Category(Level.WARNING, "monkeypatches.folder", "changes the working"),
}


def _category_of(change: Change) -> _Category:
    if change.kind == "function":
        if change.name.startswith(_DEVICES):
            return _OTHER_DEVICES
        is_of_torch = change.name.partition(".")[0] == "torch"
        return _TORCH if is_of_torch else _PYTHON
    if change.kind == "environment" and change.name.startswith(_SHARED_VARIABLES):
        return _SHARED_VARIABLE
    return _CATEGORIES[change.kind]


TOPIC = Topic("monkeypatches", "Monkey-patches", _examine_changes)
