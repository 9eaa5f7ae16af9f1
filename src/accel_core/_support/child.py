"""Calling one function in a child process, under a deadline.

Some vendor packages cannot be guarded in-process: they call `os._exit`, crash or hang while they are
imported. The child takes that, and the parent learns how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from accel_core._support import log

__all__ = ["ChildReport", "end_all", "run"]

#: The children that run now, so that a caller who is interrupted can end them.
_running: set[subprocess.Popen[bytes]] = set()

#: Seconds in which a child must have started Python; what it is given after that is the caller's to say.
START_LIMIT = 60.0

#: The child's program: the parent's path before any import but that of `sys`, which is built in; then one
#: function by name with one argument.
_PROGRAM = (
    "import sys; job, *sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from accel_core._support.child import _child; _child(job)"
)


class ChildReport(NamedTuple):
    """How the child ended: with an answer, by itself, by a signal, or at the deadline."""

    answer: dict[str, object] | None = None
    returncode: int | None = None
    stage: str = "start"
    stderr: str = ""

    @property
    def timed_out(self) -> bool:
        """Whether the deadline passed first."""
        return self.returncode is None

    @property
    def ending(self) -> str:
        """How it ended, in words: `"died of SIGSEGV"`, `"exited with status 127"`."""
        code = self.returncode
        if code is None:
            return "did not finish"
        if code >= 0:
            return f"exited with status {code}"
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-code).name}"
        return f"died of signal {-code}"


def run(
    function: Callable[[dict[str, Any], Callable[[str], None]], object],
    arguments: dict[str, object],
    timeout: float,
) -> ChildReport:
    """Call `function` in a child process with `arguments`, at most `timeout` seconds.

    They count from the child's first sign of life, so that a machine under load takes none of them to start
    Python; a child that gives none ends after `START_LIMIT`.

    It stands at the top level of its module, takes the arguments and a callable that notes the stage it has
    come to, and returns what JSON can hold. Anything the child prints goes into `stderr`. Raises `OSError`
    when no child can be started.
    """
    job = json.dumps({"function": f"{function.__module__}:{function.__qualname__}", **arguments})
    if not sys.executable:
        raise FileNotFoundError("sys.executable does not say where Python is")
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting past the child's end.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, job, *(p for p in sys.path if isinstance(p, str))],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            start_new_session=True,
        )
        _running.add(process)
        try:
            _await_sign(process, out)
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(process)
            _running.discard(process)
        lines = list(_lines(_text(out)))
        stage = next((line["stage"] for line in reversed(lines) if "stage" in line), "start")
        answer = next((line["answer"] for line in lines if "answer" in line), None)
        return ChildReport(answer, code, stage, _said(err))


def _await_sign(process: subprocess.Popen[bytes], out: IO[bytes]) -> None:
    """Wait until the child has written something, or has ended; `TimeoutExpired` after `START_LIMIT`."""
    end = time.monotonic() + START_LIMIT
    while process.poll() is None and not os.fstat(out.fileno()).st_size:
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, START_LIMIT)
        time.sleep(0.005)


def end_all() -> None:
    """End every child that runs now; whoever waits for one learns that it died."""
    for process in tuple(_running):
        _signal_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started; the child is a session of its own."""
    _signal_group(process)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _said(err: IO[bytes]) -> str:
    """The end of what the child said; the lines of `ACCEL_LOG` among it go on to our own stderr."""
    text = _text(err)
    if not log.is_on():
        return text[-2000:].strip()
    lines = text.splitlines()
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.writelines(f"{line}\n" for line in lines if line.startswith(log.MARK))
    return "\n".join(line for line in lines if not line.startswith(log.MARK))[-2000:].strip()


def _lines(text: str) -> Iterator[dict[str, Any]]:
    """The objects among the lines; before the channel is ours, start-up files of Python may print there."""
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _child(text: str) -> None:
    """In the child: run the function, its answer on stdout, everybody else's output on stderr."""
    from importlib import import_module

    job = json.loads(text)

    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    say(stage="start")
    module, _, name = job.pop("function").partition(":")
    say(answer=getattr(import_module(module), name)(job, lambda stage: say(stage=stage)))
    sys.stdout.flush()  # what was printed, on its way to stderr
    sys.stderr.flush()
    os._exit(0)  # a vendor's exit handlers have nothing to say any more, and may hang
