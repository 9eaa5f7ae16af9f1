"""Calling one function in a child process, under a deadline.

Some vendor packages cannot be guarded in-process: they call `os._exit`, crash or hang while they are
imported. The child takes that, and the parent learns how it ended. A child that works is not dead: silence
and CPU time decide, for on a busy machine the clock says nothing of a package.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

from accel_core._support import log
from accel_core._support.interpreter import command, end_group
from accel_core._support.torch_import import AUTOLOAD

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["ChildReport", "Stage", "at_most", "each", "end_all", "run"]

T = TypeVar("T")
U = TypeVar("U")


class Stage(Protocol):
    """Notes what a child begins; `seconds`: what that may take, 0 for no limit, instead of the caller's."""

    def __call__(self, what: str, seconds: float | None = None) -> None:
        """Note it."""


#: The children that run now, oldest first, so that a caller who is interrupted can end them.
_running: dict[subprocess.Popen[bytes], None] = {}
#: Called about once a second with the stage of the oldest child and the seconds that it has been there; with
#: no stage when a child has ended.
watching: Callable[[str, float], None] | None = None
#: Whether this process ends, so that its threads are to start no more of them.
_over = False
#: What children wait for before they start, where somebody has limited how many run at once.
_turns: contextlib.AbstractContextManager[object] = contextlib.nullcontext()

#: Seconds that a child may sleep before it has started Python; after that the caller's seconds count.
START_LIMIT = 60.0
#: How many times its seconds a stage may take that uses CPU time: the limit of what computes for ever.
LONGEST = 5
#: CPU seconds in each second at which a child is at work: more than a loop that sleeps ten times a second.
_WORKS = 0.002

#: Seconds after the limit at which a child ends by itself, should nobody have ended it.
_GRACE = 5.0

#: The longest pause between two looks at a child, in seconds.
_PAUSE = 0.02
#: Bytes of output at which a child's file is emptied, and bytes of its end that are kept: of stdout, where
#: the answer is, and of stderr.
_LARGEST = 16 << 20
_ANSWER_KEPT = 4 << 20
_WORDS_KEPT = 8 << 10

#: A line that tells an error: one at the margin, as frames of a traceback are not, and no line of a log.
_ERROR = re.compile(r"(?!\s|INFO|DEBUG|WARN|NOTE)(.*(error|fatal)|[\w.]+: \S)", re.IGNORECASE)

#: The child's program: the parent's path before any import but that of `sys`, which is built in. The job is
#: on stdin: a command line has its limits, and everybody can read it.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from accel_core._support.in_child import main; main()"
)


class ChildReport(NamedTuple):
    """How the child ended: with an answer, by itself, by a signal, or at the deadline."""

    answer: dict[str, object] | None = None
    returncode: int | None = None
    stage: str = "start"
    stderr: str = ""
    #: The seconds in which no answer came, of one that was stopped.
    waited: float = 0

    @property
    def timed_out(self) -> bool:
        """Whether the deadline passed first."""
        return self.returncode is None

    @property
    def ending(self) -> str:
        """How it ended, in words: `"died of SIGSEGV"`, `"exited with status 127"`."""
        code = self.returncode
        if code is None:
            return f"gave no answer within {self.waited:g} s"
        if code >= 0:
            return f"exited with status {code}"
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-code).name}"
        return f"died of signal {-code}"

    @property
    def last_words(self) -> str:
        """The last error that it printed, as a clause, else the last line with a word; empty for none."""
        lines = self.stderr.splitlines()
        told = [*filter(_ERROR.match, lines)] or [s for s in lines if re.search(r"\w\w", s)] or lines
        return f"; last words: {told[-1].strip()}" if told else ""

    def pass_on(self) -> None:
        """Print on our stderr the end of what the child printed; one that is closed or full is no matter."""
        if self.stderr:
            with contextlib.suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(f"{self.stderr}\n")
                sys.stderr.flush()


def run(
    function: Callable[[dict[str, Any], Stage], object],
    arguments: dict[str, object],
    timeout: float,
    *,
    as_we_are: bool = False,
    live: bool = False,
) -> ChildReport:
    """Call `function` in a child process with `arguments`, and stop it after `timeout` seconds of sleep.

    They count anew from each stage that the child notes, from each output, and for as long as it, or what it
    started, uses CPU time: to `LONGEST` times as many. A stage may set other seconds for itself, 0 for no
    limit.

    It stands at the top level of its module, takes the arguments and a callable that notes the stage it has
    come to, and returns a dict of what JSON can hold. There is an answer only where the child has ended with
    status 0 after it. The end of what the child prints is in `stderr`; `live`: it goes to our own stderr at
    once instead. The child has this Python's options,
    torch's autoload off unless it is to be `as_we_are`, and ends when this process does (not on Windows).
    Raises `OSError` when no child can be started, also after `end_all(for_good=True)`.
    """
    nonce = os.urandom(8).hex()
    job = json.dumps({
        "function": f"{function.__module__}:{function.__qualname__}",
        "nonce": nonce,
        "parent": os.getpid(),
        "seconds": timeout,
        "longest": LONGEST,
        "grace": _GRACE,
        "log": log.is_on(),
        "arguments": arguments,
    })  # fmt: skip
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting past the child's end.
    with _turns, _unnamed_file() as given, _Output(_ANSWER_KEPT) as out, _Output(_WORDS_KEPT) as err:
        if _over:
            raise OSError("this process ends, and starts no other any more")
        given.write(job.encode())
        given.seek(0)
        process = subprocess.Popen(
            command(_PROGRAM, *(p for p in sys.path if isinstance(p, str))),
            stdin=given,
            stdout=out.file,
            stderr=None if live else err.file,
            env=dict(os.environ) if as_we_are else {**os.environ, AUTOLOAD: "0"},
            start_new_session=True,
        )
        _running[process] = None
        if _over:  # by now
            end_group(process)
        try:
            waited = _await(process, out, err, nonce, timeout)
            code = None if waited else process.wait()
        finally:
            end_group(process)
            process.wait()
            _running.pop(process, None)
            if watching is not None:
                watching("", 0)
        lines = list(_lines(out.text(), nonce))
        for line in lines:
            if "log" in line:
                log.received(line)
        stage = next((line["stage"] for line in reversed(lines) if "stage" in line), "start")
        answer = next((line["answer"] for line in lines if "answer" in line), None)
        if code != 0 or not isinstance(answer, dict):
            answer = None  # who dies with the answer on the lips has not done what was asked
        return ChildReport(answer, code, stage, err.text()[-2000:].strip(), waited)


