"""Packages that run code when another package is imported, or when Python starts.

Each is reported with its distribution, and tried in a child process: first all in one, then each in its own
if that child crashes. A file is not tried if the package that reads it is not installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from accel_core import Provenance, hardware, is_installed, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.explain.autoload import AutoloadConflict, autoload_conflicts
from accel_core.settings import permitted_entry_points
from accel_core.text import one_line
from accel_core.torch_import import TORCH_GROUP, autoload_is_on
from accel_tools.doctor.in_child import try_acts
from accel_tools.doctor.records import Finding, Level, Topic, Visit
from accel_tools.doctor.start_files import StartFile, start_files

__all__ = ["TOPIC"]


class _Group(NamedTuple):
    """An entry-point group, who reads it and when."""

    name: str
    #: The package that reads it.
    reader: str
    #: When it is read, as a clause.
    when: str
    #: Whether what the entry point names is called at once, without arguments.
    called: bool = False
    #: Whether the reader loads an entry point only when a program asks for its name.
    by_name: bool = False


#: torch/__init__.py, `_import_device_backends`, and torch/_dynamo/backends/registry.py (2.13); 2.15 reads
#: torch.distributed.backends. triton/backends/__init__.py, `_discover_backends` (3.x);
#: bitsandbytes/__init__.py, `_import_backends` (0.50); vllm/plugins/__init__.py, vllm/platforms/__init__.py
#: (0.33); sglang/srt/platforms/__init__.py (0.5); verl.plugins: verl 0.9.
_GROUPS = (
    _Group(TORCH_GROUP, "torch", "when torch is imported", called=True),
    _Group(
        "torch_dynamo_backends",
        "torch",
        "when torch.compile() is given its name",
        by_name=True,
    ),
    _Group(
        "torch.distributed.backends",
        "torch",
        "when torch.distributed is given its name",
        by_name=True,
    ),
    _Group("triton.backends", "triton", "when triton is imported"),
    _Group(
        "bitsandbytes.backends",
        "bitsandbytes",
        "when bitsandbytes is imported",
        called=True,
    ),
    _Group(
        "vllm.platform_plugins", "vllm", "when vLLM looks for its platform", called=True
    ),
    _Group("vllm.general_plugins", "vllm", "when vLLM starts"),
    _Group(
        "sglang.srt.platforms",
        "sglang",
        "when SGLang looks for its platform",
        called=True,
    ),
    _Group("verl.plugins", "verl", "when verl is imported"),
    _Group(ENTRY_POINT_GROUP, "accel_core", "when accel_core chooses or lists"),
)
#: Tried elsewhere: as torch does it, and by the verdicts on the backends.
_TRIED = (TORCH_GROUP, ENTRY_POINT_GROUP)
#: What is said where nothing came in time.
_LATE = "no response"


class _Act(NamedTuple):
    """One thing to try."""

    #: The distribution with its version, or the file.
    who: str
    #: Where it stands: `"torch_dynamo_backends: npu = torch_npu.dynamo:entry"`.
    where: str
    when: str
    #: What helps against it.
    step: str
    job: dict[str, object]


def _examine(visit: Visit) -> Iterator[Finding]:
    found = {
        # accel-train's own does nothing unless a parent process asks for it.
        group.name: [
            e
            for e in packages.entry_points(group.name)
            if e.distribution != "accel-train"
        ]
        for group in _GROUPS
    }
    acts: list[_Act] = []
    for group in _GROUPS:
        announced = sorted(found[group.name], key=lambda e: (e.distribution, e.name))
        if not announced:
            continue
        read = is_installed(group.reader)
        yield _acting(group, announced, read=read)
        if read and group.name not in _TRIED:
            # torch's wheel may name what it lacks (2.15: nccl4py), which no program has asked for.
            others = [
                e
                for e in announced
                if not (group.by_name and e.distribution == group.reader)
            ]
            acts += [
                _act(group, e)
                for e in others
                if e in permitted_entry_points(group.name)
            ]
    files = start_files()
    if files:
        yield _starting(files)
    acts += [_start(file) for file in files]
    if not acts and not any(found.values()):
        yield Finding(
            Level.OK,
            "import-hooks.nobody",
            "no package runs code when another one is imported",
        )
    yield from _tried_all(acts, visit.settings.probe_timeout)


def _tried_all(acts: Sequence[_Act], timeout: float) -> Iterator[Finding]:
    """Yield what fails of `acts` and of torch's autoload; failures with one reason are one finding."""
    from accel_core.sandbox import child

    looks: list[Callable[[], Any]] = [
        lambda: _failures(acts, timeout),
        lambda: _spoilers(timeout),
    ]
    failures, spoiling = child.run_in_parallel(
        lambda look: look(), looks, len(looks)
    )  # each imports torch
    alike: dict[tuple[str, str, str], list[_Act]] = {}
    for act, how in failures:
        if not any(
            act.who in spoiler.reason and how in spoiler.reason for spoiler in spoiling
        ):
            alike.setdefault((act.who, act.when, how), []).append(act)
    for (who, when, how), group in alike.items():
        where = "; ".join(act.where for act in group)
        if how.startswith(_LATE):
            what = f"whether {who} ({where}) works {when} is not known: {how}"
            yield Finding(
                Level.WARNING,
                "import-hooks.unknown",
                what,
                "give it longer: --timeout 300",
            )
        else:
            what = f"{who} ({where}) fails {when}: {how}"
            yield Finding(Level.WARNING, "import-hooks.fails", what, group[0].step)
    for spoiler in spoiling:
        if spoiler.known:
            yield Finding(
                Level.ERROR, "import-hooks.torch-fails", spoiler.reason, spoiler.hint
            )
        else:
            yield Finding(
                Level.WARNING, "import-hooks.unknown", spoiler.reason, spoiler.hint
            )


