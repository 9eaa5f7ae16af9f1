"""Report packages that run code when a different package is imported, or when Python starts.

Each hook is reported with its distribution and tried in a child process. All hooks run in one
child process first. If this process crashes, each hook runs in a separate child process. An
entry point is not tried if the package that reads it is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import NamedTuple

from accel_core import Provenance, hardware, is_installed, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.explain.autoload import AutoloadConflict, autoload_conflicts
from accel_core.settings import permitted_entry_points
from accel_core.text import one_line
from accel_core.torch_import import TORCH_GROUP, autoload_is_on
from accel_tools.doctor.child_functions import run_hooks
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.start_files import StartFile, start_files

__all__ = ["TOPIC"]


class _Group(NamedTuple):
    """An entry-point group, and when which package reads it."""

    name: str
    #: The package that reads the group.
    reader: str
    #: When the package reads the group, as a clause.
    when: str
    #: Whether the package calls the loaded object, without arguments.
    called: bool = False
    #: Whether the package loads an entry point only when a program uses the entry point's name.
    by_name: bool = False


#: All groups. Sources: torch/__init__.py, `_import_device_backends`, and
#: torch/_dynamo/backends/registry.py (2.13); torch 2.15 reads torch.distributed.backends;
#: triton/backends/__init__.py, `_discover_backends` (3.x);
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
#: Groups that this topic does not try: `autoload_conflicts` and the probes of backends try them.
_TRIED_ELSEWHERE = (TORCH_GROUP, ENTRY_POINT_GROUP)


class _Hook(NamedTuple):
    """Code of a package that Python or a different package runs."""

    #: The distribution and its version, or the path of the file.
    owner: str
    #: The declaration, such as `"torch_dynamo_backends: npu = torch_npu.dynamo:entry"`.
    where: str
    #: When the hook runs, as a clause.
    when: str
    #: The next step if the hook fails.
    step: str
    #: The hook in the format of `child_functions.run_hooks`.
    job: dict[str, object]


class _Failure(NamedTuple):
    """A hook that failed, and its error."""

    hook: _Hook
    error: str
    timed_out: bool = False


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    hooks: list[_Hook] = []
    is_anything_found = False
    for group in _GROUPS:
        entry_points = _entry_points(group)
        if entry_points:
            is_anything_found = True
            yield _group_finding(group, entry_points)
            hooks += _tried_entry_points(group, entry_points)
    files = start_files()
    if files:
        is_anything_found = True
        yield _start_files_finding(files)
        hooks += [_start_file_hook(file) for file in files]
    if not is_anything_found:
        what = "no package runs code when a different package is imported"
        yield Finding(Level.OK, "import-hooks.none", what)
    yield from _try_all(hooks, context.settings.probe_timeout)


# --- What is declared ----------------------------------------------------------------


def _entry_points(group: _Group) -> list[Provenance]:
    """Return the group's entry points, sorted by distribution and name.

    The entry points of accel-train are left out, because they do nothing in a program that accel-train
    has not started.
    """
    entry_points = []
    for entry_point in packages.entry_points(group.name):
        if entry_point.distribution != "accel-train":
            entry_points.append(entry_point)
    return sorted(entry_points, key=lambda entry: (entry.distribution, entry.name))


def _group_finding(group: _Group, entry_points: Sequence[Provenance]) -> Finding:
    """Return the finding on the distributions whose code the group's reader runs."""
    facts = {}
    for entry in entry_points:
        facts[f"{one_line(entry.name)} = {one_line(entry.value)}"] = _owner(entry)
    owners = list(dict.fromkeys(facts.values()))
    run = "runs" if len(owners) == 1 else "run"
    what = f"{group.name}: {', '.join(owners)} {run} code {group.when}"
    if not is_installed(group.reader):
        what += f" ({group.reader} is not installed)"
    return Finding(Level.OK, "import-hooks.group", what, facts=facts)


