"""Calling one function in a child process, under one deadline.

Some vendor packages cannot be guarded in-process: they call `os._exit`, crash or hang while they are
imported. The child takes that, and the parent learns how it ended. The child is this Python, started again
with its own options; it ends when its parent does.
"""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

from accel_core.log import LOGGER
from accel_core.text import escape_control_chars
from accel_core.torch_import import AUTOLOAD

T = TypeVar("T")
U = TypeVar("U")

#: Names the step that a child begins.
Stage: TypeAlias = "Callable[[str], None]"

#: The children that run now, oldest first, so that a caller who is interrupted can end them.
_running: dict[subprocess.Popen[bytes], None] = {}
#: Called about once a second with the stage of the oldest child and its seconds so far; with no stage when a
#: child has ended.
watching: Callable[[str, float], None] | None = None
#: Whether this process ends, so that its threads are to start no more of them.
_over = False
#: What children wait for before they start: whoever limits how many run at once puts a semaphore here. The
#: wait does not count against their timeout.
turns: contextlib.AbstractContextManager[object] = contextlib.nullcontext()

#: A line that tells an error: one at the margin, as frames of a traceback are not, and no line of a log.
_ERROR = re.compile(r"(?!\s|INFO|DEBUG|WARN|NOTE)(.*(error|fatal)|[\w.]+: \S)", re.IGNORECASE)

#: The child's program: the parent's path before any import but that of `sys`, which is built in. The job is
#: on stdin: a command line has its limits, and everybody can read it.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; "
    "from accel_core.sandbox.child import main; main()"
)


class ChildReport(NamedTuple):
    """The way a child process ended: with an answer, by itself, by a signal, or at the deadline."""

    answer: dict[str, Any] | None = None
    returncode: int | None = None
    stage: str = "start"
    stderr: str = ""
    #: The most seconds that it was given; 0 for any number.
    waited: float = 0

    @property
    def timed_out(self) -> bool:
        """Whether the child was stopped at the deadline."""
        return self.returncode is None

    @property
    def ending(self) -> str:
        """How it ended, in words: `"died of SIGSEGV"`, `"exited with status 127"`."""
        code = self.returncode
        if code is None:
            return f"gave no answer within {self.waited:g} s"
        names = {number.value: number.name for number in signal.Signals}
        return f"exited with status {code}" if code >= 0 else f"died of {names.get(-code, f'signal {-code}')}"

    @property
    def last_words(self) -> str:
        """Return the last error that the child printed, else its last line; empty if it printed nothing."""
        lines = self.stderr.splitlines()
        told = [*filter(_ERROR.match, lines)] or [s for s in lines if re.search(r"\w\w", s)] or lines
        return f"; last words: {told[-1].strip()}" if told else ""

    def pass_on(self) -> None:
        """Print the end of the child's output, its control characters escaped, unless stderr is closed."""
        if self.stderr and sys.stderr:
            with contextlib.suppress(OSError, ValueError):
                print(escape_control_chars(self.stderr), file=sys.stderr, flush=True)  # noqa: T201


def run(
    function: Callable[[dict[str, Any], Stage], object],
    arguments: dict[str, Any],
    timeout: float | None,
    *,
    as_we_are: bool = False,
    live: bool = False,
    start: Callable[..., subprocess.Popen[bytes]] | None = None,
) -> ChildReport:
    """Call `function` in a child process with `arguments`; stop the child after `timeout` seconds, if any.

    `function` is defined at the top level of its module. It is called with `arguments` and with a callable to
    which it passes the name of each step that it begins, and it returns a dict of JSON values. The report has
    that answer only if the child then exits with status 0.

    The report's `stderr` is the end of what the child prints; with `live` it goes to our stderr at once
    instead. In the child, torch's autoload is off unless `as_we_are` is set. The child ends when this process
    does (not on Windows). `start`, which is called in place of `Popen`, may start `main` in another way.
    Raises `OSError` if no child can be started, also after `end_all(for_good=True)`.
    """
    nonce = os.urandom(8).hex()
    job = {
        "function": f"{function.__module__}:{function.__qualname__}",
        "arguments": arguments,
        "nonce": nonce,
        "parent": os.getpid(),
        "log": LOGGER.isEnabledFor(logging.DEBUG),
    }
    # Files, not pipes: a grandchild that keeps a pipe open would keep us waiting past the child's end.
    with turns, _unnamed_file() as given, _unnamed_file() as out, _unnamed_file() as err:
        if _over:
            raise OSError("this process ends, and starts no other any more")
        given.write(json.dumps(job).encode())
        given.seek(0)
        process = (start or subprocess.Popen)(
            command(_PROGRAM, *(p for p in sys.path if isinstance(p, str))),
            stdin=given,
            stdout=out,
            stderr=None if live else err,
            env=dict(os.environ) if as_we_are else {**os.environ, AUTOLOAD: "0"},
            start_new_session=True,
        )
        _running[process] = None
        try:
            code = _wait(process, timeout, lambda: _lines(_text(out), nonce))
        finally:
            end_group(process)
            process.wait()
            _running.pop(process, None)
            if watching is not None:
                watching("", 0)
        lines = _lines(_text(out), nonce)
        for line in lines:
            if "log" in line:
                LOGGER.handle(logging.makeLogRecord(line["log"]))
        # Whoever dies with the answer on the lips has not done what was asked.
        answer = next((line["answer"] for line in lines if "answer" in line), None) if code == 0 else None
        return ChildReport(answer, code, _stage(lines), _text(err)[-2000:].strip(), timeout or 0)


