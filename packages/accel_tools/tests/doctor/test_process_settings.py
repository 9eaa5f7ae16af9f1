"""Experiments with the settings that a process inherits, in real child processes.

A starter applies a setting and runs the doctor's search in the same process, as a shell or a launcher would
start the doctor. The printed step is then typed behind the same starter.
"""

import shlex
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="settings of Linux")

#: Finds the cause why the module `stub` cannot be imported, and prints the proof.
SEARCH = """
import os, time
from accel_tools.doctor.experiments import trial
from accel_tools.doctor.experiments.cases import find_cause, find_failed_programs
program = trial.Program(("stub",), dict(os.environ), 60)
[case] = find_failed_programs(program, trial.run(program), None)
proof = find_cause(case, time.monotonic() + 60, lambda _: None)
print(proof.text)
print(proof.step)
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Returns a function that runs a command behind a starter, where `stub` has the given source."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    (tmp_path / "library").mkdir()

    def run(source, starter, command):
        (tmp_path / "library" / "stub.py").write_text(source)
        start = f"import os, sys\n{starter}\nos.execvp(sys.argv[1], sys.argv[1:])"
        return subprocess.run(
            [sys.executable, "-I", "-c", start, *command],
            capture_output=True,
            text=True,
            check=False,
        )

    return run


#: What the starter does, a program that fails behind it, and the proven cause with its step.
SETTINGS = {
    "an ignored signal": (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "import os\npid = os.posix_spawn('/bin/true', ['true'], {})\nos.waitpid(pid, 0)",
        "without the inherited setting that ignores SIGCHLD",
        "start the program with `env --default-signal=CHLD COMMAND`",
    ),
    "a blocked signal": (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])",
        "import signal\nif signal.pthread_sigmask(0, ()): raise OSError('err 4')",
        "without the inherited setting that blocks SIGALRM",
        None,
    ),
    "some processors": (
        "os.sched_setaffinity(0, {0})",
        (
            "import os\n"
            "if len(os.sched_getaffinity(0)) < os.cpu_count(): raise OSError('err 5')"
        ),
        "without the restriction to the processors 0 of 0 to ",
        None,
    ),
    "a umask": (
        "os.umask(0o777)",
        "import os\nif os.umask(0o022) == 0o777: raise OSError('err 6')",
        "without the umask 0777",
        "umask 022",
    ),
    "an unlimited stack": (
        "import resource; resource.setrlimit(resource.RLIMIT_STACK, (-1, -1))",
        (
            "import resource\n"
            "if resource.getrlimit(resource.RLIMIT_STACK)[0] < 0: raise OSError('err 7')"
        ),
        "without the limit on stack size (`ulimit -s` is unlimited)",
        "run `ulimit -s 8192` where the limit is set: in the shell, job or container that starts the program",
    ),
    "a scheduling policy": (
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
        "import os\nif os.sched_getscheduler(0): raise OSError('err 8')",
        "without the scheduling policy SCHED_BATCH",
        "start the program with `chrt --other 0 COMMAND`",
    ),
    "inherited open files": (
        "for number in range(8): os.set_inheritable(os.open('/dev/null', 0), True)",
        "import os\nif len(os.listdir('/proc/self/fd')) > 10: raise OSError('err 17')",
        "without 8 open files that the parent process passes on",
        None,
    ),
    "a closed standard input": (
        "os.close(0)",
        "import os\nif os.open('/dev/zero', os.O_RDONLY) == 0: raise OSError('err 10')",
        "without the closed standard input",
        "start the program with an empty standard input: < /dev/null",
    ),
    "a personality": (
        "import ctypes; ctypes.CDLL(None).personality(0x0040000)",
        (
            "personality = open('/proc/self/personality').read()\n"
            "if personality.strip() != '00000000': raise OSError('err 9')"
        ),
        "without the personality 00040000 of `setarch`",
        None,
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_inherited_setting_is_proven_with_a_step_that_works(setting, started):
    starter, source, cause, expected_step = SETTINGS[setting]
    found = started(source, starter, [sys.executable, "-c", SEARCH]).stdout
    text, step = found.splitlines()
    assert text.startswith(cause)
    assert text.endswith("`import stub` works")
    if expected_step is not None:
        assert step == expected_step
    program = [sys.executable, "-c", "import stub"]
    before = started(source, starter, program)
    after = started(source, starter, typed(step, program))
    assert (before.returncode, after.returncode) == (1, 0)


#: A seccomp filter of BPF (seccomp(2)) that lets the system call getpriority(2) fail with EPERM.
FILTER = """
import ctypes, struct
def instruction(code, true, false, value):
    return struct.pack("HBBI", code, true, false, value)
GETPRIORITY = {"x86_64": 140, "aarch64": 141}[os.uname().machine]
code = (
    instruction(0x20, 0, 0, 0)  # load the number of the system call
    + instruction(0x15, 0, 1, GETPRIORITY)
    + instruction(0x06, 0, 0, 0x00050000 | 1)  # fail with EPERM
    + instruction(0x06, 0, 0, 0x7FFF0000)  # permit
)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0  # PR_SET_SECCOMP
"""


def test_a_seccomp_filter_is_named_as_it_cannot_be_tried(started):
    source = "import os\nos.getpriority(os.PRIO_PROCESS, 0)"
    found = started(source, FILTER, [sys.executable, "-c", SEARCH]).stdout
    text = found.splitlines()[0]
    filter_clause = "the seccomp filter of this process, which forbids system calls"
    assert f"Not tried: {filter_clause}" in text


def typed(step, program):
    """Return the command that a user types to follow the step, and to start the program."""
    if "`ls -l /proc/self/fd`" in step:
        close_all = 'for number in {3..20}; do eval "exec $number>&-"; done'
        return ["bash", "-c", f"{close_all}; {shlex.join(program)}"]
    if step.endswith("< /dev/null"):
        return ["sh", "-c", f"{shlex.join(program)} < /dev/null"]
    if "start the program with" in step:
        prefix = step.partition("`")[2].removesuffix(" COMMAND`")
        return [*shlex.split(prefix), *program]
    # A step such as "run `ulimit -s 8192` where …", or a command of the shell alone.
    command = step.split("`")[1] if "`" in step else step
    return ["sh", "-c", f"{command}; {shlex.join(program)}"]
