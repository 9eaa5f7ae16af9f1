"""A visit as Markdown for a bug report, which anybody may read.

The report consists of codes, statuses, versions, names and the platform. Messages, which may hold anything,
are added only on request.
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
from accel_tools.doctor.records import Examined, Finding, Report, Visit
from accel_tools.setup.machines import driver_version

__all__ = ["MAY_HOLD", "issue"]

#: What a reader must know of messages; the command's help has it too.
MAY_HOLD = "Messages may hold paths, host names and names of people"
#: Beginnings of the names of variables that steer a device, its runtime or a launch.
_VARIABLES = (
    "ACCEL_", "ACCELERATE_", "ASCEND_", "BIREN_", "CANN_", "CNCL_", "CUDA_", "DS_", "HABANA_", "HCCL_",
    "HIP_", "HSA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCAL_", "MASTER_", "MCCL_", "MLU_", "MTHREADS_",
    "MUSA_", "NCCL_", "NEUWARE_", "NVIDIA_", "OMP_", "ONEAPI_", "PT_HPU_", "PYTHONPATH", "PYTHONHOME",
    "PYTORCH_", "RANK", "ROCM_", "ROCR_", "SDAA_", "SLURM_JOB_ID", "SYCL_", "TORCH_", "WORLD_SIZE", "XPU_",
    "ZE_",
)  # fmt: skip
#: A name, a version or a code. Plugins and packages write them, and could put anything there.
_WORD = re.compile(r"[\w.+!@-]{1,80}", re.ASCII)
_NOT_A_WORD = "(not a name)"


def issue(visit: Visit, report: Report, *, with_messages: bool = False) -> str:
    """Return the report as Markdown for GitHub and GitLab.

    `with_messages`: add the texts of the findings, in a fenced block, in which no text acts as markup.
    """
    lines = ["### accel doctor", ""]
    if with_messages:
        lines += [f"**{MAY_HOLD}: read them before you post this.**", ""]
    lines += _section("Versions", _table(_versions(visit.surveyed)))
    lines += _section("Hardware", _table(_hardware()))
    lines += _section("Backends", _ranking(visit.surveyed))
    lines += _section("Findings", _codes(report))
    lines += _section("Variables that are set", _variables(visit.environ))
    if with_messages:
        lines += _section("Messages", _messages(report))
    return "\n".join(lines).rstrip()


# --- The parts of every report -------------------------------------------------------------------------


def _versions(survey: Survey | None) -> Iterator[tuple[str, str]]:
    kernel = re.match(r"[\d.]*", platform.release())
    yield "accel-core", _word(__version__)
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    system = f"{platform.system()} {kernel[0] if kernel else ''}".strip()
    yield "platform", f"{system}, {platform.machine()}, {sys.platform}"
    yield "C library", " ".join(platform.libc_ver()).strip() or "unknown"
    yield "torch", _word(packages.version("torch") or "missing")
    verdicts = survey.verdicts if survey else ()
    beside = ("accel-train", "accel-tools", "accel-testing", *_distributions(verdicts))
    for name in dict.fromkeys(beside):
        version = packages.version(name)
        if version is not None and name not in ("torch", "accel-core"):
            yield _word(name), _word(version)


def _distributions(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The distributions of plugins, and those of vendors' packages, as most of them are named."""
    for verdict in verdicts:
        yield verdict.distribution
        for module in verdict.vendor_import:
            yield normalize_distribution(module.partition(".")[0])


def _hardware() -> Iterator[tuple[str, str]]:
    for vendor in vendors.known_hardware():
        yield vendor.label, str(vendor.evidence)
    if driver := driver_version():
        yield "NVIDIA's driver", driver


def _ranking(survey: Survey | None) -> Iterator[str]:
    """A line on each backend, in rank order: its distribution, priority, status and reason."""
    if survey is None:
        return
    chosen = survey.selection.chosen if survey.selection else None
    for rank, verdict in enumerate(survey.verdicts, 1):
        states = [verdict.status.value]
        if verdict.why is not None:
            states.append(verdict.why.reason.value)
        if chosen is not None and verdict.is_about(chosen):
            states.append("chosen")
        origin = f"{_word(verdict.name)} ({_word(verdict.distribution)})"
        yield f"{rank}. {origin}, priority {verdict.priority}: {', '.join(states)}"


def _codes(report: Report) -> Iterator[str]:
    """The findings by code, with the backend that each is about; of equal ones the first."""
    for topic in report.topics:
        if topic.failed:
            yield f"! {topic.name}: could not be examined"
        yield from dict.fromkeys(map(_code, topic.findings))


def _code(finding: Finding) -> str:
    about = f"{_word(finding.about)}: " if finding.about else ""
    return f"{finding.level.mark} {about}{_word(finding.code)}"


def _variables(environ: Mapping[str, str]) -> list[str]:
    return [_word(name) for name in sorted(environ) if name.startswith(_VARIABLES)]


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else _NOT_A_WORD


# --- Messages ------------------------------------------------------------------------------------------


def _messages(report: Report) -> Iterator[str]:
    yield one_line(report.verdict)
    for topic in report.topics:
        yield from _messages_of(topic)


def _messages_of(topic: Examined) -> Iterator[str]:
    if topic.failed:
        yield f"! {topic.name}: {one_line(topic.failed)}"
    for finding in topic.findings:
        yield f"{_code(finding)}: {one_line(finding.what)}"
        if finding.step:
            yield f"    next: {one_line(finding.step)}"
        for name, value in finding.facts.items():
            yield f"    {one_line(name)}: {one_line(value)}"


# --- Markdown ------------------------------------------------------------------------------------------


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """A heading and a fenced block, with a fence longer than any in it; nothing without lines."""
    content = list(lines)
    if not content:
        return []
    runs = [run for line in content for run in re.findall(r"~+", line)]
    fence = "~" * max([3, *(len(run) + 1 for run in runs)])
    return [f"**{title}**", "", f"{fence}text", *content, fence, ""]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    return [f"{name:{width}}  {value}" for name, value in listed]
