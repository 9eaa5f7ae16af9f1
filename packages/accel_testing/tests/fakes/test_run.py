"""A child sees what is installed and nothing that steers, ends with all it started, and says why it fails."""

import os
import signal
import sys
import time

import pytest
from accel_tests import processes
from accel_tests.children import SIMULATED

import accel_core
from accel_core import Backend, ChildError, InvalidArgumentError
from accel_core.interface.cpu import CPUAccelerator
from accel_testing import (
    Fault,
    fake,
    installed,
    run,
    write_distribution,
)

#: Prints the chosen accelerator, and the distributions whose backends are seen.
CHOSEN_AND_SEEN = """
import json, accel_core
found = [each for each in accel_core.discover() if each.backend is not None]
print(json.dumps([accel_core.get_accelerator().name, [str(c.provenance) for c in found if not c.builtin]]))
"""


def test_a_child_chooses_what_is_installed_whatever_the_users_pin(
    torch_world, monkeypatch
):
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    with installed(fake("acme"), version="1.0", isolated=True):
        chosen, seen = run(CHOSEN_AND_SEEN, path=[SIMULATED]).answer
        assert chosen == "acme"
        assert seen == ["accel-fake-acme 1.0"]


def test_a_command_of_a_child_lists_what_is_installed(torch_world):
    with installed(fake("acme"), version="1.0", isolated=True):
        listed = run(
            [sys.executable, "-m", "accel_core", "list", "--json"], path=[SIMULATED]
        ).stdout
        assert '"accel-fake-acme"' in listed


def test_a_child_is_told_that_an_object_of_another_process_cannot_be_used(torch_world):
    backend = Backend(
        name="acme", priority=900, device_type="cpu", vendor_import="json"
    )
    with installed(
        backend, accelerator=CPUAccelerator(backend), version="1.0", isolated=True
    ):
        assert accel_core.get_accelerator().name == "acme"
        code = (
            "import accel_core\n"
            "found = [each for each in accel_core.discover() if each.name == 'acme']\n"
            "print([f'{each.reason}. {each.hint}' for each in found])"
        )
        said = run(code, path=[SIMULATED]).stdout
        assert "was installed by a test in another process" in said
        assert "pass its class to installed()" in said


CHOSEN = "import accel_core; print(accel_core.get_accelerator().name)"


def test_a_vendor_that_kills_the_process_ends_the_program():
    with installed(fake("acme", Fault("vendor_import", exits=7)), isolated=True):
        ended = run(CHOSEN, path=[SIMULATED], check=False)
    assert ended.returncode == 7
    assert ended.stdout == ""


def test_a_vendor_that_kills_the_process_ends_no_program_that_probes_in_children():
    variables = {"ACCEL_PROBE": "isolated"}
    with installed(fake("acme", Fault("vendor_import", exits=7)), isolated=True):
        ended = run(CHOSEN, variables=variables, path=[SIMULATED])
    assert ended.stdout == "cpu\n"


@pytest.fixture
def mark(request):
    """Variables by which the processes of this test are found; at its end none of them is left."""
    if sys.platform != "linux":
        pytest.skip("who is left is read in /proc")
    value = f"{request.node.name}-{os.getpid()}"
    began = time.monotonic()
    yield {"OF_THIS_TEST": value}
    assert time.monotonic() - began < 30
    assert not processes.left_of(f"OF_THIS_TEST={value}")


def test_a_child_that_is_too_slow_ends_with_the_child_that_it_forked(mark, tmp_path):
    code = "import os, time\nprint('begun', flush=True)\nif os.fork(): time.sleep(600)\ntime.sleep(600)"
    ended = run(code, variables=mark, timeout=1, check=False, cwd=tmp_path)
    assert ended.late
    assert ended.stdout == "begun\n"
    assert "killed after 1 s" in ended.stderr
    with pytest.raises(ChildError, match=r"timed out.*\n--- stdout\nbegun"):
        ended.succeeded()


def test_what_a_child_leaves_running_is_ended_though_the_child_ended_well(mark):
    code = "import os, time\nif not os.fork(): [os.close(n) for n in range(3)]; time.sleep(60)"
    run(code, variables=mark)


def test_a_process_that_left_the_group_and_holds_the_output_is_not_waited_for(
    mark, monkeypatch
):
    monkeypatch.setattr("accel_testing.children._OUTPUT_SECONDS", 0.2)
    code = (
        "import os, time\nif os.fork(): os._exit(0)\n"
        "os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
    )
    ended = run(code, variables=mark, timeout=1, check=False)
    os.kill(int(ended.stdout), signal.SIGKILL)


FORKED = """
import os, accel_core
from accel_testing import fake, installed
block = installed(fake("acme"), isolated=True)
folder = block.__enter__().folder
child = os.fork()
if not child:
    found = [each for each in accel_core.discover() if each.backend is not None]
    seen = [each.name for each in found if not each.builtin]
    block.__exit__(None, None, None)
    os._exit(seen != ["acme"])
status = os.waitpid(child, 0)[1]
print([status, folder.is_dir() and 1])
block.__exit__(None, None, None)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_it_and_leaves_it_to_its_parent():
    assert run(FORKED).answer == [0, 1]


def test_the_output_of_a_child_that_fails_is_in_the_error():
    with pytest.raises(AssertionError) as raised:
        run(
            "import os, sys; print('so far'); sys.stdout.flush(); os.write(2, b'caf\\xe9'); sys.exit(3)"
        )
    assert isinstance(raised.value, ChildError)
    for text in ("status 3, expected status 0", "so far", "caf\ufffd"):
        assert text in str(raised.value)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_the_signal_that_ended_a_child_is_named():
    with pytest.raises(ChildError, match="SIGKILL"):
        run("import os; os.kill(os.getpid(), 9)")


def test_an_answer_that_is_no_json_is_an_error():
    with pytest.raises(ChildError, match="printed ANSWER without JSON after it"):
        _ = run("print('ANSWER no')").answers


def test_several_answers_are_read_in_their_order():
    assert run("print('ANSWER 1ANSWER [2]')").answers == [1, [2]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run([]), "expected Python source"),
        (lambda: run("", timeout="1"), "timeout='1'"),
        (lambda: run("", variables={"A": 1}), "'A' is 1"),
    ],
)
def test_arguments_that_cannot_be_run_are_refused(call, message):
    with pytest.raises(InvalidArgumentError) as raised:
        call()
    assert message in str(raised.value)


def test_a_distribution_is_written_where_one_wants_it(world, tmp_path):
    folder = write_distribution(
        tmp_path / "site",
        "accel-acme",
        "1.2",
        {"accel.backends": {"acme": "accel_acme"}},
        {"accel_acme": ""},
    )
    world.set_path([folder])
    assert "accel-acme 1.2" in [str(c.provenance) for c in accel_core.discover()]