def _spoilers(timeout: float) -> tuple[AutoloadConflict, ...]:
    return (
        autoload_conflicts(None, timeout)
        if is_installed("torch") and autoload_is_on()
        else ()
    )


def _acting(
    group: _Group, entry_points: Sequence[Provenance], *, read: bool
) -> Finding:
    who = list(
        dict.fromkeys(
            f"{one_line(e.distribution)} {one_line(e.version)}" for e in entry_points
        )
    )
    idle = "" if read else f", if {group.reader} were installed"
    facts = {f"{one_line(e.name)} = {one_line(e.value)}": f"{one_line(e.distribution)} {one_line(e.version)}"
             for e in entry_points}  # fmt: skip
    what = f"{group.name}: {', '.join(who)} {'acts' if len(who) == 1 else 'act'} {group.when}{idle}"
    return Finding(Level.OK, "import-hooks.group", what, facts=facts)


def _starting(files: Sequence[StartFile]) -> Finding:
    facts = {
        file.path: f"{file.distribution or 'no distribution'}: {'; '.join(file.lines)}"
        for file in files
    }
    number = "one file runs" if len(files) == 1 else f"{len(files)} files run"
    return Finding(
        Level.OK,
        "import-hooks.start",
        f"{number} code whenever Python starts",
        facts=facts,
    )


def _act(group: _Group, package: Provenance) -> _Act:
    return _Act(
        f"{one_line(package.distribution)} {one_line(package.version)}",
        f"{group.name}: {one_line(package.name)} = {one_line(package.value)}",
        group.when,
        f"pip install --upgrade {one_line(package.distribution)}, or pip uninstall it",
        {
            "what": f"importing {package.module}",
            "entry_point": asdict(package),
            "call": group.called,
        },
    )


def _start(file: StartFile) -> _Act:
    name = file.distribution.partition(" ")[0]
    step = (
        f"pip install --force-reinstall {name}"
        if name
        else f"repair or remove {file.path}"
    )
    return _Act(
        file.path,
        file.distribution or "of no distribution",
        "whenever Python starts",
        step,
        {"what": f"running {file.path}", "lines": file.lines},
    )


# --- In child processes --------------------------------------------------------------------------------


def _failures(acts: Sequence[_Act], timeout: float) -> list[tuple[_Act, str]]:
    """Those that fail, each with how; `timeout`: seconds for each."""
    if not acts:
        return []
    from accel_core.sandbox import child

    tried = _tried(acts, timeout)
    wrong = dict(tried.wrong)
    if tried.hangs:
        wrong[tried.at] = tried.ending
    if tried.ending:  # who was at work when it died need not be to blame: another's thread may have ended it
        rest = range(tried.at + tried.hangs, len(acts))
        alone = child.run_in_parallel(
            lambda i: _tried(acts[i : i + 1], timeout), rest, hardware.usable_cores()
        )
        hows = (
            (index, found.wrong.get(0) or found.ending)
            for index, found in zip(rest, alone, strict=True)
        )
        wrong.update((index, how) for index, how in hows if how)
    return [(acts[index], wrong[index]) for index in sorted(wrong)]


class _Tried(NamedTuple):
    """Report of a child process."""

    #: How they fail, by number.
    wrong: dict[int, str]
    #: How the process ended before it had tried all; empty where it had.
    ending: str = ""
    #: The one that was at work then.
    at: int = 0
    #: Whether it is to blame, for it did not come back.
    hangs: bool = False


def _tried(acts: Sequence[_Act], timeout: float) -> _Tried:
    from accel_core.sandbox import child

    report = child.run(try_acts, {"jobs": [act.job for act in acts]}, timeout)
    if report.answer is not None:
        return _Tried({int(index): str(how) for index, how in report.answer.items()})
    ending = (
        f"{_LATE} within {report.waited:g} s"
        if report.timed_out
        else f"its process {report.ending}"
    )
    if not report.stage.startswith("["):
        return _Tried({}, ending)
    _, at, told = json.loads(report.stage)
    wrong = {int(index): str(how) for index, how in told.items()}
    return _Tried(wrong, ending, int(at), report.timed_out)


TOPIC = Topic("import-hooks", "Import-time hooks", _examine)
