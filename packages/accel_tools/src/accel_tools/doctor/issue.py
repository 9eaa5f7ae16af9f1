"""Format the report as Markdown for a public bug report.

The Markdown consists of codes, statuses, versions, names and the platform. Messages may
contain any text, so they are added only on request.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from accel_core import Verdict, __version__, packages
from accel_core.hardware import vendors
from accel_core.packages import normalize_distribution
from accel_core.survey import Survey
from accel_core.text import one_line
from accel_tools.doctor.records import DiagnosticContext, Finding, Report, TopicResult
from accel_tools.setup.machines import driver_version

__all__ = ["MESSAGES_WARNING", "issue_markdown"]

#: The reason why messages are left out by default, which the command's help also shows.
MESSAGES_WARNING = "Messages may contain paths, host names and names of people"
#: Prefixes of variables that configure a device, its runtime or a launch.
_VARIABLE_PREFIXES = (
    "ACCEL_", "ACCELERATE_", "ASCEND_", "BIREN_", "CANN_", "CNCL_", "CUDA_", "DS_", "HABANA_", "HCCL_",
    "HIP_", "HSA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCAL_", "MASTER_", "MCCL_", "MLU_", "MTHREADS_",
    "MUSA_", "NCCL_", "NEUWARE_", "NVIDIA_", "OMP_", "ONEAPI_", "PT_HPU_", "PYTHONPATH", "PYTHONHOME",
    "PYTORCH_", "RANK", "ROCM_", "ROCR_", "SDAA_", "SLURM_JOB_ID", "SYCL_", "TORCH_", "WORLD_SIZE", "XPU_",
    "ZE_",
)  # fmt: skip
#: The format of names, versions and codes. Plugins and packages could provide any text instead.
_SAFE_TEXT = re.compile(r"[\w.+!@-]{1,80}", re.ASCII)
_NOT_A_NAME = "(not a name)"


def issue_markdown(
    context: DiagnosticContext, report: Report, *, with_messages: bool = False
) -> str:
    """Return the report as Markdown for GitHub and GitLab.

    `with_messages` adds the texts of the findings in a fenced block, in which text is not interpreted
    as markup.
    """
    lines = ["### accel doctor", ""]
    if with_messages:
        lines += [f"**{MESSAGES_WARNING}: read them before you post this.**", ""]
    lines += _section("Versions", _table(_versions(context.finished_survey)))
    lines += _section("Hardware", _table(_hardware()))
    lines += _section("Backends", _backends(context.finished_survey))
    lines += _section("Findings", _finding_codes(report))
    lines += _section("Variables that are set", _variable_names(context.environ))
    if with_messages:
        lines += _section("Messages", _messages(report))
    return "\n".join(lines).rstrip()


# --- The parts of every report -------------------------------------------------------------------------


def _versions(survey: Survey | None) -> Iterator[tuple[str, str]]:
    kernel = re.match(r"[\d.]*", platform.release())
    yield "accel-core", _safe(__version__)
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    system = f"{platform.system()} {kernel[0] if kernel else ''}".strip()
    yield "platform", f"{system}, {platform.machine()}, {sys.platform}"
    yield "C library", " ".join(platform.libc_ver()).strip() or "unknown"
    yield "torch", _safe(packages.version("torch") or "missing")
    verdicts = survey.verdicts if survey else ()
    accel_names = ("accel-train", "accel-tools", "accel-testing")
    for name in dict.fromkeys((*accel_names, *_distributions(verdicts))):
        version = packages.version(name)
        if version is not None and name not in ("torch", "accel-core"):
            yield _safe(name), _safe(version)


def _distributions(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield the distributions of plugins, and the usual names of the vendor packages' distributions."""
    for verdict in verdicts:
        yield verdict.distribution
        for module in verdict.vendor_import:
            yield normalize_distribution(module.partition(".")[0])


def _hardware() -> Iterator[tuple[str, str]]:
    for vendor in vendors.known_hardware():
        yield vendor.label, str(vendor.evidence)
    driver = driver_version()
    if driver:
        yield "NVIDIA's driver", driver


def _backends(survey: Survey | None) -> Iterator[str]:
    """Yield a line on each backend with its distribution, priority, status and reason, in rank order."""
    if survey is None:
        return
    chosen = survey.selection.chosen if survey.selection else None
    for rank, verdict in enumerate(survey.verdicts, 1):
        states = [verdict.status.value]
        if verdict.why is not None:
            states.append(verdict.why.reason.value)
        if chosen is not None and verdict.is_about(chosen):
            states.append("chosen")
        origin = f"{_safe(verdict.name)} ({_safe(verdict.distribution)})"
        yield f"{rank}. {origin}, priority {verdict.priority}: {', '.join(states)}"


def _finding_codes(report: Report) -> Iterator[str]:
    """Yield a line on each finding with its level, backend and code; equal lines are yielded once."""
    for topic in report.topics:
        if topic.failed:
            yield f"! {topic.name}: could not be examined"
        yield from dict.fromkeys(map(_code_line, topic.findings))


def _code_line(finding: Finding) -> str:
    about = f"{_safe(finding.about)}: " if finding.about else ""
    return f"{finding.level.mark} {about}{_safe(finding.code)}"


def _variable_names(environ: Mapping[str, str]) -> list[str]:
    return [
        _safe(name) for name in sorted(environ) if name.startswith(_VARIABLE_PREFIXES)
    ]


def _safe(text: str) -> str:
    """Return the text if it is a name, a version or a code, or otherwise a placeholder."""
    return text if _SAFE_TEXT.fullmatch(text) else _NOT_A_NAME


# --- Messages ------------------------------------------------------------------------------------------


def _messages(report: Report) -> Iterator[str]:
    yield one_line(report.verdict)
    for topic in report.topics:
        yield from _messages_of(topic)


def _messages_of(topic: TopicResult) -> Iterator[str]:
    if topic.failed:
        yield f"! {topic.name}: {one_line(topic.failed)}"
    for finding in topic.findings:
        yield f"{_code_line(finding)}: {one_line(finding.what)}"
        if finding.step:
            yield f"    next step: {one_line(finding.step)}"
        for name, value in finding.facts.items():
            yield f"    {one_line(name)}: {one_line(value)}"


# --- Markdown ------------------------------------------------------------------------------------------


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading and a fenced block with the lines; an empty list if there are no lines.

    The fence is longer than any run of `~` in the lines, so that no line can end the block.
    """
    content = list(lines)
    if not content:
        return []
    runs = re.findall(r"~+", "\n".join(content))
    fence = "~" * max(3, len(max(runs, key=len, default="")) + 1)
    return [f"**{title}**", "", f"{fence}text", *content, fence, ""]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    pairs = list(rows)
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name:{width}}  {value}" for name, value in pairs]
