"""Run this Python again, and terminate processes."""

import contextlib
import os
import signal
import subprocess
import sys

#: Options of Python that a child inherits. They control which files and variables Python
#: uses, and how it decodes text and compiles modules.
_INHERITED_FLAGS = {
    "isolated": "-I",
    "ignore_environment": "-E",
    "no_user_site": "-s",
    "no_site": "-S",
    "safe_path": "-P",
    "dont_write_bytecode": "-B",
    "utf8_mode": "-Xutf8",
    "dev_mode": "-Xdev",
}


def python_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs the source code `program` with this Python.

    Options for warnings are not inherited, because with `-W error` a warning of torch
    would look like a failure of the backend. Raises `FileNotFoundError` if the path of
    this Python is unknown.
    """
    if not sys.executable:
        raise FileNotFoundError(
            "the path of this Python is unknown: sys.executable is empty"
        )
    options = ["-Xfaulthandler"]
    options += ["-O"] * sys.flags.optimize  # once for each level of optimization
    for flag, option in _INHERITED_FLAGS.items():
        if getattr(sys.flags, flag, False):
            options.append(option)
    return [sys.executable, *options, "-c", program, *arguments]


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child process and the other processes in its process group."""
    # The processes may have ended already.
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def end_with_parent(parent: int) -> None:
    """Request that this process be killed when the process `parent` ends.

    `parent` is a process id. On Linux, the kernel kills this process, even while native
    code hangs (prctl(2)). On other systems, this function does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes  # takes 10 ms to import

    # The direct parent may be a script that `parent` started. This process is also killed
    # when that script ends.
    direct_parent = os.getppid()
    # A sandbox may forbid prctl.
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        libc.prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGKILL))
    # A child whose parent has ended gets process 1 as its parent.
    is_orphan = direct_parent == 1 and parent != 1
    if is_orphan or os.getppid() != direct_parent:
        os.kill(os.getpid(), signal.SIGKILL)
