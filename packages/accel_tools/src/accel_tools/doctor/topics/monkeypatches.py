"""Changes that a plugin, or a vendor's package, makes to the process that imports it.

Each is imported in a child process, which compares the process before and after. A vendor's package may
replace functions of torch, because its device needs it, but not change other devices, Python or the user's
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accel_core import Verdict, hardware, is_installed
from accel_core.checks import installed_imports
from accel_core.text import one_line
from accel_tools.doctor.footprint import Change
from accel_tools.doctor.in_child import import_vendor
from accel_tools.doctor.plugin_conduct import Misstep, conduct, conducts
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC"]

#: Device namespaces of torch itself: whose functions another vendor replaces takes that device away.
_DEVICES = ("torch.cuda", "torch.xpu", "torch.mps", "torch.cpu", "torch.accelerator")
#: Variables that others read: launchers, Python, the loader of shared libraries.
_SHARED = (
    "PATH", "LD_", "PYTHON", "OMP_NUM_THREADS", "ACCEL_", "DS_", "XDG_CACHE_HOME", "LOCAL_SIZE", "LOCAL_RANK",
    "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
#: How many names a sentence holds; the rest is in the facts.
_NAMED = 3


def _examine(visit: Visit) -> Iterator[Finding]:
    candidates = visit.declared()
    found = [*_plugins(candidates, visit), *_vendors(candidates, visit)]
    yield from found
    if not found:
        yield Finding(
            Level.OK,
            "monkeypatches.nothing",
            "no plugin and no vendor's package changes the process that imports it",
        )


# --- Plugins: nothing at all ---------------------------------------------------------------------------


def _plugins(candidates: Sequence[Verdict], visit: Visit) -> Iterator[Finding]:
    """Yield findings on side effects of plugins during discovery."""
    names = {c.provenance: c.name for c in reversed(candidates) if not c.builtin}
    timeout = visit.settings.probe_timeout

    def each(provenance: Any) -> tuple[Misstep, ...]:
        return conduct(provenance, timeout)

    for provenance, missteps in conducts(list(reversed(names)), timeout, each).items():
        for misstep in missteps:
            where = f" ({one_line(misstep.where)})" if misstep.where else ""
            yield Finding(
                Level.WARNING, "monkeypatches.plugin",
                f"the plugin {provenance} {one_line(misstep.what)} while it is discovered{where}",
                f"{misstep.instead}; report this to the maintainers of {one_line(provenance.distribution)}",
                names[provenance],
            )  # fmt: skip


# --- Vendors' packages ---------------------------------------------------------------------------------


def _vendors(candidates: Sequence[Verdict], visit: Visit) -> Iterator[Finding]:
    """Yield findings on changes that vendors' packages make."""
    modules: dict[str, Verdict] = {}
    for candidate in candidates:
        for module in installed_imports(candidate.declaration)[:1]:
            modules.setdefault(module, candidate)
    modules.pop("torch", None)
    if not modules or not is_installed("torch"):
        return
    timeout = visit.settings.probe_timeout
    from accel_core.sandbox import child

    told = child.run_in_parallel(
        lambda module: _changed_by(module, timeout), modules, hardware.usable_cores()
    )
    for (module, candidate), found in zip(modules.items(), told, strict=True):
        if found is None:
            what = f"what {module} changes at import is not known: its process ended or took too long"
            yield Finding(Level.OK, "monkeypatches.unknown", what, about=candidate.name)
            continue
        own = f"torch.{candidate.declaration.device_type}"
        yield from _findings(
            module,
            candidate,
            [c for c in found if not f"{c.name}.".startswith(f"{own}.")],
        )


def _changed_by(module: str, timeout: float) -> list[Change] | None:
    """List what its import changes; `None` if the process crashed or hung in it."""
    from accel_core.sandbox import child

    try:
        report = child.run(import_vendor, {"module": module}, timeout)
    except OSError:
        return None
    if report.answer is None:
        return None
    rows: Any = report.answer["changes"]
    return [Change(*row) for row in rows]


def _findings(
    module: str, candidate: Verdict, found: Sequence[Change]
) -> Iterator[Finding]:
    """Yield the findings on one package: one on torch, and one for each other kind of change."""
    kept_out = f"ACCEL_BLOCK={candidate.name} keeps accel_core from importing {module}"
    kinds: dict[tuple[Level, str, str], list[Change]] = {}
    for change in found:
        kinds.setdefault(_kind(change), []).append(change)
    for (level, code, verb), group in sorted(
        kinds.items(), key=lambda item: item[0][1]
    ):
        names = [one_line(change.name) for change in group]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        what = f"importing {module} {verb} {', '.join(names[:_NAMED])}{more}"
        yield Finding(
            level, code, what, kept_out if level is not Level.OK else "", candidate.name,
            {one_line(change.name): one_line(change.to) for change in group},
        )  # fmt: skip


def _kind(change: Change) -> tuple[Level, str, str]:
    """How serious it is, its code, and what is done."""
    if change.kind == "function":
        if change.name.startswith(tuple(f"{device}." for device in _DEVICES)):
            return Level.WARNING, "monkeypatches.device", "replaces another device's"
        if change.name.partition(".")[0] == "torch":
            return Level.OK, "monkeypatches.torch", "replaces"
        return Level.WARNING, "monkeypatches.python", "replaces Python's"
    if change.kind == "environment" and change.name.startswith(_SHARED):
        return (
            Level.WARNING,
            "monkeypatches.shared-variable",
            "sets the variable that others read:",
        )
    return _KINDS[change.kind]


#: Hooks, threads and variables of their own are what many have, and do no harm.
_KINDS = {
    "environment": (Level.OK, "monkeypatches.variable", "sets the variable"),
    "hook": (Level.OK, "monkeypatches.hook", "replaces"),
    "thread": (Level.OK, "monkeypatches.thread", "leaves running the thread"),
    "process": (Level.WARNING, "monkeypatches.process", "leaves running the process"),
    "signal": (Level.WARNING, "monkeypatches.signal", "handles"),
    "locale": (Level.WARNING, "monkeypatches.locale", "changes the"),
    "umask": (Level.WARNING, "monkeypatches.umask", "changes the"),
    "folder": (Level.WARNING, "monkeypatches.folder", "changes the working"),
}


TOPIC = Topic("monkeypatches", "Monkey-patches", _examine)
