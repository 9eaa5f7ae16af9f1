"""However a child process ends, the parent learns how, in time, and nothing of it is left behind."""

import ast
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from accel_tests.processes import gone, until

from accel_core.sandbox import child
from accel_core.sandbox.child import ChildReport

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")


@pytest.fixture
def job(world):
    """Run the body of a function in a child: it sees `job` and `stage`."""

    def run(body, timeout=20, **arguments):
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        world.module(
            "the_job", f"import os, sys, time\n\ndef work(job, stage):\n{lines}\n"
        )
        sys.modules.pop("the_job", None)
        return child.run(importlib.import_module("the_job").work, arguments, timeout)

    return run


def test_an_answer_comes_back(job):
    report = job(
        "stage('half way')\nreturn {'sum': job['a'] + job['b'], 'text': 'é'}", a=1, b=2
    )
    assert report == ChildReport({"sum": 3, "text": "é"}, 0, "half way", "", timeout=20)
    assert not report.timed_out


def test_the_status_of_a_child_is_not_guessed_where_the_kernel_discards_it(job):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        report = job("os.abort()")
        assert report.ending == (
            "ended, and its exit status is lost because SIGCHLD is ignored"
        )
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_what_is_printed_is_in_the_report(job, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it waits in a buffer
    report = job(
        """print('from Python')
os.write(1, b'from a descriptor\\n')
os.system('echo from a shell')
return {'ok': True}"""
    )
    assert report.answer == {"ok": True}
    for part in ("from Python", "from a descriptor", "from a shell"):
        assert part in report.stderr


@pytest.mark.parametrize(
    ("body", "code", "ending"),
    [
        ("os._exit(127)", 127, "exited with status 127"),
        ("os._exit(0)", 0, "exited with status 0"),
        ("import sys; sys.exit(3)", 3, "exited with status 3"),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "died of SIGSEGV"),
        ("os.abort()", -signal.SIGABRT, "died of SIGABRT"),
        ("os.kill(os.getpid(), signal := 9)", -signal.SIGKILL, "died of SIGKILL"),
        ("raise RuntimeError('in the child')", 1, "exited with status 1"),
    ],
)
def test_an_end_without_an_answer_has_a_reason(job, body, code, ending):
    report = job(f"stage('vendor')\n{body}")
    assert report.answer is None
    assert report.returncode == code
    assert report.ending == ending
    assert report.stage == "vendor"
    assert not report.timed_out


def test_the_last_words_are_kept(job):
    assert job("raise RuntimeError('in the child')").stderr.endswith(
        "RuntimeError: in the child"
    )
    assert len(job("sys.stderr.write('x' * 100_000); os._exit(1)").stderr) == 65_536


def test_an_answer_that_is_cut_is_none(tmp_path):
    assert child._read_answer(tmp_path) is None
    (tmp_path / "answer.json").write_text('{"ok": tr')
    assert child._read_answer(tmp_path) is None


def test_a_step_that_is_cut_is_left_out(tmp_path):
    assert child._current_stage(tmp_path) == ("start", {})
    begun = '{"stage": "half way", "facts": {"hook": 2}}\n'
    (tmp_path / "log").write_text(begun + '{"stage": "the ne')
    assert child._current_stage(tmp_path) == ("half way", {"hook": 2})


def test_a_child_that_exits_with_an_error_has_no_answer(job):
    report = job(
        "sys.stderr = type('S', (), {'flush': lambda _: os._exit(3)})()\nreturn {'ok': True}"
    )
    assert report.answer is None
    assert report.ending == "exited with status 3"


#: A program that calls `work` of the module `the_job` in a child.
PARENT = """
import sys; sys.path[:] = {path!r}
from accel_core.sandbox import child
import the_job
print(child.run(the_job.work, {{}}, 60).answer, flush=True)
"""


def test_a_child_does_not_outlive_its_parent(world, tmp_path):
    note, half = tmp_path / "pid", tmp_path / "half"
    world.module(
        "the_job",
        f"import os, time\nfrom pathlib import Path\n\ndef work(job, stage):\n"
        f"    Path({str(half)!r}).write_text(str(os.getpid()))\n"
        f"    os.rename({str(half)!r}, {str(note)!r})\n    time.sleep(60)\n",
    )
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(path=sys.path)])
    try:
        until(note.exists, 60)
    finally:
        parent.kill()
        parent.wait()
    assert gone(int(note.read_text()))


