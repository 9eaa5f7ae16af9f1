"""Experiments with the settings that a process inherits: limits, signals, processors, umask and scheduling.

A program inherits these settings from the process that starts it, as it inherits environment variables. No
error names them.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from accel_core import hardware
from accel_tools.doctor.experiments.search import (
    Experiment,
    failure_matches,
    fixed_step,
)
from accel_tools.doctor.experiments.trial import Change, Outcome, Program

#: Signals that Python itself ignores (https://docs.python.org/3/library/signal.html).
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
#: The names of scheduling policies on Linux, by number (sched(7)).
_POLICIES = {1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH", 5: "SCHED_IDLE"}
#: A pattern of the errors of system calls that a seccomp filter forbids.
_ERRORS_OF_FILTER = (
    r"not permitted|not implemented|SIGSYS|[Pp]ermission denied|EPERM|ENOSYS"
)
#: A pattern of the errors of programs that do not reach a service or an address.
_ERRORS_OF_NETWORK = r"[Rr]efused|[Uu]nreachable|not known|timed out"
#: The usual umask, with which other users may read new files.
_USUAL_UMASK = 0o022
#: The actual machine of a 64-bit process, by the 32-bit machine that `setarch` makes it appear as.
MACHINES_OF_64_BIT = {
    "i386": "x86_64",
    "i686": "x86_64",
    "armv7l": "aarch64",
    "armv8l": "aarch64",
}
#: A Python program that unblocks all signals and then replaces itself with the command in its arguments.
_UNBLOCKED = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_SETMASK, ()); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def process_setting_experiments(_program: Program) -> Iterator[Experiment]:
    """Yield one experiment for each setting of this process that is not the usual one."""
    yield from _limit_experiments()
    yield from _signal_experiments()
    yield from _processor_experiments()
    yield from _umask_experiments()
    yield from _closed_input_experiments()
    yield from _inherited_file_experiments()
    yield from _scheduling_experiments()
    yield from _personality_experiments()


# --- Limits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limit:
    """A resource limit of the process."""

    #: The limit's name in the module `resource`.
    name: str
    #: The limit's option of the shell command `ulimit`.
    option: str
    #: The limited resource, for people.
    what: str
    #: A pattern of the errors of a program that reaches the limit.
    pattern: str
    #: The number of bytes in one unit of `ulimit`; 1 for limits that are not in bytes.
    unit: int = 1
    #: The usual value, if a much higher value has a cost: Linux reserves more memory for each thread, or a
    #: program closes each file that it could have open. Otherwise, 0.
    usual: int = 0


_LIMITS = (
    _Limit(
        "RLIMIT_AS",
        "-v",
        "virtual memory",
        r"failed to map|[Cc]annot allocate|MemoryError|bad_alloc|out of memory|SIGABRT|SIGSEGV",
        1024,
    ),
    _Limit("RLIMIT_DATA", "-d", "data size", r"[Cc]annot allocate|MemoryError", 1024),
    _Limit(
        "RLIMIT_NOFILE",
        "-n",
        "open files",
        r"[Tt]oo many open files|EMFILE",
        usual=65536,
    ),
    _Limit(
        "RLIMIT_NPROC",
        "-u",
        "processes and threads",
        r"start new thread|temporarily unavailable|pthread_create",
    ),
    _Limit(
        "RLIMIT_STACK", "-s", "stack size", r"SIGSEGV|recursion", 1024, usual=8 * 2**20
    ),
    _Limit("RLIMIT_MEMLOCK", "-l", "locked memory", r"lock", 1024),
    _Limit("RLIMIT_FSIZE", "-f", "file size", r"File too large|SIGXFSZ", 1024),
    _Limit("RLIMIT_CPU", "-t", "CPU time", r"SIGXCPU|SIGKILL"),
)


class _LimitValue(NamedTuple):
    """The soft and the hard value of a resource limit; -1 means unlimited."""

    soft: int
    hard: int


_UNLIMITED = _LimitValue(-1, -1)


def _limit_experiments() -> Iterator[Experiment]:
    """Yield one experiment with a higher value of each limit that this user may raise.

    Limits that are too high follow, with their usual value.
    """
    for limit, value in _finite_limits():
        higher = _highest_permitted(limit, value)
        if higher is None:
            continue
        yield Experiment(
            change=Change(limits=((limit.name, (higher.soft, higher.hard)),)),
            name=_describe_limit(limit, value),
            step=fixed_step(_limit_step(limit, higher)),
            is_likely=failure_matches(limit.pattern),
        )

    for limit, value in _excessive_limits():
        usual = _LimitValue(limit.usual, value.hard)
        yield Experiment(
            change=Change(limits=((limit.name, (usual.soft, usual.hard)),)),
            name=_describe_limit(limit, value),
            step=fixed_step(_limit_step(limit, usual)),
        )


def _limit_step(limit: _Limit, higher: _LimitValue) -> str:
    is_unlimited = higher.soft < 0  # RLIM_INFINITY is -1.
    number = "unlimited" if is_unlimited else str(higher.soft // limit.unit)
    return (
        f"run `ulimit {limit.option} {number}` where the limit is set: in the shell, "
        "job or container that starts the program"
    )


def _describe_limit(limit: _Limit, value: _LimitValue) -> str:
    number = "unlimited" if value.soft < 0 else value.soft // limit.unit
    return f"the limit on {limit.what} (`ulimit {limit.option}` is {number})"


def step_for_limit(outcome: Outcome) -> str:
    """Return the step that raises a resource limit that the error names, or an empty string.

    The limit must be one that this user may raise.
    """
    for limit, value in _finite_limits():
        if outcome.matches(limit.pattern):
            higher = _highest_permitted(limit, value)
            if higher is not None:
                return _limit_step(limit, higher)
    return ""


def describe_fixed_settings(outcome: Outcome) -> list[str]:
    """Describe the settings that may explain a failure, but that no experiment can change.

    These are resource limits that this user may not raise, a filter of system calls, and a network namespace.
    """
    clauses = []
    for limit, value in _finite_limits():
        is_fixed = _highest_permitted(limit, value) is None
        if is_fixed and outcome.matches(limit.pattern):
            clauses.append(
                f"{_describe_limit(limit, value)}, which this user is not permitted to raise"
            )
    # The value 2 means that a filter is active (proc_pid_status(5)). A filter stays until the process ends.
    has_filter = "Seccomp:\t2" in hardware.read_text("/proc/self/status")
    if has_filter and outcome.matches(_ERRORS_OF_FILTER):
        clauses.append("the seccomp filter of this process, which forbids system calls")
    if _has_own_network() and outcome.matches(_ERRORS_OF_NETWORK):
        clauses.append(
            "the network namespace of this process, which is not that of the system's first process"
        )
    return clauses


def _has_own_network() -> bool:
    """Return whether the network namespace of this process is known to differ from that of process 1."""
    try:
        own, first = (
            os.readlink(f"/proc/{process}/ns/net")  # noqa: PTH115
            for process in ("self", "1")
        )
    except OSError:  # Only root may read the namespaces of process 1.
        return False
    return own != first


def _finite_limits() -> Iterator[tuple[_Limit, _LimitValue]]:
    """Yield each resource limit of this process that is not unlimited, with its value."""
    for limit, value in _all_limits():
        if value.soft >= 0:
            yield limit, value


def _excessive_limits() -> Iterator[tuple[_Limit, _LimitValue]]:
    """Yield each resource limit of this process that is more than ten times the usual limit."""
    for limit, value in _all_limits():
        is_high = value.soft < 0 or value.soft > 10 * limit.usual
        if limit.usual and is_high:
            yield limit, value


def _all_limits() -> Iterator[tuple[_Limit, _LimitValue]]:
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit in _LIMITS:
        resource_id = getattr(resource, limit.name, None)
        if resource_id is None:
            continue
        soft, hard = resource.getrlimit(resource_id)
        # RLIM_INFINITY is a large positive number on some systems.
        if soft == resource.RLIM_INFINITY:
            soft = -1
        if hard == resource.RLIM_INFINITY:
            hard = -1
        yield limit, _LimitValue(soft, hard)


def _highest_permitted(limit: _Limit, value: _LimitValue) -> _LimitValue | None:
    """Return the highest value to which this user may raise the limit, or `None` if there is none.

    The value is the hard limit. If the soft limit already equals the hard limit, the value is unlimited.
    """
    if value.soft != value.hard:
        return _LimitValue(value.hard, value.hard)
    if _may_set_limit(limit.name, _UNLIMITED):
        return _UNLIMITED
    return None


@functools.cache
def _may_set_limit(name: str, value: _LimitValue) -> bool:
    """Return whether this user may set the limit called `name` to `value`.

    A child process tries to set the limit, because even root may lack the permission.
    """
    program = (
        f"import resource; resource.setrlimit(resource.{name}, {tuple(value)!r}); "
        "print('permitted')"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    try:
        completed = subprocess.run(command, capture_output=True, check=False)
    except OSError:  # A limit prevents even this process.
        return False
    # If this process ignores SIGCHLD, the exit status is unknown.
    return completed.stdout.strip() == b"permitted"


# --- Signals, processors, umask, scheduling --------------------------------------------


def _signal_experiments() -> Iterator[Experiment]:
    """Yield an experiment with each signal that this process ignores, and one with those that it blocks."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return
    for number in sorted(signal.valid_signals()):
        name = _signal_name(number)
        is_ignored = signal.getsignal(number) == signal.SIG_IGN
        if is_ignored and name not in _IGNORED_BY_PYTHON:
            yield Experiment(
                change=Change(default_signals=frozenset({int(number)})),
                name=f"the inherited setting that ignores {name}",
                step=fixed_step(
                    f"start the program with `env --default-signal={name.removeprefix('SIG')} COMMAND`"
                ),
            )
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    if blocked:
        names = ", ".join(_signal_name(number) for number in sorted(blocked))
        yield Experiment(
            change=Change(default_signals=frozenset(map(int, blocked))),
            name=f"the inherited setting that blocks {names}",
            step=fixed_step(
                f"start the program with `python -c '{_UNBLOCKED}' COMMAND`"
            ),
        )


