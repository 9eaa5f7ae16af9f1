"""Compilers do not outlive the process that builds, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from accel_train.ops import compiler
from accel_train.ops.compiler import Language

WHY_NOT = compiler.fault(Language.CXX)
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read in /proc"),
]


def runs(pid):
    """Whether that process has not ended (as an orphan it may stay a zombie)."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_compilers_end_with_their_builder(tmp_path, number, program):
    note = tmp_path / "pid"
    (tmp_path / "answer.cpp").write_text("")
    script = tmp_path / "c++"
    note_and_wait = f"echo $$ > {note}~; mv {note}~ {note}; exec sleep 60"
    program(script, f'case "$*" in *" -c "*) {note_and_wait};; esac\nexec {shutil.which("c++")} "$@"')
    code = (
        # Whoever runs the tests in the background of a shell has the signal ignored, for all that they start.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
        "from accel_train.ops.compiler import Job, compile_library\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "job = Job('answer', (folder / 'answer.cpp',), (), (), (), ())\n"
        "compile_library(job, folder, folder / 'log')"
    )
    environ = {**os.environ, "CXX": str(script)}
    builder = subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL)
    try:
        while not note.exists():
            assert builder.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.02)
        builder.send_signal(number)
        builder.wait(20)
    finally:
        builder.kill()
        builder.wait()
    pid = note.read_text().strip()
    end = time.monotonic() + 5
    while runs(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not runs(pid)