def _unnamed_file() -> IO[bytes]:
    """A file that nobody else finds: in memory where there is such, as a disk may be full or read-only."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox
            return os.fdopen(os.memfd_create("accel"), "w+b")
    return tempfile.TemporaryFile()


class _Output:
    """A file that takes a child's output, of which no more is kept than its end."""

    def __init__(self, kept: int) -> None:
        self.file = _unnamed_file()
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


def _await(process: subprocess.Popen[bytes], out: _Output, err: _Output, nonce: str, timeout: float) -> float:
    """Wait until the child has ended, and give 0; else the seconds after which it is to be stopped.

    Its output is kept short meanwhile.
    """
    known: list[dict[str, Any]] = [{"stage": "start", "seconds": START_LIMIT}]
    seconds = START_LIMIT
    began = alive = looked = time.monotonic()
    pause, written, used = 0.001, (0, 0), 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            return 0
        pause = min(2 * pause, _PAUSE)
        out.trim()
        err.trim()
        now = time.monotonic()
        if (sizes := (out.size, err.size)) != written:
            alive, written = now, sizes
            stages = [line for line in _lines(out.text(), nonce) if "stage" in line]
            if stages and stages != known:
                began, known, seconds = now, stages, stages[-1].get("seconds", timeout)
        if now - looked >= min(1.0, seconds / 10 or 1.0):
            before, used = used, _cpu_seconds(process.pid)
            if abs(used - before) >= _WORKS * (now - looked):  # less, where one that it started has ended
                alive = now
            looked = now
            if watching is not None and process is next(iter(_running), None):
                watching(known[-1]["stage"], now - began)
        if seconds and now - alive >= seconds:
            return seconds
        if seconds and now - began >= LONGEST * seconds:
            return LONGEST * seconds


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of its descendants that live; 0 if they cannot be read."""
    if sys.platform != "linux":
        return _cpu_seconds_by_psutil(pid)
    used = 0.0
    with contextlib.suppress(OSError):
        used = time.clock_gettime(~pid << 3 | 2)  # Linux, include/linux/posix-timers_types.h, CPUCLOCK_SCHED
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii")
            used += sum(map(_cpu_seconds, map(int, children.split())))
    return used


def _cpu_seconds_by_psutil(pid: int) -> float:
    import psutil  # a dependency on systems without /proc

    used = 0.0
    with contextlib.suppress(psutil.Error):
        for process in (top := psutil.Process(pid), *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended, or is another user's
                used += sum(process.cpu_times()[:2])  # user and system
    return used


def each(function: Callable[[T], U], items: Iterable[T], at_once: int) -> list[U]:
    """Call `function`, which runs a child, for each item, at most so many at once.

    Where no thread can be started, one after the other. An interrupt ends the children: they are sessions of
    their own, and do not hear Ctrl-C.
    """
    from concurrent.futures import ThreadPoolExecutor  # takes longer to import than all else here

    given = list(items)
    with ThreadPoolExecutor(max_workers=max(1, min(len(given), at_once))) as pool:
        try:
            try:
                later = pool.map(function, given)
            except RuntimeError:  # "can't start new thread": as many processes as the user may have
                pool.shutdown(cancel_futures=True)
                return list(map(function, given))
            return list(later)
        except BaseException:
            end_all()
            raise


@contextlib.contextmanager
def at_most(count: int) -> Iterator[None]:
    """Within the block no more than `count` children run at once, whatever threads start them.

    Those beyond wait for their turn, which takes none of their seconds.
    """
    global _turns
    before, _turns = _turns, threading.BoundedSemaphore(count)
    try:
        yield
    finally:
        _turns = before


def end_all(*, for_good: bool = False) -> None:
    """End every child that runs now; whoever waits for one learns that it died.

    `for_good`: this process ends, and threads of its own that still work, whom Python waits for at its end,
    start no more of them.
    """
    global _over
    _over = _over or for_good
    for process in tuple(_running):
        end_group(process)


def _lines(text: str, nonce: str) -> Iterator[dict[str, Any]]:
    """Read the child's answers: the objects on lines that begin with the nonce.

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
    if "log" in line and [type(line.get(key)) for key in ("log", "name", "at", "process")] != _LOGGED:
        return False
    seconds = line.get("seconds", 0)
    return type(seconds) in (int, float) and 0 <= seconds < float("inf")


#: Types of what a child says of a record of its log.
_LOGGED = [str, str, float, int]
