"""Report packages that run code when a different package is imported, or when Python starts.

Each hook is reported with its distribution and tried in a child process. All hooks run in one
child process first. If this process crashes, each hook runs in a child process of its own. An
entry point is not tried if the package that reads the entry point is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import NamedTuple

from accel_core import Provenance, hardware, is_installed, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.explain.autoload import AutoloadConflict, autoload_conflicts
from accel_core.hardware import vendors
from accel_core.settings import permitted_entry_points
from accel_core.text import one_line
from accel_core.torch_import import TORCH_GROUP, autoload_is_on
from accel_tools.doctor.child_functions import run_hooks
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.doctor.start_files import StartFile, find_start_files

__all__ = ["TOPIC"]


class _EntryPointGroup(NamedTuple):
    """An entry-point group, the package that reads the group, and when the package does so."""

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
    _EntryPointGroup(TORCH_GROUP, "torch", "when torch is imported", called=True),
    _EntryPointGroup(
        "torch_dynamo_backends",
        "torch",
        "when a program passes the entry point's name to torch.compile()",
        by_name=True,
    ),
    _EntryPointGroup(
        "torch.distributed.backends",
        "torch",
        "when a program passes the entry point's name to torch.distributed",
        by_name=True,
    ),
    _EntryPointGroup("triton.backends", "triton", "when triton is imported"),
    _EntryPointGroup(
        "bitsandbytes.backends",
        "bitsandbytes",
        "when bitsandbytes is imported",
        called=True,
    ),
    _EntryPointGroup(
        "vllm.platform_plugins", "vllm", "when vLLM looks for its platform", called=True
    ),
    _EntryPointGroup("vllm.general_plugins", "vllm", "when vLLM starts"),
    _EntryPointGroup(
        "sglang.srt.platforms",
        "sglang",
        "when SGLang looks for its platform",
        called=True,
    ),
    _EntryPointGroup("verl.plugins", "verl", "when verl is imported"),
    _EntryPointGroup(
        ENTRY_POINT_GROUP, "accel_core", "when accel_core chooses or lists accelerators"
    ),
)
#: Groups whose entry points this topic does not try itself, because `autoload_conflicts` and the probes of
#: backends try them.
_TRIED_ELSEWHERE = (TORCH_GROUP, ENTRY_POINT_GROUP)


class _Hook(NamedTuple):
    """Code of a package that Python runs at its start, or that a different package runs."""

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


def _examine_hooks(context: DiagnosticContext) -> Iterator[Finding]:
    hooks: list[_Hook] = []
    has_hooks = False
    for group in _GROUPS:
        entry_points = _read_entry_points(group)
        if entry_points:
            has_hooks = True
            yield _group_finding(group, entry_points)
            hooks += _hooks_to_try(group, entry_points)
    files = find_start_files()
    if files:
        has_hooks = True
        yield _start_files_finding(files)
        hooks += [_start_file_hook(file) for file in files]
    if not has_hooks:
        what = "no package runs code when a different package is imported"
        yield Finding(Level.OK, "import-hooks.none", what)
    yield from _failed_hook_findings(hooks, context.settings.probe_timeout)


# --- What is declared ----------------------------------------------------------------


def _read_entry_points(group: _EntryPointGroup) -> list[Provenance]:
    """Return the group's entry points, sorted by distribution and name.

    The entry points of accel-train are left out, because they do nothing in a program that accel-train
    has not started.
    """
    entry_points = []
    for entry_point in packages.entry_points(group.name):
        if entry_point.distribution != "accel-train":
            entry_points.append(entry_point)
    return sorted(entry_points, key=lambda entry: (entry.distribution, entry.name))


def _group_finding(
    group: _EntryPointGroup, entry_points: Sequence[Provenance]
) -> Finding:
    """Return the finding about the distributions that have entry points in a group."""
    facts = {}
    for entry_point in entry_points:
        declaration = f"{one_line(entry_point.name)} = {one_line(entry_point.value)}"
        facts[declaration] = _distribution_and_version(entry_point)
    packages_without_duplicates = list(dict.fromkeys(facts.values()))
    verb = "runs" if len(packages_without_duplicates) == 1 else "run"
    subject = ", ".join(packages_without_duplicates)
    what = f"{group.name}: {subject} {verb} code {group.when}"
    if not is_installed(group.reader):
        what += f" ({group.reader} is not installed)"
    return Finding(Level.OK, "import-hooks.group", what, facts=facts)


def _distribution_and_version(entry_point: Provenance) -> str:
    return f"{one_line(entry_point.distribution)} {one_line(entry_point.version)}"


def _hooks_to_try(
    group: _EntryPointGroup, entry_points: Sequence[Provenance]
) -> Iterator[_Hook]:
    """Yield the hooks of the permitted entry points that this topic tries."""
    if group.name in _TRIED_ELSEWHERE or not is_installed(group.reader):
        return
    permitted = permitted_entry_points(group.name)
    for entry_point in entry_points:
        # An entry point in torch's own wheel may need a package that torch does not install (nccl4py
        # in torch 2.15). It fails only in programs that use the entry point's name.
        is_own = entry_point.distribution == group.reader
        is_optional = group.by_name and is_own
        if entry_point in permitted and not is_optional:
            yield _entry_point_hook(group, entry_point)


def _entry_point_hook(group: _EntryPointGroup, entry_point: Provenance) -> _Hook:
    """Return the hook that loads an entry point as the group's reader does."""
    name, value = one_line(entry_point.name), one_line(entry_point.value)
    distribution = one_line(entry_point.distribution)
    return _Hook(
        owner=_distribution_and_version(entry_point),
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
    """Return the finding about the files that run code when Python starts."""
    facts = {}
    for file in files:
        distribution = file.distribution or "no distribution"
        facts[file.path] = f"{distribution}: {'; '.join(file.lines)}"
    subject = "one file runs" if len(files) == 1 else f"{len(files)} files run"
    what = f"{subject} code whenever Python starts"
    return Finding(Level.OK, "import-hooks.start", what, facts=facts)


def _start_file_hook(file: StartFile) -> _Hook:
    """Return the hook that runs the code of a start-up file."""
    step = f"repair or remove {file.path}"
    if file.distribution:
        name = file.distribution.partition(" ")[0]
        step = vendors.reinstall_command(name)
    return _Hook(
        owner=file.path,
        where=file.distribution or "of no distribution",
        when="whenever Python starts",
        step=step,
        job={"what": f"running {file.path}", "lines": file.lines},
    )


# --- What fails ----------------------------------------------------------------------


def _failed_hook_findings(hooks: Sequence[_Hook], timeout: float) -> Iterator[Finding]:
    """Try the hooks and torch's autoload, and yield findings about the failures.

    Failures of the same package at the same time, with the same error, are one finding.
    """
    failures, conflicts = _find_failures_and_conflicts(hooks, timeout)
    # Several hooks of a package may fail in the same way, which is one finding.
    groups: dict[tuple[str, str, str], list[_Failure]] = {}
    for failure in failures:
        if not _is_reported_by_conflict(failure, conflicts):
            hook = failure.hook
            key = (hook.owner, hook.when, failure.error)
            groups.setdefault(key, []).append(failure)
    for equal_failures in groups.values():
        yield _failure_finding(equal_failures)
    for conflict in conflicts:
        yield _autoload_finding(conflict)


def _find_autoload_conflicts(timeout: float) -> tuple[AutoloadConflict, ...]:
    """Return the conflicts of packages with torch's autoload.

    The result is empty if the autoload is off.
    """
    if not is_installed("torch") or not autoload_is_on():
        return ()
    return autoload_conflicts(None, timeout)


def _find_failures_and_conflicts(
    hooks: Sequence[_Hook], timeout: float
) -> tuple[list[_Failure], Sequence[AutoloadConflict]]:
    """Return the failures of the hooks, and the conflicts with torch's autoload.

    Both run in child processes that import torch, so they run in parallel. Both results are empty if no
    process can be started.
    """
    try:
        # The conflicts are searched in a second thread, to save time.
        with ThreadPoolExecutor(max_workers=1) as pool:
            try:
                conflicts = pool.submit(_find_autoload_conflicts, timeout)
            except RuntimeError:  # No thread can be started.
                pool.shutdown(cancel_futures=True)
                return _find_failures(hooks, timeout), _find_autoload_conflicts(timeout)
            failures = _find_failures(hooks, timeout)
            return failures, conflicts.result()
    except OSError:  # The topic `candidates` reports that no process can be started.
        return [], ()


def _is_reported_by_conflict(
    failure: _Failure, conflicts: Sequence[AutoloadConflict]
) -> bool:
    """Return whether the reason of a conflict with torch's autoload already names the failure."""
    for conflict in conflicts:
        reason = conflict.reason
        if failure.hook.owner in reason and failure.error in reason:
            return True
    return False


def _failure_finding(failures: Sequence[_Failure]) -> Finding:
    """Return the finding about failures of the same package with the same error."""
    first = failures[0]
    owner, when = first.hook.owner, first.hook.when
    where = "; ".join(failure.hook.where for failure in failures)
    if first.timed_out:
        what = (
            f"could not determine whether {owner} ({where}) works {when}: {first.error}"
        )
        step = "allow more time: --timeout 300"
        return Finding(Level.WARNING, "import-hooks.unknown", what, step)
    what = f"{owner} ({where}) fails {when}"
    step = first.hook.step
    return Finding(Level.WARNING, "import-hooks.fails", what, step, cause=first.error)


def _autoload_finding(conflict: AutoloadConflict) -> Finding:
    """Return the finding about a package that fails, or may fail, when torch imports the package."""
    is_certain = conflict.is_certain
    level = Level.ERROR if is_certain else Level.WARNING
    code = "import-hooks.torch-fails" if is_certain else "import-hooks.unknown"
    return Finding(
        level,
        code,
        conflict.reason,
        conflict.hint,
        cause=conflict.cause,
        shows_cause=False,
    )


# --- In child processes --------------------------------------------------------------


class _HooksRun(NamedTuple):
    """The result of a child process that ran hooks one after the other."""

    #: The errors of failed hooks, by the hook's index.
    errors: dict[int, str]
    #: How the process ended, or an empty string if it ran all hooks.
    ending: str = ""
    #: The index of the hook that was running when the process ended, or `None` if no hook was running.
    last_index: int | None = None
    timed_out: bool = False


def _find_failures(hooks: Sequence[_Hook], timeout: float) -> list[_Failure]:
    """Run the hooks in child processes, and return the failures in the order of the hooks.

    `timeout` is the time limit of a child process in seconds.
    """
    if not hooks:
        return []
    run = _run_in_child_process(hooks, timeout)
    failures: dict[int, _Failure] = {}
    for index, error in run.errors.items():
        failures[index] = _Failure(hooks[index], error)
    has_ended_early = run.ending != ""
    if has_ended_early:
        # The remaining hooks are run in processes of their own. A thread of an earlier hook may have
        # terminated the process, so the last hook is among them, unless it exceeded the time limit.
        first_remaining = run.last_index or 0
        if run.timed_out and run.last_index is not None:
            hook = hooks[run.last_index]
            failures[run.last_index] = _Failure(hook, run.ending, timed_out=True)
            first_remaining = run.last_index + 1
        indices = range(first_remaining, len(hooks))
        failures.update(_find_failures_separately(hooks, indices, timeout))
    return [failures[index] for index in sorted(failures)]


def _find_failures_separately(
    hooks: Sequence[_Hook], indices: Sequence[int], timeout: float
) -> Iterator[tuple[int, _Failure]]:
    """Run each of the hooks at `indices` in a child process of its own.

    Yields the index and the failure of each hook that fails.
    """
    from accel_core.sandbox import child

    def run_one_hook(index: int) -> _HooksRun:
        return _run_in_child_process([hooks[index]], timeout)

    runs = child.run_in_parallel(run_one_hook, indices, hardware.usable_cores())
    for index, run in zip(indices, runs, strict=True):
        # The process ran one hook, which has the index 0 there.
        error = run.errors.get(0, run.ending)
        if error:
            yield index, _Failure(hooks[index], error, run.timed_out)


def _run_in_child_process(hooks: Sequence[_Hook], timeout: float) -> _HooksRun:
    """Run the hooks in one child process with a time limit of `timeout` seconds."""
    from accel_core.sandbox import child

    report = child.run(run_hooks, {"hooks": [hook.job for hook in hooks]}, timeout)
    if report.answer is not None:
        return _HooksRun(_with_integer_keys(report.answer))
    ending = f"its process {report.ending}"
    if report.timed_out:
        ending = f"no response within {report.timeout:g} s"
    if not report.stage_facts:  # The child ended before the first hook.
        return _HooksRun({}, ending, timed_out=report.timed_out)
    return _HooksRun(
        errors=_with_integer_keys(report.stage_facts["errors"]),
        ending=ending,
        last_index=report.stage_facts["index"],
        timed_out=report.timed_out,
    )


def _with_integer_keys(errors: dict[str, object]) -> dict[int, str]:
    """Return the errors with integer keys; JSON has converted the keys to strings."""
    return {int(index): str(error) for index, error in errors.items()}


TOPIC = Topic("import-hooks", "Import-time hooks", _examine_hooks)