def test_the_child_has_this_pythons_options(world):
    world.module(
        "the_job",
        "import sys\n\ndef work(job, stage):\n    return {'flags': list(sys.flags), 'w': sys.warnoptions}\n",
    )
    expression = "{'flags': list(sys.flags), 'w': sys.warnoptions}"
    command = [
        sys.executable,
        "-I",
        "-B",
        "-X",
        "utf8",
        "-X",
        "dev",
        "-OO",
        "-W",
        "error",
        "-c",
    ]
    code = f"{PARENT.format(path=sys.path)}print({expression})"
    done = subprocess.run([*command, code], capture_output=True, text=True, check=True)
    ours, own = map(ast.literal_eval, reversed(done.stdout.splitlines()))
    assert own["flags"] == ours["flags"]
    assert "error" not in own["w"]


def test_a_signal_without_a_name_is_reported_by_its_number():
    assert ChildReport(returncode=-250).ending == "died of signal 250"


#: A process of the child's own, and both their numbers in a file.
HELPER = """import subprocess
helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
with open(job['note'], 'w') as out:
    out.write(f'{os.getpid()} {helper.pid}')
"""
DEAF = """import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
stage('device_count()')
time.sleep(60)"""


def test_a_hang_ends_at_the_deadline_with_the_whole_process_group(job, tmp_path):
    """Not even Ctrl-C ends some drivers' calls."""
    note, start = tmp_path / "pids", time.monotonic()
    report = job(HELPER + DEAF, timeout=2.0, note=str(note))
    assert time.monotonic() - start < 6
    assert report.timed_out
    assert report.answer is None
    assert report.stage == "device_count()"
    assert report.ending == "gave no response within 2 s"
    pid, helper = map(int, note.read_text().split())
    assert gone(pid)
    assert gone(helper)


def test_a_busy_child_ends_at_the_deadline(job):
    body = "while True:\n    stage('computing')\n    print('still here')\n    time.sleep(0.01)"
    report = job(body, timeout=1.0)
    assert report.timed_out is True
    assert report.timeout == 1
    assert report.stage == "computing"


def test_progress_has_the_stage_and_its_seconds(job, monkeypatch):
    calls = []
    monkeypatch.setattr(child.supervision, "progress", lambda *call: calls.append(call))
    job("stage('importing torch')\ntime.sleep(2.5)\nreturn {}")
    assert [stage for stage, _ in calls][-3:] == [
        "importing torch",
        "importing torch",
        "",
    ]
    assert 1.5 < calls[-2][1] < 3.5


def test_a_process_that_keeps_the_output_open_does_not_delay_the_answer(job, tmp_path):
    note, start = tmp_path / "pids", time.monotonic()
    assert job(f"{HELPER}return {{'ok': True}}", note=str(note)).answer == {"ok": True}
    assert time.monotonic() - start < 10
    assert gone(int(note.read_text().split()[1]))


def test_exit_handlers_of_vendors_do_not_run(job):
    assert job(
        "import atexit; atexit.register(time.sleep, 60)\nreturn {'ok': True}",
        timeout=10,
    ).answer == {"ok": True}


