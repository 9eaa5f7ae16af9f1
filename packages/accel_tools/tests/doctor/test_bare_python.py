"""What a Python without torch cannot do either."""

import os
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from accel_core import hardware
from accel_tools.doctor.experiments import bare_python
from accel_tools.doctor.experiments.bare_python import find_failed_need
from accel_tools.doctor.experiments.trial import Outcome

FAILED = Outcome(error="RuntimeError: it fails")
KILLED = Outcome(error="its process died of SIGKILL")

CODE = """
import os, resource
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
from accel_tools.doctor.experiments.bare_python import find_failed_need
from accel_tools.doctor.experiments.trial import Outcome
print(*find_failed_need(os.environ, Outcome(error="its process died of SIGKILL")), sep="; ")
"""


def test_a_python_that_can_do_everything_needs_nothing():
    assert find_failed_need(os.environ, FAILED) is None


def test_a_python_without_a_module_of_its_standard_library_is_named(tmp_path):
    """A Python that was built without libffi, for example, has no module _ctypes."""
    lacks = Outcome(error="ModuleNotFoundError: No module named '_ctypes'")
    assert find_failed_need(os.environ, lacks) is None  # this Python has it
    assert bare_python._missing_standard_module(lacks) == "_ctypes"
    others = Outcome(error="ModuleNotFoundError: No module named 'torch_npu'")
    assert bare_python._missing_standard_module(others) == ""
    step = bare_python._step("import _ctypes", "ModuleNotFoundError: no", 1)
    assert step.startswith("use a Python with the module _ctypes: ")


def test_a_limit_of_cpu_time_is_found_by_using_it():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False
    )
    assert done.stdout == (
        "run for 3 s of CPU time: SIGKILL ended the process; "
        "run the program where a process may use more than 1 s of CPU time (ulimit -t)\n"
    )


def test_cpu_time_is_used_only_for_a_program_that_was_killed(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert bare_python._cpu_seconds_to_try(FAILED) == 0
    assert bare_python._cpu_seconds_to_try(KILLED) == 3
    soft_only = (1, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: soft_only)
    assert bare_python._cpu_seconds_to_try(KILLED) == 0


@pytest.fixture
def printed(monkeypatch):
    """Set what the Python without torch prints."""

    def set_output(text, returncode=0):
        done = SimpleNamespace(stdout=text.encode(), returncode=returncode)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    return set_output


NO_THREAD = "start threads\nstart threads\tRuntimeError: can't start new thread\n"


def test_of_a_control_group_s_limit_the_value_is_named(printed, monkeypatch):
    printed(NO_THREAD)
    monkeypatch.setattr(hardware, "cgroup_process_limit", lambda _: 16)
    found = find_failed_need({}, FAILED)
    assert found.what == "start threads: RuntimeError: can't start new thread"
    assert "pids.max is 16" in found.step


def test_of_a_users_limit_the_value_is_named(printed, monkeypatch):
    printed(NO_THREAD)
    monkeypatch.setattr(hardware, "cgroup_process_limit", lambda _: None)
    monkeypatch.setattr(bare_python, "_soft_limit", lambda _: 30)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "(`ulimit -u` is 30)" in find_failed_need({}, FAILED).step


def test_a_loopback_interface_that_is_down_is_named():
    """In a network namespace of its own, for real."""
    if subprocess.run(["unshare", "--net", "true"], check=False).returncode:
        pytest.skip("no permission to create a network namespace")
    program = (
        "from accel_tools.doctor.experiments.bare_python import find_failed_need\n"
        "from accel_tools.doctor.experiments.trial import Outcome\n"
        "found = find_failed_need({}, Outcome(error='no response', is_timed_out=True))\n"
        "print(found.what)\nprint(found.step)"
    )
    command = ["unshare", "--net", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    what, step = done.stdout.splitlines()
    assert what.startswith("connect to itself at 127.0.0.1: ")
    assert step == "run as root: ip link set lo up"


def test_a_filter_of_system_calls_is_named(printed, monkeypatch):
    printed(NO_THREAD)
    monkeypatch.setattr(hardware, "cgroup_process_limit", lambda _: None)
    monkeypatch.setattr(bare_python, "_soft_limit", lambda _: None)
    monkeypatch.setattr(hardware, "usable_cores", lambda: 2)
    monkeypatch.setattr(hardware, "read_text", lambda _: "Name:\tx\nSeccomp:\t2\n")
    assert "seccomp filter" in find_failed_need({}, FAILED).step


@pytest.mark.parametrize(
    "text",
    [
        "start a process\nstart a process\tOSError: [Errno 24] Too many open files\n",
        "",
        "start threads\nend\n",
    ],
)
def test_without_a_step_the_other_experiments_run(printed, text):
    printed(text)
    assert find_failed_need({}, FAILED) is None


def test_a_broken_null_device_has_its_command(printed):
    printed("use /dev/null\nuse /dev/null\tOSError: /dev/null is not a device\n")
    step = find_failed_need({}, FAILED).step
    assert step.endswith("mknod -m 666 /dev/null c 1 3")


def test_threads_are_not_tried_where_memory_is_limited(monkeypatch):
    monkeypatch.setattr(bare_python, "_soft_limit", lambda _: 1 << 30)
    assert bare_python._threads_to_start() == 0
