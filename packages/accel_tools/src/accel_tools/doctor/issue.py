"""Format the report as Markdown for a public bug report.

The Markdown contains codes, statuses, versions, names and the platform. Messages may contain
private information, so they are added only on request.
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

#: The reason why messages are left out by default. The help of the command contains it too.
MESSAGES_WARNING = "Messages may contain paths, host names and names of people"
#: Prefixes of variables that configure a device, its runtime or a launch.
_VARIABLE_PREFIXES = (
    "ACCEL_", "ACCELERATE_", "ASCEND_", "BIREN_", "CANN_", "CNCL_", "CUDA_", "DS_", "HABANA_", "HCCL_",
    "HIP_", "HSA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCAL_", "MASTER_", "MCCL_", "MLU_", "MTHREADS_",
    "MUSA_", "NCCL_", "NEUWARE_", "NVIDIA_", "OMP_", "ONEAPI_", "PT_HPU_", "PYTHONPATH", "PYTHONHOME",
    "PYTORCH_", "RANK", "ROCM_", "ROCR_", "SDAA_", "SLURM_JOB_ID", "SYCL_", "TORCH_", "WORLD_SIZE", "XPU_",
    "ZE_",
)  # fmt: skip
#: The format of names, versions and codes. A plugin or package may have a name in another format, which
#: is not published.
_SAFE_TEXT = re.compile(r"[\w.+!@-]{1,80}", re.ASCII)
_PLACEHOLDER = "(not a name)"


def issue_markdown(
    context: DiagnosticContext, report: Report, *, with_messages: bool = False
) -> str:
    """Return the report as Markdown for an issue on GitHub or GitLab.

    If `with_messages` is true, the texts of the findings are added in a fenced block, so that they are not
    interpreted as Markdown.
    """
    lines = ["### accel doctor", ""]
    if with_messages:
        lines += [f"**{MESSAGES_WARNING}: read them before you post this.**", ""]
    lines += _markdown_section(
        "Versions", _align_columns(_version_rows(context.finished_survey))
    )
    lines += _markdown_section("Hardware", _align_columns(_hardware_rows()))
    lines += _markdown_section("Backends", _backend_lines(context.finished_survey))
    lines += _markdown_section("Findings", _finding_lines(report))
    lines += _markdown_section(
        "Variables that are set", _set_variable_names(context.environ)
    )
    if with_messages:
        lines += _markdown_section("Messages", _message_lines(report))
    return "\n".join(lines).rstrip()


# --- The parts of every report -------------------------------------------------------------------------


def _version_rows(survey: Survey | None) -> Iterator[tuple[str, str]]:
    """Yield the names and versions of Python, of the system and of accelerator packages."""
    yield "accel-core", _name_or_placeholder(__version__)
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    system = platform.system()
    # The rest of a kernel's release may name the organization that built the kernel.
    kernel_version = re.match(r"[\d.]+", platform.release())
    if kernel_version is not None:
        system = f"{system} {kernel_version[0]}".strip()
    yield "platform", f"{system}, {platform.machine()}, {sys.platform}"
    yield "C library", " ".join(platform.libc_ver()).strip() or "unknown"
    yield "torch", _name_or_placeholder(packages.version("torch") or "missing")
    verdicts = survey.verdicts if survey else ()
    names = ["accel-train", "accel-tools", "accel-testing"]
    names += _distribution_names(verdicts)
    without_duplicates = dict.fromkeys(names)
    for name in without_duplicates:
        version = packages.version(name)
        is_listed_above = name in ("torch", "accel-core")
        if version is not None and not is_listed_above:
            yield _name_or_placeholder(name), _name_or_placeholder(version)


def _distribution_names(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield the distributions of plugins and of vendor packages.

    A vendor package's distribution usually has the name of its module, in the form `torch-npu`.
    """
    for verdict in verdicts:
        yield verdict.distribution
        for module in verdict.vendor_import:
            yield normalize_distribution(module.partition(".")[0])


def _hardware_rows() -> Iterator[tuple[str, str]]:
    """Yield the name and the evidence of each accelerator on this machine, and the NVIDIA driver version."""
    for vendor in vendors.known_hardware():
        yield vendor.label, str(vendor.evidence)
    driver = driver_version()
    if driver:
        yield "NVIDIA's driver", driver


def _backend_lines(survey: Survey | None) -> Iterator[str]:
    """Yield a line for each backend with its distribution, priority, status and reason, in rank order."""
    if survey is None:
        return
    chosen = survey.selection.chosen if survey.selection else None
    for rank, verdict in enumerate(survey.verdicts, start=1):
        codes = [verdict.status.value]
        if verdict.why is not None:
            codes.append(verdict.why.reason.value)
        if chosen is not None and verdict.is_about(chosen):
            codes.append("chosen")
        name = _name_or_placeholder(verdict.name)
        distribution = _name_or_placeholder(verdict.distribution)
        yield (
            f"{rank}. {name} ({distribution}), priority {verdict.priority}: "
            f"{', '.join(codes)}"
        )


def _finding_lines(report: Report) -> Iterator[str]:
    """Yield a line for each finding with its level, backend and code, without repetitions in a topic."""
    for topic in report.topics:
        if topic.failed:
            yield f"! {topic.name}: could not be examined"
        lines = [_code_line(finding) for finding in topic.findings]
        without_duplicates = dict.fromkeys(lines)
        yield from without_duplicates


def _code_line(finding: Finding) -> str:
    about = f"{_name_or_placeholder(finding.about)}: " if finding.about else ""
    return f"{finding.level.mark} {about}{_name_or_placeholder(finding.code)}"


def _set_variable_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the set variables that configure devices or launches, without values."""
    names = [name for name in sorted(environ) if name.startswith(_VARIABLE_PREFIXES)]
    return [_name_or_placeholder(name) for name in names]


def _name_or_placeholder(text: str) -> str:
    """Return `text` if it looks like a name, a version or a code, or else a placeholder."""
    return text if _SAFE_TEXT.fullmatch(text) else _PLACEHOLDER


# --- Messages ------------------------------------------------------------------------------------------


def _message_lines(report: Report) -> Iterator[str]:
    yield one_line(report.verdict)
    for topic in report.topics:
        yield from _topic_message_lines(topic)


def _topic_message_lines(topic: TopicResult) -> Iterator[str]:
    if topic.failed:
        yield f"! {topic.name}: {one_line(topic.failed)}"
    for finding in topic.findings:
        yield f"{_code_line(finding)}: {one_line(finding.text)}"
        if finding.step:
            yield f"    next step: {one_line(finding.step)}"
        for name, value in finding.all_facts.items():
            yield f"    {one_line(name)}: {one_line(value)}"


# --- Markdown ------------------------------------------------------------------------------------------


def _markdown_section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading and the lines in a fenced block, or an empty list if there are no lines."""
    content = list(lines)
    if not content:
        return []
    # The fence is longer than each row of tildes in the lines, so that no line can end the block.
    rows_of_tildes = re.findall(r"~+", "\n".join(content))
    longest = max((len(row) for row in rows_of_tildes), default=0)
    fence = "~" * max(3, longest + 1)
    return [f"**{title}**", "", f"{fence}text", *content, fence, ""]


def _align_columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line per row, with all values in the same column."""
    names_and_values = list(rows)
    width = max((len(name) for name, _ in names_and_values), default=0)
    return [f"{name:{width}}  {value}" for name, value in names_and_values]
