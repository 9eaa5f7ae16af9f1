"""Call a function in a child process with a timeout.

Some vendors' packages exit, crash or hang the process that imports them. Here that
process is a child, and the parent reports how it ended. The child runs the same Python,
and is killed when its parent ends.

Parent and child exchange files in a temporary folder. The parent writes `request.json`.
The child writes `answer.json` and, line by line, `log`, which contains its stages and
log records.
"""

import contextlib
import importlib
import json
import logging
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO, TypeAlias, TypeVar

from accel_core.log import LOGGER
from accel_core.sandbox.processes import end_group, end_with_parent, python_command
from accel_core.sandbox.waiting import awaited_object
from accel_core.text import escape_control_chars
from accel_core.torch_import import AUTOLOAD

T = TypeVar("T")
U = TypeVar("U")

#: The type of the function to which a child passes the name of each step. Its keyword
#: arguments are facts on the step, which are JSON values.
Stage: TypeAlias = Callable[..., None]

#: The number of bytes of a child's output that are kept. It is large because
#: faulthandler's output ends with the names of all extension modules.
_KEPT_OUTPUT = 1 << 16
#: The number of characters of a child's output that are printed.
_PRINTED_OUTPUT = 2000

#: A line with the word "error" or "fatal", or a line that begins like
#: `package.SomeException: text`. Indented lines, which are frames of a traceback, and
#: lines of a log do not match.
_ERROR_LINE = re.compile(
    r"(?!\s|INFO|DEBUG|WARN|NOTE)(.*(error|fatal)|[\w.]+: \S)", re.IGNORECASE
)

#: Two letters, which a line of dashes or dots lacks.
_WORD = re.compile(r"\w\w")

#: The innermost call of the thread that crashed, in the output of faulthandler.
_CRASHED_CALL = re.compile(r'Current thread .*\n  File "(.+)", line (\d+) in (.+)')

#: The program of the child. It sets the parent's `sys.path` before any other import.
_PROGRAM = (
    "import sys; folder = sys.argv.pop(); sys.path[:] = sys.argv[1:]; "
    "del sys.argv[1:]; from accel_core.sandbox.child import main; main(folder)"
)


#: The stage and the elapsed seconds if no child is waited for.
_NO_PROGRESS = ("", 0)


@dataclass
class Supervision:
    """The child processes of this process, and how they are supervised."""

    #: A context manager, such as a semaphore, that is entered while a child runs. The
    #: wait does not count against the child's timeout.
    concurrency_limit: contextlib.AbstractContextManager[object] = field(
        default_factory=contextlib.nullcontext
    )
    #: Called about once a second with the stage and the elapsed seconds of the oldest
    #: child, and with `_NO_PROGRESS` when a child has ended.
    progress: Callable[[str, float], None] | None = None
    #: Whether this process is ending, so that no child may start.
    is_shutting_down: bool = False
    #: The running children, the oldest first.
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)


supervision = Supervision()


@dataclass(frozen=True)
class ChildReport:
    """The result of a child process: an answer, an exit without an answer, or a
    timeout.
    """

    #: The result of the function, or `None` if the child failed.
    answer: dict[str, Any] | None = None
    #: The exit status, negative for a signal, or `None` if the child was stopped.
    returncode: int | None = None
    #: The stage that the child began last.
    stage: str = "start"
    #: The end of the child's output.
    stderr: str = ""
    #: The child's timeout in seconds, or 0 without a timeout.
    timeout: float = 0
    #: The facts that the child passed with the name of the last stage.
    stage_facts: Mapping[str, Any] = field(default_factory=dict)
    #: What the child waited for when it was stopped, such as `"open() of /tmp/pipe"`. It is
    #: empty if that is unknown.
    awaited: str = ""

    @property
    def timed_out(self) -> bool:
        """Whether the child process was stopped at its timeout."""
        return self.returncode is None

    @property
    def ending(self) -> str:
        """A clause on how the child process ended, such as `"died of SIGSEGV"` or
        `"exited with status 127"`.
        """
        if self.returncode is None:
            return f"gave no response within {self.timeout:g} s"
        if self.returncode == 0 and _is_exit_status_lost():
            return "ended, and its exit status is lost because SIGCHLD is ignored"
        if self.returncode >= 0:
            return f"exited with status {self.returncode}"
        # A negative status is the number of the signal that ended the process.
        signal_number = -self.returncode
        try:
            return f"died of {signal.Signals(signal_number).name}"
        except ValueError:
            return f"died of signal {signal_number}"

    @property
    def last_words(self) -> str:
        """The clause `printed_last` after a semicolon, or an empty string."""
        return f"; {self.printed_last}" if self.printed_last else ""

    @property
    def printed_last(self) -> str:
        """A clause with the last error that the child process printed, or otherwise with
        the last line, such as `"last words: ImportError: libfoo.so"`.

        If the child printed nothing before a crash, the clause contains the innermost
        call at the time of the crash. If that is unknown too, the result is empty.
        """
        # Python's faulthandler writes this header and a traceback after a crash.
        printed, header, traceback = self.stderr.partition("Fatal Python error: ")
        lines = printed.splitlines()
        lines_with_error = [line for line in lines if _ERROR_LINE.match(line)]
        lines_with_words = [line for line in lines if _WORD.search(line)]
        for candidates in (lines_with_error, lines_with_words, lines):
            if candidates:
                last_line = candidates[-1].strip()
                return f"last words: {last_line}"
        call = _CRASHED_CALL.search(traceback)
        if call:
            file, line_number, function = call.groups()
            return f"last call: {function} ({file}, line {line_number})"
        if header:
            crash = traceback.splitlines()[0]
            return f"last words: {header}{crash}"
        return ""

    def print_output(self) -> None:
        """Print the end of the child process's output to stderr, with control
        characters escaped.
        """
        if self.stderr and sys.stderr is not None:
            text = escape_control_chars(self.stderr[-_PRINTED_OUTPUT:])
            # stderr may be closed.
            with contextlib.suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)  # noqa: T201