def test_the_child_sees_our_path_and_a_safe_environment(job, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('the module beside you')")
    report = job(
        """return {
    'path': sys.path,
    'argv': sys.argv[1:],
    'autoload': os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'],
    'stdin': sys.stdin.read(),
    'session': os.getsid(0) == os.getpid(),
}"""
    )
    assert report.answer == {
        "path": sys.path,
        "argv": [],
        "autoload": "0",
        "stdin": "",
        "session": True,
    }
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ


def test_nothing_is_left(job, monkeypatch, tmp_path):
    """No descriptor, no process, no file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")

    def children():
        # Other tests' process that forks may be one of them.
        return {
            pid
            for task in Path("/proc/self/task").iterdir()
            for pid in (task / "children").read_text().split()
        }

    before = descriptors(), children()
    job("return {}")
    assert (descriptors(), children()) == before
    assert [path.name for path in tmp_path.glob("accel-*")] == []


def test_no_folder_for_the_answer_is_an_os_error(job, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(OSError, match="missing"):
        job("return {}")


def test_an_interrupt_ends_the_child_too(job, monkeypatch, tmp_path):
    started = []

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is not None:
                started.append(self.pid)
                raise KeyboardInterrupt
            return super().wait()

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        job("time.sleep(60)")
    assert gone(started[0])


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python"])
def test_no_python_to_start_is_an_os_error(job, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(OSError, match=r"sys\.executable|No such file"):
        job("return {}")


def test_the_concurrency_limit_holds_and_waiting_costs_no_time(world, monkeypatch):
    work = world.root / "log"
    world.module(
        "the_job",
        f"import time\n\ndef work(job, stage):\n    with open({str(work)!r}, 'a') as log:\n"
        "        log.write('begin ')\n        log.flush()\n        time.sleep(1)\n"
        "        log.write('end ')\n"
        "    return {'ok': True}\n",
    )
    sys.modules.pop("the_job", None)
    function = importlib.import_module("the_job").work
    monkeypatch.setattr(
        child.supervision, "concurrency_limit", threading.BoundedSemaphore(1)
    )
    reports = child.run_in_parallel(lambda _: child.run(function, {}, 2.5), range(3), 3)
    assert [report.answer for report in reports] == [{"ok": True}] * 3
    assert work.read_text() == "begin end " * 3


def test_a_umask_that_forbids_all_does_not_matter(job):
    before = os.umask(0o777)
    try:
        report = job("stage('here')\nprint('words')\nreturn {'ok': True}")
    finally:
        os.umask(before)
    assert report.answer == {"ok": True}
    assert report.stage == "here"


def test_without_a_temporary_folder_the_reason_is_named(job, tmp_path, monkeypatch):
    """A limit of file sizes is such a reason; `tempfile` hides it."""
    import resource

    monkeypatch.setattr(tempfile, "tempdir", None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match=r"no temporary file .*/tmp: File too large"):
            child.run(sys.exit, {}, 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_threads_the_children_follow_one_another(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert child.run_in_parallel(lambda number: number + 1, range(3), 3) == [1, 2, 3]


def test_after_the_end_no_child_starts(job, monkeypatch):
    monkeypatch.setattr(
        child.supervision, "is_shutting_down", False
    )  # for this test's time
    child.end_all()
    assert job("return {}").answer == {}
    child.end_all(for_good=True)
    with pytest.raises(OSError, match="is ending"):
        job("return {}")


FRAMES = """Traceback (most recent call last):
  File "/site/torch_npu/errors.py", line 3, in <module>
    raise RuntimeError(
"""


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("fatal: no CANN", "fatal: no CANN"),
        (
            "ERROR! IPEX needs PyTorch 2.8.*, but 2.13.0 is found.\n)",
            "ERROR! IPEX needs PyTorch 2.8.*",
        ),
        (f"{FRAMES}acme.NoLicence: expired (\n)\n", "acme.NoLicence: expired ("),
        (
            f"{FRAMES}RuntimeError: no runtime\n[\n  'hint'\n]\nINFO: bye",
            "RuntimeError: no runtime",
        ),
        ("error 3: no licence\nlibacme was built on Monday", "error 3: no licence"),
        ("no licence\n)\n", "no licence"),
        (
            "Fatal Python error: init_fs_encoding\nPython runtime state: core",
            "Fatal Python error: init_fs",
        ),
        (
            "terminate called: error 3\nFatal Python error: Aborted",
            "terminate called: error 3",
        ),
        ("}\n)", ")"),
    ],
)
def test_last_words_are_the_last_error_and_not_the_last_line(stderr, words):
    """Of a process that a package ended: a message of several lines ends in a bracket, a log says goodbye."""
    assert ChildReport(returncode=3, stderr=stderr).last_words.startswith(
        f"; last words: {words}"
    )


def test_a_crash_without_words_is_reported_with_its_call():
    trace = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f5b01472b80 (most recent call first):\n"
        '  File "/site/torch_acme/lib.py", line 3 in load\n'
        '  File "/site/torch_acme/__init__.py", line 4 in <module>\n'
    )
    words = ChildReport(returncode=-11, stderr=trace).last_words
    assert words == "; last call: load (/site/torch_acme/lib.py, line 3)"


def test_without_output_there_are_no_last_words():
    assert ChildReport(returncode=3, stderr="").last_words == ""


def test_the_end_of_the_output_is_printed(capsys):
    ChildReport(returncode=0, stderr="x" * 5000).print_output()
    assert capsys.readouterr().err == "x" * 2000 + "\n"


def test_output_that_is_printed_moves_no_cursor(capsys):
    ChildReport(returncode=0, stderr="a\x1b[2J\tb\nc").print_output()
    assert capsys.readouterr().err == "a\\x1b[2J\tb\nc\n"