def _owner(entry_point: Provenance) -> str:
    return f"{one_line(entry_point.distribution)} {one_line(entry_point.version)}"


def _tried_entry_points(
    group: _Group, entry_points: Sequence[Provenance]
) -> Iterator[_Hook]:
    """Yield the hooks of the permitted entry points that this topic tries."""
    if group.name in _TRIED_ELSEWHERE or not is_installed(group.reader):
        return
    permitted = permitted_entry_points(group.name)
    for entry_point in entry_points:
        # An entry point in torch's wheel may need a package that torch does not install (nccl4py
        # in torch 2.15). It fails only in programs that use its name.
        is_of_reader = group.by_name and entry_point.distribution == group.reader
        if entry_point in permitted and not is_of_reader:
            yield _entry_point_hook(group, entry_point)


def _entry_point_hook(group: _Group, entry_point: Provenance) -> _Hook:
    name, value = one_line(entry_point.name), one_line(entry_point.value)
    distribution = one_line(entry_point.distribution)
    return _Hook(
        owner=_owner(entry_point),
        where=f"{group.name}: {name} = {value}",
        when=group.when,
        step=f"pip install --upgrade {distribution}, or pip uninstall {distribution}",
        job={
            "what": f"importing {entry_point.module}",
            "entry_point": asdict(entry_point),
            "call": group.called,
        },
    )


def _start_files_finding(files: Sequence[StartFile]) -> Finding:
    facts = {}
    for file in files:
        facts[file.path] = (
            f"{file.distribution or 'no distribution'}: {'; '.join(file.lines)}"
        )
    number = "one file runs" if len(files) == 1 else f"{len(files)} files run"
    what = f"{number} code whenever Python starts"
    return Finding(Level.OK, "import-hooks.start", what, facts=facts)


def _start_file_hook(file: StartFile) -> _Hook:
    step = f"repair or remove {file.path}"
    if file.distribution:
        name = file.distribution.partition(" ")[0]
        step = f"pip install --force-reinstall {name}"
    return _Hook(
        owner=file.path,
        where=file.distribution or "of no distribution",
        when="whenever Python starts",
        step=step,
        job={"what": f"running {file.path}", "lines": file.lines},
    )


# --- What fails ----------------------------------------------------------------------


def _try_all(hooks: Sequence[_Hook], timeout: float) -> Iterator[Finding]:
    """Try the hooks and torch's autoload, and yield one finding per reason of failure."""
    failures, conflicts = _failures_and_conflicts(hooks, timeout)
    by_reason: dict[tuple[str, str, str], list[_Failure]] = {}
    for failure in failures:
        if not _is_reported(failure, conflicts):
            hook = failure.hook
            reason = (hook.owner, hook.when, failure.error)
            by_reason.setdefault(reason, []).append(failure)
    for same in by_reason.values():
        yield _failure_finding(same)
    for conflict in conflicts:
        yield _autoload_finding(conflict)


def _autoload_conflicts(timeout: float) -> tuple[AutoloadConflict, ...]:
    if not is_installed("torch") or not autoload_is_on():
        return ()
    return autoload_conflicts(None, timeout)


def _failures_and_conflicts(
    hooks: Sequence[_Hook], timeout: float
) -> tuple[list[_Failure], Sequence[AutoloadConflict]]:
    """Return the failures of the hooks and of torch's autoload; none if no process can be started."""
    try:
        # In parallel, because both import torch in child processes.
        with ThreadPoolExecutor(max_workers=1) as pool:
            try:
                autoload = pool.submit(_autoload_conflicts, timeout)
            except RuntimeError:  # no thread can be started
                pool.shutdown(cancel_futures=True)
                return _failures(hooks, timeout), _autoload_conflicts(timeout)
            failures = _failures(hooks, timeout)
            return failures, autoload.result()
    except OSError:  # the topic `candidates` reports it
        return [], ()