def _is_exit_status_lost() -> bool:
    """Return whether this process ignores SIGCHLD, with which the kernel discards the exit
    statuses of children (wait(2)), and `Popen.returncode` is 0.
    """
    child_ended = getattr(signal, "SIGCHLD", None)  # Windows has no SIGCHLD.
    return child_ended is not None and signal.getsignal(child_ended) == signal.SIG_IGN


def run(
    function: Callable[[dict[str, Any], Stage], object],
    arguments: dict[str, Any],
    timeout: float | None,
    *,
    autoload: bool = False,
    live: bool = False,
    start: Callable[..., subprocess.Popen[bytes]] | None = None,
) -> ChildReport:
    """Call `function(arguments, stage)` in a child process, and stop the child after
    `timeout` seconds. `None` means no timeout.

    `function` must be defined at the top level of its module, and must return a dict of
    JSON values. If the child exits with status 0, that dict is the answer in the
    report. When `function` begins a step, it calls `stage` with the step's name and,
    optionally, with facts about the step as keyword arguments.

    torch's autoload is off in the child unless `autoload` is set. With `live`, the
    child's output goes to this process's stderr at once and is not in the report. If
    `start` is given, it is called instead of `Popen`, with the same arguments, to start
    the child.

    The child is killed when this process ends, except on Windows. Raises `OSError` if
    no child can be started.
    """
    with supervision.concurrency_limit, _temporary_folder() as name:
        folder = Path(name)
        _create_private_files(folder)
        request = {
            "module": function.__module__,
            "function": function.__qualname__,
            "arguments": arguments,
            "parent": os.getpid(),
            "debug": LOGGER.isEnabledFor(logging.DEBUG),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        process = _start(start, folder, autoload=autoload, live=live)
        try:
            returncode = _wait(process, timeout, folder)
            awaited = awaited_object(process.pid) if returncode is None else ""
        finally:
            end_group(process)
            process.wait()
            supervision.running.remove(process)
            if supervision.progress is not None:
                supervision.progress(*_NO_PROGRESS)
        _forward_log(folder)
        stage, stage_facts = _current_stage(folder)
        return ChildReport(
            answer=_read_answer(folder) if returncode == 0 else None,
            returncode=returncode,
            stage=stage,
            stage_facts=stage_facts,
            stderr="" if live else _read_output(folder),
            timeout=timeout or 0,
            awaited=awaited,
        )


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary folder. Raises `OSError`, with the reason, if none can be created."""
    # On Windows, a process that outlives the child may keep a file open.
    try:
        return tempfile.TemporaryDirectory(prefix="accel-", ignore_cleanup_errors=True)
    except FileNotFoundError as error:
        reasons = _write_errors_of_temporary_folders()
        if not reasons:
            raise
        raise OSError(f"no temporary file can be written ({reasons})") from error


def _write_errors_of_temporary_folders() -> str:
    """Return why each temporary folder cannot be written to, which `tempfile` does not report."""
    folders = []
    for name in ("TMPDIR", "TEMP", "TMP"):
        if os.environ.get(name):
            folders.append(os.environ[name])
    folders += ["/tmp", "/var/tmp"]
    reasons = []
    for folder in dict.fromkeys(folders):  # each folder once
        file = Path(folder, f"accel-{os.getpid()}")
        try:
            file.write_bytes(b"1")
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
        finally:
            with contextlib.suppress(OSError):
                file.unlink()
    return ", ".join(reasons)


def _create_private_files(folder: Path) -> None:
    """Create the files, readable by this user only, so that the umask of this process
    and of the child does not matter.
    """
    folder.chmod(stat.S_IRWXU)
    for name in ("request.json", "log", "answer.json", "output"):
        file = folder / name
        file.touch()
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)


def _start(
    start: Callable[..., subprocess.Popen[bytes]] | None,
    folder: Path,
    *,
    autoload: bool,
    live: bool,
) -> subprocess.Popen[bytes]:
    if supervision.is_shutting_down:
        raise OSError("this process is ending and cannot start a child process")
    import_path = [entry for entry in sys.path if isinstance(entry, str)]
    environment = dict(os.environ)
    if not autoload:
        environment[AUTOLOAD] = "0"
    if start is None:
        start = subprocess.Popen
    with (
        _open_output(folder, live=live) as output,
        Path(os.devnull).open("rb") as empty_input,
    ):
        process = start(
            python_command(_PROGRAM, *import_path, str(folder)),
            stdin=empty_input,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    supervision.running.append(process)
    return process


def _open_output(folder: Path, *, live: bool) -> IO[bytes]:
    """Open the file for the child's output.

    It is not a pipe, because processes that the child starts may keep a pipe open.
    """
    if live:
        stderr_descriptor = 2
        return open(stderr_descriptor, "wb", closefd=False)
    return (folder / "output").open("wb")


def _wait(
    process: subprocess.Popen[bytes], timeout: float | None, folder: Path
) -> int | None:
    """Return the exit status of the child, or `None` if the timeout passes first."""
    start = time.monotonic()
    while True:
        elapsed = time.monotonic() - start
        pause = 1.0
        if timeout is not None:
            pause = min(pause, timeout - elapsed)
        if pause <= 0:
            return process.poll()
        # If the child ends during the pause, its status is returned at once.
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(pause)
        is_oldest = supervision.running[0] is process
        if supervision.progress is not None and is_oldest:
            stage, _ = _current_stage(folder)
            supervision.progress(stage, time.monotonic() - start)


def _read_answer(folder: Path) -> dict[str, Any] | None:
    try:
        text = (folder / "answer.json").read_text(encoding="utf-8")
        answer: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        # The child exited with status 0 before it wrote an answer.
        return None
    return answer


def _read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the steps and log records that the child has written."""
    try:
        text = (folder / "log").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    # The child may be writing the line after the last line feed.
    *complete_lines, _incomplete_line = text.split("\n")
    return [json.loads(line) for line in complete_lines]


def _current_stage(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the stage that the child began last, and its facts."""
    stage, facts = "start", {}
    for log_line in _read_log(folder):
        if "stage" in log_line:
            stage, facts = log_line["stage"], log_line.get("facts", {})
    return stage, facts


def _forward_log(folder: Path) -> None:
    """Log the log records of the child in this process."""
    for log_line in _read_log(folder):
        if "record" in log_line:
            LOGGER.handle(logging.makeLogRecord(log_line["record"]))


def _read_output(folder: Path) -> str:
    """Return the end of the child's output."""
    with (folder / "output").open("rb") as output:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _KEPT_OUTPUT))
        return output.read().decode("utf-8", "replace").strip()


