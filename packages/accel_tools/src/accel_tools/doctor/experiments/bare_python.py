"""Try what programs need, in a Python without torch: threads, processes, `/dev/null`, modules and CPU time.

If a Python without torch fails too, neither torch nor the vendor's package is the cause of the failure.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from accel_core import hardware
from accel_core.text import one_line
from accel_tools.doctor.experiments.trial import Outcome
from accel_tools.machine import is_loopback_down

#: The program that tries the needs. It prints the name of each need before it tries the need. If a need
#: fails, the last line is the need's name, a tab and the error; otherwise the last line is "end".
#: The arguments are the number of threads to start, as torch's libraries do, the seconds of CPU time to use,
#: a module of the standard library to import, or an empty string, and 1 to connect over the network, or 0.
_PROGRAM = """
import os, subprocess, sys, threading, time

def start_threads():
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(int(sys.argv[1]))]
    try:
        for thread in threads:
            thread.start()
    finally:
        done.set()

def start_process():
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)

def use_null_device():
    with open(os.devnull, "r+b") as null:
        null.write(b"1")
    import stat
    if os.name == "posix" and not stat.S_ISCHR(os.stat(os.devnull).st_mode):
        raise OSError(os.devnull + " is not a device")

def connect_to_itself():
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=3).close()

def compute():
    while time.process_time() < int(sys.argv[2]):
        pass

needs = [
    ("start threads", start_threads), ("start a process", start_process),
    ("use " + os.devnull, use_null_device),
]
if sys.argv[3]:
    needs.append(("import " + sys.argv[3], lambda: __import__(sys.argv[3])))
if int(sys.argv[4]):
    needs.append(("connect to itself at 127.0.0.1", connect_to_itself))
if int(sys.argv[2]):
    needs.append(("run for " + sys.argv[2] + " s of CPU time", compute))
for name, need in needs:
    print(name, flush=True)
    try:
        need()
    except BaseException as error:
        print(f"{name}\\t{type(error).__name__}: {error}", flush=True)
        break
else:
    print("end", flush=True)
"""
#: The time limit in seconds, in addition to the CPU time.
_SECONDS = 20.0
#: The highest limit of CPU time in seconds that is tried.
_MAX_CPU_SECONDS = 10


class FailedNeed(NamedTuple):
    """Something that every program needs, but that fails in a Python without torch, and the next step."""

    #: A clause that follows "cannot", with the error: `"start threads: RuntimeError: …"`.
    what: str
    step: str


def find_failed_need(environ: Mapping[str, str], outcome: Outcome) -> FailedNeed | None:
    """Try what every program needs in a Python without torch, and return the first need that fails.

    The needs are threads, a child process, the null device, and a module of the standard library that the
    error of the failed program names. A connection to this host is tried too if the program waits for one,
    and CPU time is tried too if a limit may have ended the failed program, whose outcome is `outcome`.

    Returns `None` if no need fails, or if no next step is known, because other experiments may find one.
    """
    threads = _threads_to_start()
    cpu_seconds = _cpu_seconds_to_try(outcome)
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _PROGRAM,
        str(threads),
        str(cpu_seconds),
        _missing_standard_module(outcome),
        str(int(_is_waiting_for_network(outcome))),
    ]
    try:
        completed = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.PIPE,  # /dev/null may be damaged.
            capture_output=True,
            timeout=_SECONDS + cpu_seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = completed.stdout.decode(errors="replace").splitlines()
    if not lines or lines[-1] == "end":
        return None
    need, _, error = lines[-1].partition("\t")
    if not error:  # The process ended while it tried the need.
        error = _describe_end(completed.returncode)
    step = _step(need, error, threads)
    if not step:
        return None
    return FailedNeed(f"{need}: {one_line(error)}", step)


def _missing_standard_module(outcome: Outcome) -> str:
    """Return the module of the standard library that the program could not import, or an empty string."""
    match = re.search(r"No module named '(\w+)", outcome.failure)
    if match is not None and match[1] in sys.stdlib_module_names:
        return match[1]
    return ""


def _is_waiting_for_network(outcome: Outcome) -> bool:
    """Return whether the program hangs, or reports that it could not connect."""
    pattern = r"[Rr]efused|[Uu]nreachable|timed out|[Cc]onnect"
    return outcome.is_timed_out or outcome.matches(pattern)


def _describe_end(returncode: int) -> str:
    if returncode >= 0:
        return f"the process ended with exit status {returncode}"
    return f"{signal.Signals(-returncode).name} ended the process"


def _threads_to_start() -> int:
    """Return the number of threads to start, or 0 if a limit on memory may prevent the start of a thread."""
    # Other experiments raise limits on memory.
    for memory_limit in ("RLIMIT_AS", "RLIMIT_DATA"):
        if _soft_limit(memory_limit) is not None:
            return 0
    return hardware.usable_cores() + 2


def _cpu_seconds_to_try(outcome: Outcome) -> int:
    """Return the seconds of CPU time to use, or 0 if no limit on CPU time can have ended the program."""
    # Other experiments raise a soft limit, so only the hard limit counts.
    limit = _hard_limit("RLIMIT_CPU")
    is_killed = re.search("SIGKILL|SIGXCPU", outcome.failure) is not None
    if limit is None or not is_killed or limit > _MAX_CPU_SECONDS:
        return 0
    return limit + 2  # An enforced limit ends the process before that time.


class _Limit(NamedTuple):
    """The soft and the hard value of a resource limit; `None` means unlimited."""

    soft: int | None
    hard: int | None


def _soft_limit(name: str) -> int | None:
    """Return the soft value of the resource limit called `name`, or `None` if it is unlimited."""
    return _read_limit(name).soft


def _hard_limit(name: str) -> int | None:
    """Return the hard value of the resource limit called `name`, or `None` if it is unlimited."""
    return _read_limit(name).hard


def _read_limit(name: str) -> _Limit:
    """Return this process's resource limit called `name`, such as `"RLIMIT_CPU"`."""
    try:
        import resource
    except ImportError:  # Windows has no such limits.
        return _Limit(None, None)
    soft, hard = resource.getrlimit(getattr(resource, name))
    return _Limit(
        soft=None if soft == resource.RLIM_INFINITY else soft,
        hard=None if hard == resource.RLIM_INFINITY else hard,
    )


