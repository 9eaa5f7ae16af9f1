"""Ctrl-C at any moment: the process ends, and with it everything that it had begun."""

import contextlib
import os
import random
import signal
import sys
import time
import uuid

import pytest
from accel_tests import children, processes

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits, mounts and users of Linux"
)


_LIST = (
    "import sys; sys.argv = ['accel', 'list']; from accel_core.cli import main; main()"
)
_CHOOSES = "import accel_core; accel_core.get_accelerator()"
_PROGRAMS = {
    "list": (_LIST, ""),
    "here": (_CHOOSES, ""),
    "isolated": (_CHOOSES, "isolated"),
}
#: How a process ends that did not hear Ctrl-C in time, and that heard it.
_ENDS = (0, -signal.SIGINT)


def interrupted(several, code, probe, delay):
    """How it ended that was interrupted after so many seconds, and how many processes outlived it."""
    mark = uuid.uuid4().hex
    environ = children.clean_environment(MARK=mark, TMPDIR=os.environ["HOME"])
    environ = children.untraced(
        {**environ, **({"ACCEL_PROBE": probe} if probe else {})}
    )
    process = children.start(
        children.program(code, several.path, strict=False), environ, cwd=several.root
    )
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr, processes.left_of(f"MARK={mark}")


@pytest.mark.parametrize("program", _PROGRAMS)
def test_interrupts_leave_nothing(several, program):
    times = 60
    seed = random.Random(program)
    code, probe = _PROGRAMS[program]
    ends = []
    for _ in range(times):
        returncode, _, stderr, left = interrupted(
            several, code, probe, seed.uniform(0, 0.4)
        )
        ends.append(returncode)
        # Before it has begun Python ends in a way of its own, and before 3.12 where a class is made.
        begun = not any(
            words in stderr
            for words in ("Fatal Python error: init_", "Error calling __set_name__")
        )
        assert returncode in _ENDS or not begun, stderr
        assert not left
        assert not [
            file for file in (several.root / "home").rglob("*") if file.is_file()
        ], stderr
        # A program ends as Python ends it; so does a command that had not begun.
        if begun and "Traceback" in stderr:
            assert stderr.rstrip(": \n").endswith("KeyboardInterrupt"), stderr
            assert program != "list" or ", in main" not in stderr, stderr
    print(f"{program}: {times} interrupts, ended with {sorted(set(ends))}")
