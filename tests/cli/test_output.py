"""What the commands do with their output."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from accel_tests import children

from accel_core.cli import accel as command
from accel_core.cli.output import Output

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")


def program(world, *arguments):
    """A Python program that is the command, with what is installed in this world."""
    path = [*world.path, str(children.SIMULATED)]
    return (
        f"import sys; sys.path[:] = {path!r}; sys.argv = ['accel', *{arguments!r}]; "
        "from accel_core.cli import main; main()"
    )


def on_a_terminal(world, *arguments, columns=80, **env):
    """What the command writes to a terminal of that width."""
    import fcntl
    import pty
    import struct
    import termios

    code = program(world, *arguments)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = children.clean_environment(**{"TERM": "xterm-256color", **env})
    for name in ("COLUMNS", "NO_COLOR"):
        clean.pop(name, None) if name not in env else None
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean,
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux's way to say that the other side is closed
                break
            if not piece:
                break
            said += piece
        process.wait(60)
    os.close(ours)
    return said.decode()


ESCAPE = "\x1b["


@POSIX
def test_a_terminal_shows_what_is_waited_for(accel):
    accel.world.module("torch_slow", "import time; time.sleep(3.5)")
    accel.world.backend("slow", 990, vendor_import="torch_slow")
    said = on_a_terminal(accel.world, "why")
    assert re.search(
        r"\r\x1b\[Kimporting torch_slow \(accel-slow 1.0\), [23] s \.\.\.", said
    )
    assert "..." not in accel("why").stderr


@POSIX
@pytest.mark.parametrize("columns", [0, 60, 160])  # 0: it does not know
def test_a_terminal_has_colour_and_is_filled_and_not_overrun(accel, columns):
    accel.install("npu", f"ProbeResult(False, {'reason ' * 60!r})")
    said = on_a_terminal(accel.world, "list", columns=columns)
    longest = max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in said.splitlines())
    width = columns or 80
    assert width - 12 <= longest <= width
    assert ESCAPE in said
    assert ESCAPE not in on_a_terminal(
        accel.world, "list", **({"TERM": "dumb"} if columns else {"NO_COLOR": "1"})
    )
    assert ESCAPE not in accel("list").stdout


@POSIX
def test_a_reader_that_goes_away_is_no_error(accel):
    code = program(accel.world, "list")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        env=children.clean_environment(),
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == ""


@POSIX
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_descriptor_is_no_crash(accel, closed, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program(accel.world, "list", "--all"))
    shell = (
        f'exec "{sys.executable}" "{file}" {">&-" if closed == "stdout" else "2>&-"}'
    )
    done = subprocess.run(
        ["sh", "-c", shell],
        capture_output=True,
        text=True,
        check=False,
        env=children.clean_environment(),
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert ("DISTRIBUTION" in done.stdout) == (closed == "stderr")


def written(world, *arguments, stdout, **variables):
    """The command with this file for its stdout."""
    environ = children.untraced(children.clean_environment(**variables))
    command = [sys.executable, "-c", program(world, *arguments)]
    with Path(stdout).open("wb") as file:
        return subprocess.run(
            command,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environ,
        )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="Linux has a device that is always full"
)
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]], ids=" ".join)
def test_a_full_disk_is_one_line_and_status_1(accel, arguments):
    done = written(accel.world, *arguments, stdout="/dev/full")
    assert done.returncode == 1
    assert done.stderr == "Error: Cannot write to stdout: No space left on device\n"


def test_colour_can_be_asked_for_and_refused(accel):
    accel.install("npu")
    assert ESCAPE in accel("list", FORCE_COLOR="1").stdout
    assert ESCAPE not in accel("list", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert ESCAPE not in accel("list", FORCE_COLOR="").stdout


def test_without_a_locale_nothing_is_lost(accel, tmp_path):
    accel.install("npu", r"ProbeResult(False, 'driver \u9a71', 'see \u9a71\u52a8')")
    bare = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["list"], ["why", "npu"]):
        done = written(accel.world, *arguments, stdout=tmp_path / "said", **bare)
        assert "Traceback" not in done.stderr
        assert rb"driver \u9a71" in (tmp_path / "said").read_bytes()


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and has no descriptor."""

    isatty = staticmethod(lambda: True)


def test_a_stream_that_is_no_file_is_written_to(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = Terminal()
    output = Output(stream)
    assert output.width == 80
    output.write("words")
    assert stream.getvalue() == "words\n"


def test_in_process_too_a_plugin_cannot_spoil_the_document(torch_world, capsys):
    torch_world.plugin("loud", "print('hello')\nraise OSError('and goodbye')")
    command.main(
        ["list", "--json", "--no-probe"], prog_name="accel", standalone_mode=False
    )
    said = capsys.readouterr()
    assert json.loads(said.out)["chosen"] is None
    assert said.err.count("hello") == 1