def _step(need: str, error: str, threads: int) -> str:
    """Return the next step after a need failed with `error`, or an empty string if none is known.

    `need` is one of the names that `_PROGRAM` prints, and `threads` is the number of threads that it starts.
    """
    if need.startswith("run for "):
        limit = _hard_limit("RLIMIT_CPU")
        return f"run the program where a process may use more than {limit} s of CPU time (ulimit -t)"
    if need == f"use {os.devnull}":
        return f"run as root: rm -f {os.devnull} && mknod -m 666 {os.devnull} c 1 3"
    if need.startswith("connect "):
        return "run as root: ip link set lo up" if is_loopback_down() else ""
    if need.startswith("import "):
        module = need.removeprefix("import ")
        return f"use a Python with the module {module}: {sys.executable} was installed without it"
    # The texts of errors that a limit on processes and threads, or a seccomp filter, leads to.
    pattern = r"can't start new thread|temporarily unavailable|not permitted"
    if re.search(pattern, error):
        return _step_for_processes(error, threads)
    return ""


def _step_for_processes(error: str, threads: int) -> str:
    """Return the next step if no thread or process can be started, or an empty string if none is known.

    `threads` is the number of threads that the failed program starts.
    """
    group_limit = hardware.cgroup_process_limit(threads)
    if group_limit is not None:
        return (
            "raise the control group's limit on processes and threads: pids.max is "
            f"{group_limit}"
        )
    limit = _soft_limit("RLIMIT_NPROC")
    is_limited_user = limit is not None and hasattr(os, "getuid") and os.getuid() != 0
    if is_limited_user and "not permitted" not in error:
        return (
            f"raise this user's limit on processes and threads (`ulimit -u` is {limit}), or end some of this "
            "user's processes"
        )
    # The value 2 means that a seccomp filter is active (proc_pid_status(5)).
    if "Seccomp:\t2" in hardware.read_text("/proc/self/status"):
        return (
            "ask the container's administrator whether a seccomp filter forbids new processes or threads: "
            "/proc/self/status contains `Seccomp: 2`, so a filter is active"
        )
    return ""
