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
from accel_core._support.interpreter import command, end_after, end_group, end_with_parent

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["ChildReport", "end_all", "run"]

#: The children that run now, so that a caller who is interrupted can end them.
_running: set[subprocess.Popen[bytes]] = set()

#: Seconds in which a child must have started Python; what it is given after that is the caller's to say.
START_LIMIT = 60.0

#: Seconds after the caller's limit at which a child ends by itself, should nobody have ended it.
_GRACE = 5.0
#: The longest pause between two looks at a child, in seconds.
_PAUSE = 0.02
#: Bytes of output at which a child's file is emptied, and bytes of its end that are kept: of stdout, where
#: the answer is, and of stderr.
_LARGEST = 16 << 20
_ANSWER_KEPT = 4 << 20
_WORDS_KEPT = 8 << 10
#: Bytes beyond which no file of a child's grows.
_LARGEST_FILE = 1 << 30

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
    come to, and returns a dict of what JSON can hold. There is an answer only where the child has ended with
    status 0 after it. The end of what the child prints is in `stderr`. The child has this Python's options,
    and ends when this process does (not on Windows). Raises `OSError` when no child can be started.
    """
    nonce = os.urandom(8).hex()
    job = json.dumps({
        "function": f"{function.__module__}:{function.__qualname__}",
        "nonce": nonce,
        "parent": os.getpid(),
        "seconds": timeout + _GRACE,
        "arguments": arguments,
    })  # fmt: skip
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting past the child's end.
    with _Output(_ANSWER_KEPT) as out, _Output(_WORDS_KEPT) as err:
        process = subprocess.Popen(
            command(_PROGRAM, job, *(p for p in sys.path if isinstance(p, str))),
            stdin=subprocess.DEVNULL,
            stdout=out.file,
            stderr=err.file,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            start_new_session=True,
        )
        _running.add(process)
        try:
            _await(process, out, err, START_LIMIT, lambda: out.size > 0)
            _await(process, out, err, timeout, lambda: False)
            code: int | None = process.wait(0)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
            process.wait()
            _running.discard(process)
        lines = list(_lines(out.text(), nonce))
        stage = next((line["stage"] for line in reversed(lines) if "stage" in line), "start")
        answer = next((line["answer"] for line in lines if "answer" in line), None)
        if code != 0 or not isinstance(answer, dict):
            answer = None  # who dies with the answer on the lips has not done what was asked
        return ChildReport(answer, code, stage, _said(err.text()))


class _Output:
    """A file that takes a child's output, of which no more is kept than its end."""

    def __init__(self, kept: int) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._kept = kept
        self._before = b""
        if fcntl is not None:  # else a child would go on at its old place in a file that was emptied
            flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
            fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self.file.fileno()).st_size

    def trim(self) -> None:
        """Empty a file that has grown past the limit; its end is remembered."""
        if self.size > _LARGEST:
            self._before = self._end()
            self.file.truncate(0)

    def text(self) -> str:
        """The end of all that was written."""
        return (self._before + self._end())[-self._kept :].decode("utf-8", "replace")

    def _end(self) -> bytes:
        self.file.seek(max(0, self.size - self._kept))
        return self.file.read(self._kept)


def _await(
    process: subprocess.Popen[bytes],
    out: _Output,
    err: _Output,
    seconds: float,
    done: Callable[[], bool],
) -> None:
    """Wait until the child has ended, or `done()`; `TimeoutExpired` after that many seconds.

    Its output is kept short meanwhile.
    """
    end = time.monotonic() + seconds
    pause = 0.001
    while not done():
        left = end - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, seconds)
        try:
            process.wait(min(pause, left))
            return
        except subprocess.TimeoutExpired:
            pause = min(2 * pause, _PAUSE)
        out.trim()
        err.trim()


def end_all() -> None:
    """End every child that runs now; whoever waits for one learns that it died."""
    for process in tuple(_running):
        end_group(process)


def _said(text: str) -> str:
    """The end of what the child said; the lines of `ACCEL_LOG` among it go on to our own stderr."""
    if not log.is_on():
        return text[-2000:].strip()
    lines = text.splitlines()
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.writelines(f"{line}\n" for line in lines if line.startswith(log.MARK))
    return "\n".join(line for line in lines if not line.startswith(log.MARK))[-2000:].strip()


def _lines(text: str, nonce: str) -> Iterator[dict[str, Any]]:
    """What the child said: the objects on lines that begin with the nonce.

    Start-up files of Python print there too, before the channel is the child's own.
    """
    for written in text.splitlines():
        mark, _, said = written.partition(" ")
        if mark == nonce:
            with contextlib.suppress(ValueError, RecursionError):
                line = json.loads(said)
                if _is_of_ours(line):
                    yield line


def _is_of_ours(line: object) -> bool:
    """Whether a line has the form in which the child speaks: whatever runs in the child can write one too."""
    if not isinstance(line, dict) or not isinstance(line.get("stage", ""), str):
        return False
    seconds = line.get("seconds", 0)
    return type(seconds) in (int, float) and 0 <= seconds < float("inf")


def _child(text: str) -> None:
    """In the child: run the function, its answer on stdout, everybody else's output on stderr."""
    job = json.loads(text)
    end_with_parent(job["parent"])
    end_after(job["seconds"])
    _limit_files()
    from importlib import import_module

    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        # On a line of its own, whatever was printed before and not ended.
        channel.write(f"\n{job['nonce']} {json.dumps(line)}\n")
        channel.flush()

    say(stage="start")
    module, _, name = job["function"].partition(":")
    say(answer=getattr(import_module(module), name)(job["arguments"], lambda stage: say(stage=stage)))
    sys.stdout.flush()  # what was printed, on its way to stderr
    sys.stderr.flush()
    os._exit(0)  # a vendor's exit handlers have nothing to say any more, and may hang


def _limit_files() -> None:
    """No file may grow without end, not even one of a process that has left our group."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        if now == resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, most))