def _unnamed_file() -> IO[bytes]:
    """A file that nobody else finds: in memory where there is such, as a disk may be full or read-only."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox
            return os.fdopen(os.memfd_create("accel"), "w+b")
    return tempfile.TemporaryFile()


def _wait(
    process: subprocess.Popen[bytes], timeout: float | None, said: Callable[[], list[dict[str, Any]]]
) -> int | None:
    """Wait until the child has ended, and give its status; `None` where the deadline passes first."""
    began = looked = time.monotonic()
    while timeout is None or time.monotonic() - began < timeout:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.02)  # the longest pause between two looks at it
        now = time.monotonic()
        if watching is not None and now - looked >= 1 and process is next(iter(_running), None):
            looked = now
            watching(_stage(said()), now - began)
    return process.poll()


def _text(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    if hasattr(os, "pread"):  # the position is the child's too, which may be writing
        return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")
    file.seek(0)
    return file.read(size).decode("utf-8", "replace")


def _lines(text: str, nonce: str) -> list[dict[str, Any]]:
    """Read the child's words: the objects on lines that begin with the nonce.

    Start-up files of Python print there too, before the channel is the child's own.
    """
    lines = []
    for written in text.splitlines():
        mark, _, said = written.partition(" ")
        if mark == nonce:
            with contextlib.suppress(ValueError):  # it died in the middle of a line
                lines.append(json.loads(said))
    return lines


def _stage(lines: list[dict[str, Any]]) -> str:
    return next((line["stage"] for line in reversed(lines) if "stage" in line), "start")


def each(function: Callable[[T], U], items: Iterable[T], at_once: int) -> list[U]:
    """Call `function`, which runs a child, for each item, with at most `at_once` calls in parallel.

    An interrupt ends the children: each is a session of its own, so Ctrl-C does not reach it.
    """
    from concurrent.futures import ThreadPoolExecutor  # takes longer to import than all else here

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            end_all()
            raise


def end_all(*, for_good: bool = False) -> None:
    """End every running child; callers that wait for one are told that it died.

    `for_good`: this process is ending, so its remaining threads cannot start another child.
    """
    global _over
    _over = _over or for_good
    for process in tuple(_running):
        end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the child and every process that it started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


# --- This Python, started again ------------------------------------------------------------------------


def command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs `program`, Python source, with this Python's own options.

    Options such as `-I`, `-E` and `-X utf8` are passed on: they say which files and variables Python trusts
    and how it reads text. Options for warnings are not: with `-W error`, a warning of torch's would look like
    a fault of the backend. Raises `FileNotFoundError` if Python does not know its own path.
    """
    if not sys.executable:
        raise FileNotFoundError("sys.executable does not say where Python is")
    # As multiprocessing starts Python, which is the one use of the function that is not public.
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    options = [option for option in options if not option.startswith("-W")]
    return [sys.executable, *options, "-c", program, *arguments]


# --- In the child --------------------------------------------------------------------------------------


def main() -> None:
    """Read the job from stdin, run it, and write the answer to stdout; all other output goes to stderr."""
    with open(0, "rb", closefd=False) as stdin:
        job = json.load(stdin)
    # Whatever reads stdin from now on, such as a vendor's prompt, finds it empty.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    end_with_parent(job["parent"])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        # On a line of its own, whatever was printed before and not ended.
        channel.write(f"\n{job['nonce']} {json.dumps(line)}\n")
        channel.flush()

    def relay(record: logging.LogRecord) -> bool:
        """Say a record to the parent, which logs it with the child's time and number."""
        plain = {key: value for key, value in vars(record).items() if isinstance(value, (str, int, float))}
        say(log={**plain, "msg": record.getMessage()})
        return False  # a vendor's own set-up of logging would show it twice

    if job["log"]:
        LOGGER.addFilter(relay)
        LOGGER.setLevel(logging.DEBUG)
    module, _, name = job["function"].partition(":")
    from importlib import import_module

    say(answer=getattr(import_module(module), name)(job["arguments"], lambda what: say(stage=what)))
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a plugin may have taken one away
        stream.flush()  # what was printed, on its way to stderr
    os._exit(0)  # a vendor's exit handlers have nothing to say any more, and may hang


def end_with_parent(parent: int, *, number: int | None = None) -> None:
    """In the child: be sent the signal `number`, by default SIGKILL, when the parent ends.

    By Linux' own parent-death signal, prctl(2), which comes even while native code hangs; on another system
    nothing is done. `parent`: the process that started this one.
    """
    if sys.platform != "linux":
        return
    import ctypes  # here, as it takes longer to import than all of this

    chosen = signal.SIGKILL if number is None else number
    # A script between the two makes this another process, whose end means as much.
    above = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, ctypes.c_ulong(chosen))  # 1: PR_SET_PDEATHSIG
    if os.getppid() != above or (above == 1 and parent != 1):  # it ended before we had asked
        os.kill(os.getpid(), chosen)
