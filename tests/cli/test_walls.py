"""Plugins and vendors that end, crash or hang their process: every command says who, and goes on."""

from __future__ import annotations

import sys
import time

import pytest
from accel_tests import plugins
from accel_tests.plugins import HEAD, arguments, declaring, hook

from accel_core.backend import Environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and sessions")

DIE = "import os; os._exit(3)"
CRASH = "import ctypes; ctypes.string_at(0)"
HANG = "import time; time.sleep(60)"


def dying(accel, step: str, body: str) -> None:
    """Install a backend `bad`, which ranks first, and runs the body at that step."""
    fields, extra = {}, ""
    if step == "import":
        accel.world.plugin("bad", f"{body}\n{declaring(arguments('bad', 990))}")
        return
    if step == "accel_backends":
        accel.world.plugin("bad", HEAD + hook("accel_backends", "", body))
        return
    if step == "device_count":
        accel.world.module("bad_device", plugins.ACCELERATOR.format(count=body))
        fields["accelerator"] = "bad_device:Simulated"
    elif step == "vendor":
        accel.world.module("torch_bad", body)
        fields["vendor_import"] = "torch_bad"
    else:
        extra = hook(step, "backend, others", body)
    accel.world.backend("bad", 990, extra=extra, **fields)


AT = {
    "import": "importing accel_bad, the plugin of accel-bad 1.0",
    "accel_backends": "accel_backends() of accel-bad 1.0",
    "accel_probe": "accel_probe() of accel-bad 1.0",
    "accel_create": "accel_create() of accel-bad 1.0",
    "vendor": "importing torch_bad (accel-bad 1.0)",
    "device_count": "device_count() of accel-bad 1.0",
}


@pytest.fixture
def card(accel):
    """The command, where a card works that ranks just below what a test installs."""
    accel.world.module("deepspeed", "raise ImportError")  # hides what this environment may have
    accel.install_card()
    return accel


@pytest.mark.parametrize(
    ("step", "body", "ending"),
    [
        ("import", DIE, "exited with status 3"),
        ("accel_backends", CRASH, "died of SIGSEGV"),
        ("accel_probe", DIE, "exited with status 3"),
        ("accel_create", CRASH, "died of SIGSEGV"),
        ("vendor", DIE, "exited with status 3"),
        ("device_count", CRASH, "died of SIGSEGV"),
    ],
    ids=AT,
)
def test_the_next_one_is_asked_and_who_died_where_is_said(card, step, body, ending):
    dying(card, step, body)
    done = card("info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("card (accel-card 1.0): somebody's card\n  chosen as      the highest")
    assert done.stderr.startswith("Warning: bad (accel-bad 1.0) is skipped: the process that ")
    assert f"{ending} at: {AT[step]}" in done.stderr


def test_every_command_goes_on_without_it(card, backend):
    step = "device_count"
    dying(card, step, DIE)
    found = backend(card.json("list"), "bad")
    assert found["status"] == "crashed"
    assert AT[step] in found["reason"]
    why = card("why")
    assert (why.returncode, why.stdout.startswith("card (accel-card 1.0) would be chosen")) == (0, True)
    assert AT[step] in " ".join(why.stdout.split())
    for command, told in (
        (["env"], "export DS_ACCELERATOR=card"),
        (["ops", "FusedAdam"], "FusedAdamBuilder on card"),
    ):
        done = card(*command)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout
        assert done.stderr.startswith("Warning: bad (accel-bad 1.0) is skipped: the process that ")
    named = card("info", "bad")
    assert (named.returncode, named.stdout) == (1, "")
    assert named.stderr.count("Error") == 1
    assert named.stderr.startswith("Error: bad (accel-bad 1.0) is not usable: the process that ")


@pytest.mark.parametrize("step", ["import", "accel_probe"])
def test_where_a_backend_gives_no_answer_no_command_names_what_is_chosen(card, step):
    """A program would wait for it, or go on without it: nobody knows whether the package is slow."""
    dying(card, step, HANG)
    start = time.monotonic()
    late = f"bad (accel-bad 1.0) gave no answer within 1.5 s; it was at: {AT[step]}"
    for command in (["info"], ["why"], ["list"]):
        done = card(*command, ACCEL_PROBE_TIMEOUT="1.5", COLUMNS="300")
        assert done.returncode == 1
        said = done.stdout + done.stderr
        assert f"Which backend would be chosen is not known: {late}" in said
        assert "raise ACCEL_PROBE_TIMEOUT, or set ACCEL_BLOCK=bad" in said
        assert "cpu would be chosen" not in said
        assert "uninstall" not in said
    assert time.monotonic() - start < 30
    assert card("why", ACCEL_PROBE_TIMEOUT="1.5", ACCEL_BLOCK="bad").stdout.startswith(
        "card (accel-card 1.0)"
    )


def test_a_plugin_that_dies_at_its_import_costs_others_nothing(accel):
    """`env` of a login node, `bench` and a device that is named: nobody has to block the one that dies."""
    dying(accel, "import", CRASH)
    accel.world.backend("card", 900, vendor_import="torch_card", environment=Environment(forward=("CARD",)))
    done = accel("env", "card", CARD_LOG="1")
    assert "export CARD_LOG=1" in done.stdout, done.stderr
    assert accel("why", "card").stdout.startswith("card (accel-card 1.0): not installed")
    assert accel("list", "--no-probe").returncode == 0
    done = accel("bench", "cpu", "--plot", "x.pdf")
    assert done.returncode == 2
    blocked = accel.json("list", ACCEL_BLOCK="bad")
    assert {b["name"]: b["status"] for b in blocked["backends"]}["bad"] == "blocked"


def test_a_driver_call_that_takes_info_down_hides_nothing_else(accel):
    accel.install_card(
        more="def device_properties(self, device_index=None):\n"
        "        if device_index: import ctypes; ctypes.string_at(0)\n"
        "    def get_compile_backend(self): import time; time.sleep(60)"
    )
    done = accel.json("info", status=1, ACCEL_PROBE_TIMEOUT="5")
    assert done["problems"] == {
        "device_properties(1)": "the process that asked died of SIGSEGV",
        "get_compile_backend()": "the process that asked gave no answer within 5 s",
    }
    assert done["devices"][1]["available_memory"] == 60 * 2**30
    assert done["communication_backend_version"] == [2, 27, 3]


def test_an_operator_whose_process_dies_is_one_error(accel):
    accel.world.module("deepspeed", "raise ImportError")
    accel.world.module(
        "card_ops", "class B:\n    def is_compatible(self, verbose=False): import os; os._exit(3)\n"
    )
    accel.install_card(extra=hook("accel_op_builders", "backend", "return {'SortBuilder': 'card_ops:B'}"))
    done = accel("ops", "Sort")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(
        "Error: card (accel-card 1.0): the process that asked it exited with status 3 at: SortBuilder"
    )
