"""Plugins and vendors that end, crash or hang their process: every command says who, and goes on.

Each fault in each place and command is in tests/faults; who is named at which step in detection's tests.
"""

import sys
import time

import pytest
from accel_tests.plugins import arguments, declaring, hook

from accel_core.backend import Environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

AT = "accel_probe() of accel-bad 1.0"


@pytest.fixture
def bad(accel):
    """`bad(body)`: the command where a card works, and above it a backend whose probe does this."""

    def install(body, **declared):
        accel.world.module(
            "deepspeed", "raise ImportError"
        )  # hides what this environment may have
        accel.install_card()
        accel.world.backend(
            "bad", 995, extra=hook("accel_probe", "backend, others", body), **declared
        )
        return accel

    return install


#: What a backend says whose probe ends the process.
ENDS = "bad (accel-bad 1.0) would crash a program while the program chooses an accelerator. Next step: "
STEP = "set ACCEL_PROBE=isolated, or ACCEL_BLOCK=bad."


@pytest.fixture
def dying(bad):
    return bad("import os; os._exit(3)")


def test_list_shows_the_backend_whose_probe_dies_and_that_nothing_is_chosen(
    dying, backend
):
    listed = dying.json("list")
    found = backend(listed, "bad")
    assert found["status"] == "crashed"
    assert AT in found["reason"]
    assert listed["chosen"] is None
    assert listed["problem"] == ENDS + STEP


def test_why_names_the_step_at_which_a_probe_dies_and_the_card_that_works(dying):
    why = dying("why", COLUMNS="300")
    assert why.returncode == 1
    assert why.stdout.startswith(f"No backend can be chosen. {ENDS}{STEP}")
    assert AT in why.stdout
    assert "card (accel-card 1.0, priority" in why.stdout


@pytest.mark.parametrize(
    "variables", [{"ACCEL_PROBE": "isolated"}, {"ACCEL_BLOCK": "bad"}], ids=str
)
def test_the_step_that_is_told_leaves_the_card_to_be_chosen(dying, variables):
    assert dying.json("list", **variables)["chosen"] == "card"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["info"],
            "card (accel-card 1.0): somebody's card\n  chosen as      the usable backend with the highest",
        ),
        (["env"], "export DS_ACCELERATOR=card"),
        (["ops", "FusedAdam"], "FusedAdamBuilder on card"),
    ],
    ids=["info", "env", "ops"],
)
def test_a_command_goes_on_without_the_backend_that_dies(dying, arguments, told):
    done = dying(*arguments)
    assert done.returncode == 0, done
    assert told in done.stdout, done
    assert done.stderr.startswith(
        "Warning: bad (accel-bad 1.0) is skipped: the process that "
    )
    assert f"exited with status 3 at: {AT}" in done.stderr


def test_info_on_the_backend_that_dies_is_one_error(dying):
    named = dying("info", "bad")
    assert named.returncode == 1
    assert named.stdout == ""
    assert named.stderr.count("Error") == 1
    assert named.stderr.startswith(
        "Error: bad (accel-bad 1.0) is not usable: the process that "
    )


def test_where_a_backend_gives_no_answer_no_command_names_what_is_chosen(bad):
    """A program would wait for it, or go on without it: nobody knows whether the package is slow."""
    accel = bad("import time; time.sleep(60)")
    start = time.monotonic()
    late = f"bad (accel-bad 1.0): no response within 1.5 s; last step: {AT}"
    for command in (["info"], ["why"], ["list"], ["list", "--json"]):
        done = accel(*command, ACCEL_PROBE_TIMEOUT="1.5", COLUMNS="300")
        said = done.stdout + done.stderr
        assert done.returncode == 1
        assert "cpu would be used" not in said
        assert "uninstall" not in said
        assert f"The choice is unknown: {late}" in said
        assert "raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK=bad" in said
    assert time.monotonic() - start < 30
    assert accel("why", ACCEL_PROBE_TIMEOUT="1.5", ACCEL_BLOCK="bad").stdout.startswith(
        "card (accel-card 1.0)"
    )


def test_a_plugin_that_dies_at_its_import_costs_others_nothing(accel):
    """`env` of a login node, `bench` and a device that is named: nobody has to block the one that dies."""
    accel.world.plugin(
        "bad", f"import ctypes; ctypes.string_at(0)\n{declaring(arguments('bad', 990))}"
    )
    accel.world.backend(
        "card",
        900,
        vendor_import="torch_card",
        environment=Environment(forward=("CARD",)),
    )
    done = accel("env", "card", CARD_LOG="1")
    assert "export CARD_LOG=1" in done.stdout, done.stderr
    assert accel("why", "card").stdout.startswith(
        "card (accel-card 1.0): not installed"
    )
    assert accel("list", "--no-probe").returncode == 0
    assert (
        "bad (accel-bad 1.0) would crash a program"
        in accel("list", COLUMNS="300").stdout
    )
    assert accel("bench", "cpu", "--plot", "x.pdf").returncode == 2


def test_a_driver_call_that_takes_info_down_hides_nothing_else(accel):
    accel.install_card(
        more="def device_properties(self, device_index=None):\n"
        "        if device_index: import ctypes; ctypes.string_at(0)\n"
        "    def get_compile_backend(self): import time; time.sleep(60)"
    )
    done = accel.json("info", status=1, ACCEL_PROBE_TIMEOUT="5")
    problems = done["problems"]
    crashed = problems.pop("device_properties(1)")
    assert crashed.startswith(
        "the child process died of SIGSEGV; last call: string_at ("
    )
    assert problems == {
        "get_compile_backend()": "the child process gave no response within 5 s"
    }
    assert done["devices"][1]["available_memory"] == 60 * 2**30
    assert done["communication_backend_version"] == [2, 27, 3]


def test_an_operator_whose_process_dies_is_one_error(accel):
    accel.world.module("deepspeed", "raise ImportError")
    accel.world.module(
        "card_ops",
        "class B:\n    def is_compatible(self, verbose=False): import os; os._exit(3)\n",
    )
    accel.install_card(
        extra=hook(
            "accel_op_builders", "backend", "return {'SortBuilder': 'card_ops:B'}"
        )
    )
    done = accel("ops", "Sort")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(
        "Error: the child process that was using card (accel-card 1.0) exited with status 3 at: SortBuilder"
    )