def _signal_name(number: int) -> str:
    """Return the name of a signal, such as `"SIGCHLD"`, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # A real-time signal.
        return str(number)


def _processor_experiments() -> Iterator[Experiment]:
    """Yield an experiment with all processors, if this process may use only some of them."""
    if not hasattr(os, "sched_getaffinity"):  # macOS and Windows
        return
    usable = os.sched_getaffinity(0)
    count = os.cpu_count() or 1
    if len(usable) >= count:
        return
    listed = ",".join(str(processor) for processor in sorted(usable))
    yield Experiment(
        change=Change(processors=frozenset(range(count))),
        name=f"the restriction to the processors {listed} of 0 to {count - 1}",
        step=fixed_step(
            f"start the program with `taskset --cpu-list 0-{count - 1} COMMAND`"
        ),
    )


def _umask_experiments() -> Iterator[Experiment]:
    """Yield an experiment with the usual umask, if this process has a different one."""
    status = hardware.read_text("/proc/self/status")
    match = re.search(r"^Umask:\s*(\d+)", status, re.MULTILINE)
    if match is None or int(match[1], 8) == _USUAL_UMASK:
        return
    yield Experiment(
        change=Change(umask=_USUAL_UMASK),
        name=f"the umask {match[1]}",
        step=fixed_step(f"umask {_USUAL_UMASK:03o}"),
    )


def _closed_input_experiments() -> Iterator[Experiment]:
    """Yield an experiment with an empty standard input, if that of this process is closed.

    The first file that a program opens then gets the descriptor 0, which some runtimes take for an error.
    """
    if sys.stdin is None:
        yield Experiment(
            change=Change(empty_input=True),
            name="the closed standard input",
            step=fixed_step(
                "start the program with an empty standard input: < /dev/null"
            ),
        )


def _inherited_file_experiments() -> Iterator[Experiment]:
    """Yield an experiment without the open files that this process has inherited, if there are any."""
    count = _count_inherited_files()
    if count:
        yield Experiment(
            change=Change(without_inherited_files=True),
            name=f"{count} open files that the parent process passes on",
            step=fixed_step(
                "close these files in the process that starts the program, or do not let the program inherit "
                "them: `ls -l /proc/self/fd` lists them"
            ),
        )


def _count_inherited_files() -> int:
    """Return the number of inherited open files, without the standard streams."""
    count = 0
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return 0
    for descriptor in descriptors:
        try:
            is_inherited = os.get_inheritable(int(descriptor))
        except OSError:  # The descriptor of the listing itself is closed by now.
            continue
        if is_inherited and int(descriptor) > 2:
            count += 1
    return count


def _scheduling_experiments() -> Iterator[Experiment]:
    """Yield an experiment with normal scheduling, if this process has a different scheduling policy."""
    if not hasattr(os, "sched_getscheduler"):
        return
    policy = os.sched_getscheduler(0)
    if policy != os.SCHED_OTHER:
        yield Experiment(
            change=Change(normal_scheduling=True),
            name=f"the scheduling policy {_POLICIES.get(policy, policy)}",
            step=fixed_step("start the program with `chrt --other 0 COMMAND`"),
        )


def _personality_experiments() -> Iterator[Experiment]:
    """Yield an experiment with the normal personality(2), if this process has a different one."""
    personality = hardware.read_text("/proc/self/personality").strip()
    if not personality.strip("0"):
        return
    machine = platform.machine()
    actual_machine = MACHINES_OF_64_BIT.get(machine, machine)
    yield Experiment(
        change=Change(normal_personality=True),
        name=f"the personality {personality} of `setarch`",
        step=fixed_step(f"start the program with `setarch {actual_machine} COMMAND`"),
    )
