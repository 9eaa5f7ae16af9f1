"""`accel -v`, and the fallback's warning and errors as a command says them."""

import io
import logging
import re

import pytest

from accel_core.backend import Hardware
from accel_core.log import LOGGER, logged_by

#: A line of the log: the time, the process, what is said.
LINE = re.compile(r"\[accel \d\d:\d\d:\d\d\.\d{3} (\d+)\] (.*)")


@pytest.fixture
def talkative(accel):
    """A machine whose vendor's package prints, and where a probe aborts its process."""
    accel.world.module("vendor_of_ours", "print('hello')")
    accel.world.backend("npu", 990, vendor_import="vendor_of_ours")
    accel.install("dying", "__import__('os').abort()", 5)
    return accel


def test_verbose_adds_lines_to_stderr_alone(talkative):
    """The last words of what died are not lines of the log."""
    quiet, verbose = talkative("list"), talkative("-v", "list")
    assert quiet.stderr == ""
    assert verbose.stdout == quiet.stdout
    assert [
        line for line in verbose.stderr.splitlines() if not LINE.fullmatch(line)
    ] == []


def test_verbose_says_what_is_tried_also_in_child_processes(talkative):
    lines = LINE.findall(talkative("-v", "list").stderr)
    said = [text for _, text in lines]
    assert "importing accel_npu, the plugin of accel-npu 1.0" in said
    assert "probe npu (accel-npu 1.0) in a child process" in said
    assert "importing vendor_of_ours (accel-npu 1.0)" in said  # in the child
    assert len({process for process, _ in lines}) >= 2


def test_verbose_says_how_long_a_probe_and_the_choice_take(talkative):
    said = [text for _, text in LINE.findall(talkative("-v", "list").stderr)]
    assert any(re.match(r"npu: usable, after [\d.]+ ms", line) for line in said)
    assert any(line.startswith("choose npu, after ") for line in said)


def test_a_program_that_logs_at_debug_hears_what_its_children_try(accel):
    """By its own handlers; the last line before a child's end names who ended it."""
    accel.world.module("vendor_that_dies", "__import__('os')._exit(3)")
    accel.world.backend("npu", 990, vendor_import="vendor_that_dies")
    code = """
import json, logging
import accel_core
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(process)d %(message)s")
print(json.dumps([__import__("os").getpid(), accel_core.selection().name]))
"""
    done = accel.world.child(code, strict=False, variables={"ACCEL_PROBE": "isolated"})
    me, chosen = done.answer
    assert chosen == "cpu"
    lines = [
        line.split(" ", 2)
        for line in done.stderr.splitlines()
        if line.startswith("accel_core ")
    ]
    last = [said for _, process, said in lines if process != str(me)][-1]
    assert last == "importing vendor_that_dies (accel-npu 1.0)"
    assert any(
        process == str(me) and said.startswith("choose cpu, after ")
        for _, process, said in lines
    )


def test_the_last_line_of_a_program_that_a_vendor_ends_names_that_vendor(accel):
    """Nothing guards a process against `os._exit`; the commands survive it and name it."""
    accel.world.module("vendor_that_dies", "__import__('os')._exit(3)")
    accel.world.backend("npu", 990, vendor_import="vendor_that_dies")
    code = "import logging, accel_core\nlogging.basicConfig(level=logging.INFO)\naccel_core.get_accelerator()"
    assert (
        accel.world.child(code, strict=False).stderr == ""
    )  # at INFO the choice alone, and there is none
    done = accel.world.child(code, strict=False, variables={"ACCEL_LOG": "1"})
    assert done.returncode == 3
    assert "] importing vendor_that_dies (accel-npu 1.0)\n" in done.stderr
    for command in (["why", "npu"], ["list"], ["doctor", "--no-experiments"]):
        assert (
            "exited with status 3 at: importing vendor_that_dies"
            in accel(*command).stdout
        )


def test_that_there_merely_is_no_accelerator_is_not_said_before_each_command(accel):
    accel.world.backend(
        "acme",
        hardware=Hardware("Acme GPU", nodes=("/dev/acme[0-9]*",), pci_ids=("fade",)),
    )
    assert accel("info").stderr == ""
    told = accel("-v", "info").stderr
    assert "Warning: No usable accelerator; falling back to the CPU:\n" in told
    assert "/dev/acme[0-9]*" in told
    assert ".py:" not in told


def test_errors_repeat_the_command_that_was_typed(accel):
    accel.install("npu")
    for arguments in (
        ["info", "npx"],
        ["why", "npx"],
        ["env", "npx"],
        ["ops", "npx", "FusedAdam"],
    ):
        done = accel(*arguments)
        assert done.returncode == 2
        start = f"Error: accel {' '.join(arguments[:2])}: no installed distribution declares npx."
        assert done.stderr.startswith(start), done.stderr


def test_a_log_for_a_block_leaves_the_logger_as_it_was():
    before = LOGGER.level, [*LOGGER.handlers]
    text = io.StringIO()
    with logged_by(logging.StreamHandler(text)):
        LOGGER.debug("a %s", "line")
    LOGGER.debug("after the block")
    assert text.getvalue().endswith("] a line\n")
    assert (LOGGER.level, LOGGER.handlers) == before
