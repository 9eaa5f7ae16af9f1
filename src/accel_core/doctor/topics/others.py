"""What others would choose here: each framework's own rule beside our choice.

A script that one of them starts runs on the device that it chooses, whatever `get_accelerator()` gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from accel_core._support.metadata import version
from accel_core._support.packages import is_installed
from accel_core._support.torch_import import torch_build
from accel_core._text import clean
from accel_core.detection.builtin import GENERIC
from accel_core.detection.entry_points import scan_all
from accel_core.detection.records import Status, Verdict
from accel_core.detection.survey import Survey
from accel_core.doctor.frameworks import FRAMEWORKS, Answer, Framework, Here
from accel_core.doctor.records import Finding, Level, Topic, Visit
from accel_core.machine import vendors
from accel_core.settings import ACCEL_INTEGRATIONS

__all__ = ["TOPIC"]

#: Groups of the frameworks' own platform plugins.
_GROUPS = ("vllm.platform_plugins", "sglang.srt.platforms")
#: Modules that the rules ask for, whether a plugin of ours declares them or not.
_MODULES = (
    "torch_npu", "torch_mlu", "torch_sdaa", "torch_musa", "torch_supa", "torch_xmlir", "torch_xla", "libtpu",
    "habana_frameworks.torch", "intel_extension_for_pytorch", "amdsmi",
)  # fmt: skip
#: Exceptions that frameworks take for "not installed".
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")


def _examine(visit: Visit) -> Iterator[Finding]:
    surveyed = visit.survey()
    ours = _ours(surveyed)
    here = _here(surveyed, visit)
    missing: dict[str, str] = {}
    found = False
    for framework in FRAMEWORKS:
        installed = version(framework.distribution) if framework.distribution else None
        asked = here._replace(version=installed or "")
        if installed is None:
            missing[f"{framework.name} ({framework.source})"] = _said(framework.choose(asked))
            continue
        found = True
        yield _compared(framework, installed, asked, ours, visit)
    if not found:
        what = "none of the frameworks whose rules are known is installed"
        yield Finding(Level.OK, "others.not-installed", what, facts=missing)
    elif missing and visit.thorough:
        what = f"not installed: {', '.join(name.partition(' (')[0] for name in missing)}"
        yield Finding(Level.OK, "others.not-installed", what, facts=missing)


def _compared(framework: Framework, installed: str, here: Here, ours: str, visit: Visit) -> Finding:
    who = f"{framework.name} {installed}"
    facts = {"rule read in": framework.source}
    if framework.distribution in ACCEL_INTEGRATIONS.read(visit.environ):
        what = f"{who} is given {ours}, for {ACCEL_INTEGRATIONS.name} names it"
        return Finding(Level.OK, "others.integrated", what, facts=facts)
    answer = framework.choose(here)
    if answer.fails:
        what = f"{who} chooses nothing: {clean(answer.fails)}"
        return Finding(Level.WARNING, "others.fails", what, framework.step(ours or "cpu", ""), facts=facts)
    if not ours:
        return Finding(Level.OK, "others.alone", f"{who} would choose {answer.device}", facts=facts)
    if _is_same(framework, answer.device, ours):
        return Finding(Level.OK, "others.same", f"{who} would choose {answer.device} too", facts=facts)
    what = f"{who} would choose {answer.device}, and accel_core chooses {ours}"
    return Finding(Level.WARNING, "others.differs", what, framework.step(ours, answer.device), facts=facts)


def _is_same(framework: Framework, device: str, ours: str) -> bool:
    # DeepSpeed has backends, as we have; to the others Kunlunxin's is torch.cuda.
    spoken = "cuda" if ours == "klxpu" and framework.name != "DeepSpeed" else ours.partition(".")[0]
    return device == spoken


def _said(answer: Answer) -> str:
    return answer.device or clean(answer.fails)


def _ours(surveyed: Survey) -> str:
    """The name that is chosen; for the backend `generic` torch's name, as far as torch's build tells it."""
    chosen = (surveyed.choice.selection.chosen if surveyed.choice else "") or ""
    return _of_the_build() if chosen == GENERIC.name else chosen


def _of_the_build() -> str:
    """The device that torch was built for; empty for its CPU build."""
    build = torch_build()
    if build is None:
        return ""
    if build.cuda or build.hip:
        return "cuda"
    return "xpu" if build.xpu else "mps" if sys.platform == "darwin" else ""


def _here(surveyed: Survey, visit: Visit) -> Here:
    importable, failing = _modules(surveyed)
    return Here(
        available=frozenset(filter(None, map(_device, surveyed.verdicts))),
        importable=importable,
        failing=failing,
        environ=visit.environ,
        hardware=frozenset(known.label for known in vendors.known_hardware()),
        plugins={
            group: tuple(clean(e.name) for e in scan.entry_points)
            for group, scan in scan_all(_GROUPS).items()
        },
        darwin=sys.platform == "darwin",
    )


def _device(verdict: Verdict) -> str:
    """As torch calls a device that others see; our policy is not theirs, so what is blocked may count."""
    if verdict.name == GENERIC.name:
        return _of_the_build() if verdict.usable else ""
    blocked = verdict.status is Status.BLOCKED and verdict.evidence and _of_the_build() == verdict.device_type
    return verdict.device_type if (verdict.usable or blocked) and verdict.device_type != "cpu" else ""


def _modules(surveyed: Survey) -> tuple[frozenset[str], dict[str, str]]:
    """Modules that can be imported, as far as verdicts or else files tell, and those that fail otherwise."""
    importable = {module for module in _MODULES if is_installed(module)}
    failing: dict[str, str] = {}
    for verdict in surveyed.verdicts:
        modules = importable & set(verdict.vendor_import)
        if modules and (verdict.status.is_failure or verdict.broken):
            importable -= modules
            error = _error(verdict)
            if error and not error.startswith(_IMPORT_ERRORS):
                failing |= dict.fromkeys(modules, error)
    return frozenset(importable), failing


def _error(verdict: Verdict) -> str:
    """What the vendor's import ends with; empty where that is not known."""
    if verdict.status in (Status.CRASHED, Status.TIMED_OUT):
        return verdict.reason
    # A child process hands on the reason alone.
    return verdict.cause or verdict.reason.partition(" failed: ")[2]


TOPIC = Topic("others", "What others would choose", _examine)
