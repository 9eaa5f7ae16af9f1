"""Child processes for tests: start them, wait for them, and kill them with any processes they started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from accel_core.errors import ChildError, InvalidArgumentError
from accel_testing.layers import environment

__all__ = ["Ended", "finish", "kill", "run", "start"]

#: The number of seconds to wait for the remaining output of a killed process. A process that has left the
#: child's process group may keep the pipe open forever.
_OUTPUT_SECONDS = 2.0


@dataclass(frozen=True)
class Ended:
    """The result of a child process that has ended, with its exit status and output."""

    #: The exit status as in `subprocess`: the negative signal number if a signal terminated the process.
    returncode: int
    stdout: str
    stderr: str
    #: Whether the process was killed because of a timeout.
    late: bool = False

    @property
    def answer(self) -> Any:
        """Return the value that the child process printed as JSON on the last line of stdout.

        Raises `ChildError` if the last line is not JSON, if the exit status is not 0, or if the process timed
        out.
        """
        self.succeeded()  # raises an error if the process failed
        lines = self.stdout.splitlines()
        last_line = lines[-1] if lines else ""
        try:
            return json.loads(last_line)
        except ValueError:
            raise ChildError(
                f"the last line that the child process printed is {last_line!r}, expected JSON. End the "
                f"program with print(json.dumps(...)).\n{self._output()}"
            ) from None

    @property
    def answers(self) -> list[Any]:
        """Return the values that the child process and its own children printed as `ANSWER <json>`.

        Several ranks may have printed their values on the same line. Raises `ChildError` if a value is not
        JSON, if the exit status is not 0, or if the process timed out.
        """
        self.succeeded()  # raises an error if the process failed
        _text_before_answers, *texts = self.stdout.split("ANSWER ")
        decoder = json.JSONDecoder()
        values = []
        try:
            for text in texts:
                value, _end = decoder.raw_decode(text)  # other output may follow
                values.append(value)
        except ValueError as error:
            raise ChildError(
                f"the child process printed ANSWER without JSON after it: {error}\n{self._output()}"
            ) from None
        return values

    def succeeded(self) -> Ended:
        """Return this result if the child process succeeded.

        Raises `ChildError` with the process's output if the exit status is not 0 or the process timed out.
        """
        if self.late:
            raise ChildError(
                f"the child process timed out, and was killed\n{self._output()}"
            )
        if self.returncode != 0:
            raise ChildError(
                f"the child process ended with {self._exit_description()}, expected status 0\n"
                f"{self._output()}"
            )
        return self

    def _exit_description(self) -> str:
        """Return the name of the signal that terminated the process, or `"status N"` if there was none."""
        if self.returncode < 0:
            signal_number = -self.returncode
            with contextlib.suppress(ValueError):  # the number has no name
                return signal.Signals(signal_number).name
        return f"status {self.returncode}"

    def _output(self) -> str:
        """Return stdout and stderr for an error message, each under a heading."""
        return f"--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def run(
    program: str | Sequence[str | os.PathLike[str]],
    *,
    variables: Mapping[str, str | None] | None = None,
    path: Sequence[str | os.PathLike[str]] = (),
    timeout: float = 60.0,
    cwd: str | os.PathLike[str] | None = None,
    check: bool = True,
) -> Ended:
    """Run `program` in a child process that sees the `installed` backends, and return the result.

    `program` is Python source, or a command such as `[sys.executable, "-m", "accel_core", "list"]`. The child
    process gets `environment(variables)` as its environment, with the entries of `path` at the start of
    `PYTHONPATH`, and an empty stdin. When the program ends, or after `timeout` seconds, all processes that it
    started are killed.

    Raises `ChildError`, a subclass of `AssertionError`, if the program cannot be started. If `check` is true,
    also raises `ChildError`, with the program's output, if the program times out or its exit status is not 0.
    Raises `InvalidArgumentError` if `program` is neither source nor a command, or if another argument is
    invalid.
    """
    command = _command(program)
    _require_timeout(timeout)
    environ = environment(variables)
    python_path = [os.fspath(entry) for entry in path]
    if environ.get("PYTHONPATH"):
        python_path.append(environ["PYTHONPATH"])
    if python_path:
        environ["PYTHONPATH"] = os.pathsep.join(python_path)
    try:
        process = start(command, environ, cwd=cwd)
    except OSError as error:
        raise ChildError(
            f"{command[0]!r} cannot be started: {error}. Name a program that exists. For Python, the "
            "program is sys.executable."
        ) from error
    ended = finish(process, timeout, check=False)
    if check:
        ended.succeeded()  # raises an error if the program failed
    return ended


def _command(program: str | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the command that runs `program`, which is Python source or a command.

    Raises `InvalidArgumentError` if `program` is neither.
    """
    if isinstance(program, str):
        return [sys.executable, "-c", program]
    is_sequence = isinstance(program, Sequence) and len(program) > 0
    if is_sequence and all(isinstance(part, str | os.PathLike) for part in program):
        return [os.fspath(part) for part in program]
    raise InvalidArgumentError(
        f"run({program!r}): expected Python source, or a command as a list of strings. Write "
        "run('print(1)'), or run([sys.executable, 'train.py'])."
    )


def _require_timeout(timeout: float) -> None:
    """Raise `InvalidArgumentError` unless `timeout` is a number greater than 0."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not timeout > 0:
        raise InvalidArgumentError(
            f"run(timeout={timeout!r}): expected a number of seconds above 0. Write timeout=60."
        )


def start(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    stdin: IO[Any] | int = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Start a command in a new process group. Raises `OSError` if the program cannot be started."""
    return subprocess.Popen(
        command,
        env=dict(environ),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # a fault may print bytes that are not text
        cwd=None if cwd is None else Path(cwd),
        start_new_session=True,
    )


def finish(
    process: subprocess.Popen[str], timeout: float, *, check: bool = True
) -> Ended:
    """Wait for a child process, kill the processes that it started, and return the result.

    If the process has not ended after `timeout` seconds, it is killed too. In that case, `ChildError` is
    raised if `check` is true.
    """
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        kill(process)
        stdout, stderr = _remaining_output(process)
    finally:
        kill(process)  # and the processes that it has started
        process.wait()
    if timed_out:
        stderr += f"\nkilled after {timeout:g} s"
    ended = Ended(process.returncode, stdout, stderr, late=timed_out)
    if timed_out and check:
        ended.succeeded()  # raises an error, because the process timed out
    return ended


def _remaining_output(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the remaining stdout and stderr of a killed process.

    The output is complete unless another process keeps the pipes open for more than two seconds.
    """
    try:
        return process.communicate(timeout=_OUTPUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return _decode(error.stdout), _decode(error.stderr)


def _decode(output: str | bytes | None) -> str:
    """Return the output as text, or an empty string if nothing was printed."""
    if isinstance(output, bytes):
        return output.decode("utf-8", "replace")
    return output or ""


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a child process and all processes in its group, which might otherwise outlive it."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