def _is_reported(failure: _Failure, conflicts: Sequence[AutoloadConflict]) -> bool:
    """Return whether a conflict of torch's autoload already reports the failure."""
    owner, error = failure.hook.owner, failure.error
    return any(
        owner in conflict.reason and error in conflict.reason for conflict in conflicts
    )


def _failure_finding(failures: Sequence[_Failure]) -> Finding:
    """Return the finding on failures that have the same owner and the same error."""
    first = failures[0]
    owner, when = first.hook.owner, first.hook.when
    where = "; ".join(failure.hook.where for failure in failures)
    if first.timed_out:
        what = (
            f"could not determine whether {owner} ({where}) works {when}: {first.error}"
        )
        step = "allow more time: --timeout 300"
        return Finding(Level.WARNING, "import-hooks.unknown", what, step)
    what = f"{owner} ({where}) fails {when}: {first.error}"
    return Finding(Level.WARNING, "import-hooks.fails", what, first.hook.step)


def _autoload_finding(conflict: AutoloadConflict) -> Finding:
    level, code = Level.WARNING, "import-hooks.unknown"
    if conflict.known:
        level, code = Level.ERROR, "import-hooks.torch-fails"
    return Finding(level, code, conflict.reason, conflict.hint)


# --- In child processes --------------------------------------------------------------


class _Run(NamedTuple):
    """Report of a child process that ran hooks one after the other."""

    #: The errors by the hook's index.
    errors: dict[int, str]
    #: How the process ended; empty if it ran all hooks.
    ending: str = ""
    #: The index of the hook that was running when the process ended; `None` if no hook was running.
    last: int | None = None
    timed_out: bool = False


def _failures(hooks: Sequence[_Hook], timeout: float) -> list[_Failure]:
    """Return the hooks that fail; `timeout` is the time limit of a child process in seconds."""
    if not hooks:
        return []
    run = _run(hooks, timeout)
    failures: dict[int, _Failure] = {}
    for index, error in run.errors.items():
        failures[index] = _Failure(hooks[index], error)
    if run.ending:
        # A thread of an earlier hook may have terminated the process, so the last hook is tried again.
        first = run.last or 0
        if run.last is not None and run.timed_out:
            hook = hooks[run.last]
            failures[run.last] = _Failure(hook, run.ending, timed_out=True)
            first = run.last + 1
        failures.update(_failures_alone(hooks, range(first, len(hooks)), timeout))
    return [failures[index] for index in sorted(failures)]


def _failures_alone(
    hooks: Sequence[_Hook], indices: Sequence[int], timeout: float
) -> Iterator[tuple[int, _Failure]]:
    """Run the hooks at `indices` in separate child processes, and yield the index of each that fails."""
    from accel_core.sandbox import child

    runs = child.run_in_parallel(
        lambda index: _run([hooks[index]], timeout), indices, hardware.usable_cores()
    )
    for index, run in zip(indices, runs, strict=True):
        error = run.errors.get(0) or run.ending
        if error:
            yield index, _Failure(hooks[index], error, run.timed_out)


def _run(hooks: Sequence[_Hook], timeout: float) -> _Run:
    """Run the hooks in one child process with a time limit of `timeout` seconds."""
    from accel_core.sandbox import child

    report = child.run(run_hooks, {"hooks": [hook.job for hook in hooks]}, timeout)
    if report.answer is not None:
        return _Run(_by_index(report.answer))
    ending = f"its process {report.ending}"
    if report.timed_out:
        ending = f"no response within {report.waited:g} s"
    if not report.stage_facts:  # The child ended before the first hook.
        return _Run({}, ending, timed_out=report.timed_out)
    errors = _by_index(report.stage_facts["errors"])
    return _Run(errors, ending, report.stage_facts["index"], report.timed_out)


def _by_index(errors: dict[str, object]) -> dict[int, str]:
    """Return the errors with integer keys; JSON has converted the keys to strings."""
    return {int(index): str(error) for index, error in errors.items()}


TOPIC = Topic("import-hooks", "Import-time hooks", _examine)
