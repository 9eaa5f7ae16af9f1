"""What a program finds at a default place, and a program that waits for it."""

import os
import subprocess
import sys
import time

import pytest

from accel_core.sandbox.waiting import awaited_object
from accel_tools.doctor.experiments import default_places, table, trial
from accel_tools.doctor.experiments.cases import find_cause, find_failed_programs
from accel_tools.doctor.experiments.default_places import DefaultPlace
from accel_tools.doctor.experiments.trial import Program

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: A runtime that connects to a daemon's pipe, unless a variable names another folder.
RUNTIME = """
import os
pipe = os.environ.get("ZAP_PIPE_DIRECTORY", {folder!r}) + "/control"
if os.path.exists(pipe):
    {use}
"""


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """Returns a program that imports a runtime, which uses the pipe of a dead daemon."""
    folder = tmp_path / "zap"
    folder.mkdir()
    os.mkfifo(folder / "control")
    place = DefaultPlace("ZAP_PIPE_DIRECTORY", str(folder), "pipes")
    monkeypatch.setattr(default_places, "DEFAULT_PLACES", (place,))
    monkeypatch.chdir(tmp_path)

    def make(use, timeout=60):
        library = tmp_path / "library"
        library.mkdir()
        source = RUNTIME.format(folder=str(folder), use=use)
        (library / "stub.py").write_text(source)
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(library)}
        return Program(("stub",), environ, timeout)

    return make


def proof(program, seconds=60):
    [case] = find_failed_programs(program, trial.run(program), None)
    return case, find_cause(case, time.monotonic() + seconds, lambda _: None)


@linux_only
@pytest.mark.parametrize("use", ["open(pipe, 'w')", "raise OSError('no daemon')"])
def test_a_dead_daemon_at_a_default_place_is_proven(runtime, tmp_path, use):
    _, found = proof(runtime(use, timeout=4))
    folder = f"{tmp_path}/zap"
    assert found.is_proven
    assert found.text == (
        f"with an empty folder instead of {folder} (pipes), `import stub` works"
    )
    assert "export ZAP_PIPE_DIRECTORY=FOLDER" in found.step


@linux_only
def test_a_place_that_no_table_knows_is_named_as_what_the_program_waits_for(
    runtime, tmp_path, monkeypatch
):
    monkeypatch.setattr(default_places, "DEFAULT_PLACES", ())
    # The program itself opens the file, so that Python reports nothing.
    opens = "import ctypes; ctypes.CDLL(None).open(pipe.encode(), 1)"
    case, found = proof(runtime(opens, timeout=2))
    assert not found.is_proven
    pipe = f"{tmp_path}/zap/control"
    assert case.outcome.awaited.endswith(f"() of {pipe}")
    assert found.text.startswith(f"The program waits in {case.outcome.awaited}. ")
    assert found.step.startswith(f"find out why {pipe} does not respond")


WAITING = {
    "lock": (
        (
            "import fcntl; f = open('{path}', 'w'); fcntl.flock(f, fcntl.LOCK_EX); ready()\n"
            "g = open('{path}'); fcntl.flock(g, fcntl.LOCK_EX)"
        ),
        "flock() of {path}",
    ),
    "connection to a daemon, whose socket only the daemon has by name": (
        (
            "import socket; d = socket.socket(socket.AF_UNIX); d.bind('{path}'); d.listen()\n"
            "s = socket.socket(socket.AF_UNIX); s.connect('{path}'); ready(); s.recv(1)"
        ),
        "",
    ),
    "connection to a server": (
        (
            "import socket; d = socket.socket(); d.bind(('127.0.0.1', 0)); d.listen()\n"
            "s = socket.create_connection(d.getsockname(), 60); ready(); s.recv(1)"
        ),
        "poll() of 127.0.0.1:",
    ),
    "pipe in another thread": (
        (
            "import os, threading; os.mkfifo('{path}')\n"
            "t = threading.Thread(target=lambda: open('{path}', 'w')); t.start(); ready(); t.join()"
        ),
        "openat() of {path}",
    ),
    "semaphore": (
        # Another process creates it, so that its name is that of the mapped file.
        (
            "import ctypes, os; libc = ctypes.CDLL(None); libc.sem_open.restype = ctypes.c_void_p\n"
            "name = f'/accel-{{os.getpid()}}'.encode()\n"
            "if os.fork() == 0: libc.sem_open(name, os.O_CREAT, 0o600, 0); os._exit(0)\n"
            "os.wait(); semaphore = ctypes.c_void_p(libc.sem_open(name, 0)); libc.sem_unlink(name)\n"
            "ready(); libc.sem_wait(semaphore)"
        ),
        "futex() of /dev/shm/sem.accel-",
    ),
    "nothing with a name": ("import time; ready(); time.sleep(60)", ""),
}


@linux_only
@pytest.mark.parametrize(("source", "expected"), WAITING.values(), ids=WAITING)
def test_what_a_process_waits_for_is_named(tmp_path, source, expected):
    path = tmp_path / "place"
    program = "def ready(): print('ready', flush=True)\n" + source.format(path=path)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        awaited = awaited_object(process.pid)
        end = time.monotonic() + 10
        while expected and not awaited and time.monotonic() < end:
            awaited = awaited_object(process.pid)
        assert awaited.startswith(expected.format(path=path))
        assert bool(awaited) == bool(expected)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_has_ended_waits_for_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert awaited_object(process.pid) == ""


def test_a_second_copy_of_a_library_is_proven(runtime, tmp_path, monkeypatch):
    """The loader's cache has the copy of an old toolkit first."""
    good = tmp_path / "good"
    good.mkdir()
    failing = runtime(
        "raise ImportError('/old/libzap.so.6: version `ZAP_3` not found')"
    )
    stub = tmp_path / "library" / "stub.py"
    stub.write_text(
        f"import os\nif '{good}' not in os.environ.get('LD_LIBRARY_PATH', ''):\n"
        "    raise ImportError('/old/libzap.so.6: version `ZAP_3` not found')\n"
    )
    monkeypatch.setattr(
        table, "other_copies_of_libraries", lambda: {str(good): {"libzap.so.6"}}
    )
    _, found = proof(failing)
    assert found.is_proven
    assert found.text == (
        f"with {good} first in the search for libraries, `import stub` works"
    )
    assert found.step.startswith(f"export LD_LIBRARY_PATH={good}, or remove")