def run_in_parallel(
    function: Callable[[T], U], items: Iterable[T], workers: int
) -> list[U]:
    """Call `function` for each item, with up to `workers` calls in parallel, and return
    the results in the order of the items.

    `function` runs a child process. If no thread can be started, the calls run one
    after another.

    The signal of Ctrl-C does not reach the children, because each has a separate
    session. After Ctrl-C, this function therefore terminates the children.
    """
    all_items = list(items)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            futures = [pool.submit(function, item) for item in all_items]
        except RuntimeError:  # no thread can be started
            pool.shutdown(cancel_futures=True)
            return [function(item) for item in all_items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            end_all()
            raise


def end_all(*, for_good: bool = False) -> None:
    """Terminate every running child process. With `for_good`, also prevent the start of
    further child processes.
    """
    if for_good:
        supervision.is_shutting_down = True
    for process in list(supervision.running):
        end_group(process)


# --- In the child ---------------------------------------------------------------------


def main(folder: str) -> None:
    """In the child process, call the function that `request.json` in `folder` names,
    write its result to `answer.json`, and end the process.
    """
    request = json.loads(Path(folder, "request.json").read_text(encoding="utf-8"))
    end_with_parent(request["parent"])
    line_buffered = 1
    with Path(folder, "log").open("w", line_buffered, encoding="utf-8") as log:
        answer = _call_requested_function(request, log)
    Path(folder, "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        # A plugin may have set a stream to None.
        if stream is not None:
            stream.flush()
    # `os._exit` skips the exit handlers of vendors, which may hang.
    os._exit(0)


def _call_requested_function(request: dict[str, Any], log: TextIO) -> object:
    """Call the function that the request names. Its stages and, if requested, its log
    records are written to the log file.
    """

    def write_line(document: dict[str, object]) -> None:
        log.write(json.dumps(document) + "\n")

    def begin_stage(stage: str, **facts: object) -> None:
        write_line({"stage": stage, "facts": facts})

    def forward_record(record: logging.LogRecord) -> bool:
        """Write the record to the log file. The parent process logs the record with the
        child's time and process id.
        """
        fields = {
            name: value
            for name, value in vars(record).items()
            if isinstance(value, str | int | float)
        }
        # The message contains its arguments, which need not be JSON values.
        fields["msg"] = record.getMessage()
        write_line({"record": fields})
        return False  # so that the child does not log the record itself

    if request["debug"]:
        LOGGER.addFilter(forward_record)
        LOGGER.setLevel(logging.DEBUG)
    module = importlib.import_module(request["module"])
    function = getattr(module, request["function"])
    return function(request["arguments"], begin_stage)
