"""Child processes of our own tests: `accel_testing.children`, with a path, variables and checks of ours.

Everything that starts Python goes through `start` and `finish`; the folders' own fixtures say with what.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from accel_testing import children as of_core
from accel_testing.children import Ended, finish, kill

__all__ = [
    "SIMULATED",
    "UNTRACED",
    "Ended",
    "as_rank",
    "clean_environment",
    "executable",
    "finish",
    "kill",
    "may_mount",
]
__all__ += [
    "program",
    "run",
    "run_command",
    "run_python",
    "start",
    "untraced",
    "without",
]

SIMULATED = Path(__file__).parents[1] / "simulated"
#: `untraced` as variables to add, for those who take no whole environment.
UNTRACED = {"COVERAGE_PROCESS_START": "", "COVERAGE_PROCESS_CONFIG": ""}

_PRELUDE = """
import sys
path, code, flags = sys.argv[1:]
sys.path[:] = path.split("|")
del sys.argv[1:]
if "bare" in flags:
    import accel_core.hardware.vendors
    accel_core.hardware.vendors.known_hardware = lambda *root: ()
if "strict" in flags:
    import warnings
    warnings.simplefilter("error")
exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})
"""


def without(*steering):
    """This process's environment without the variables that begin so."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(steering)
    }


def clean_environment(**variables):
    """This process's environment without anything that steers a choice, and with `variables`."""
    kept = without("ACCEL_", "DS_")
    kept.pop("PYTHONPATH", None)
    return {**kept, **variables}


def untraced(environ):
    """The variables without coverage's: for children that pass no line of ours that others do not pass.

    A child costs half as much again when it is traced.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("COVERAGE_")
    }


def start(arguments, environ, *, cwd=None, stdin=subprocess.DEVNULL):
    """Start this Python with these arguments, in a process group of its own."""
    return of_core.start([sys.executable, *arguments], environ, cwd=cwd, stdin=stdin)


def run_python(arguments, environ, *, timeout=240, cwd=None):
    """Run this Python with these arguments to its end."""
    return run_command([sys.executable, *arguments], environ, timeout=timeout, cwd=cwd)


def run_command(command, environ, *, timeout=240, cwd=None):
    """Run a command to its end."""
    return finish(of_core.start(command, environ, cwd=cwd), timeout)


def may_mount():
    """Whether this process may make a mount namespace."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "--mount", "true"], capture_output=True, check=False
    )
    return done.returncode == 0


def executable(path, text="", *, by="/bin/sh"):
    """A script with this text, which the interpreter `by` runs; gives its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{by}\n{text}\n")
    path.chmod(0o755)
    return path


def as_rank(rank, count, port):
    """The variables that tell a rank its place on this host, and torchrun's number of threads."""
    return {
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def accel(*arguments):
    """Source text that is `accel` with these arguments."""
    return f"import sys; sys.argv = ['accel', *{arguments!r}]\nfrom accel_core.cli import main; main()\n"


def program(code, path, *, bare=True, strict=True):
    """Arguments by which Python runs `code` on that `sys.path`, as `run` does."""
    flags = f"{'bare ' if bare else ''}{'strict' if strict else ''}"
    return ["-c", _PRELUDE, "|".join(map(str, path)), code, flags]


def run(
    code,
    path,
    variables=None,
    *,
    bare=True,
    strict=True,
    traced=True,
    timeout=60,
    cwd=None,
):
    """Run `code`; `bare`: no accelerator hardware is seen; `strict`: warnings are errors."""
    arguments = program(code, path, bare=bare, strict=strict)
    environ = clean_environment(**(variables or {}))
    return run_python(
        arguments, environ if traced else untraced(environ), timeout=timeout, cwd=cwd
    )
