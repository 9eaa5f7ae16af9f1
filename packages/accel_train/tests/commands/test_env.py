"""`accel env`: the variables for other hosts, on a login node too."""

import json
import os

import pytest
from accel_tests import plugins

from accel_core.backend import Environment, Visibility
from accel_train_startup import STARTUP_FOLDER

FIELDS = {
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "environment": Environment(("CARD",)),
}


@pytest.fixture
def login_node(accel):
    """The card's plugin is installed, and there is no card."""
    accel.world.backend("card", extra=plugins.NO_DEVICE, **FIELDS)
    return accel


def test_a_shell_is_the_default(login_node):
    done = login_node(
        "env", "card", CARD_LOG="a b", PYTHONPATH="", OMP_NUM_THREADS="2", HOME="/x"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "export CARD_LOG='a b'" in lines
    assert "export DS_ACCELERATOR=card" in lines
    assert "export OMP_NUM_THREADS=2" in lines
    assert "HOME" not in done.stdout


def test_a_named_one_without_its_vendor_is_told_from_the_declaration(accel):
    """A login node with a CPU build of torch: `accel env cuda > job.env`."""
    accel.world.backend("card", vendor_import="torch_card", **FIELDS)
    done = accel("env", "card", CARD_LOG="1", CARD_VISIBLE_DEVICES="0").succeeded()
    assert "export CARD_LOG=1" in done.stdout
    assert "export DS_ACCELERATOR=card" in done.stdout
    assert "CARD_VISIBLE_DEVICES" not in done.stdout


def test_every_form_holds_the_same(login_node):
    def given(form, **more):
        variables = {
            "CARD_LOG": "a:b",
            "CARD_VISIBLE_DEVICES": "1",
            "LD_LIBRARY_PATH": "/opt/a card",
            **more,
        }
        return login_node("env", "card", "--format", form, **variables).stdout

    document = json.loads(given("json"))
    assert document["LD_LIBRARY_PATH"] == "/opt/a card"  # whoever the vendor is
    assert [document["CARD_LOG"], document["DS_ACCELERATOR"]] == ["a:b", "card"]
    assert "CARD_VISIBLE_DEVICES" not in document
    lines = dict(line.split("=", 1) for line in given("deepspeed").splitlines())
    assert lines == {
        name: document[name]
        for name in document
        if name not in ("LD_LIBRARY_PATH", "PATH")
    }
    assert json.loads(given("ray")) == {"env_vars": document}
    assert given("slurm").startswith("#SBATCH --export=ALL,")
    assert {"CARD_LOG=a:b", "DS_ACCELERATOR=card"} < set(
        given("slurm").strip().split(",")
    )
    assert "-e CARD_LOG=a:b -e DS_ACCELERATOR=card" in given("docker")
    assert "PYTHONPATH" not in given("docker")
    assert "accel_core.accelerator('card')" in given("transformers-spec")


def test_verbose_names_each_variable_that_is_left_out_and_why(login_node):
    log = login_node(
        "-v",
        "env",
        "card",
        "--format",
        "docker",
        CARD_VISIBLE_DEVICES="1",
        PYTHONPATH="",
        FI_PROVIDER="efa",
    ).stderr
    assert "CARD_VISIBLE_DEVICES (each host has its own devices)" in log
    assert "PATH, PYTHONPATH (the output format leaves out these variables)" in log
    others = log.partition(" (not among the forwarded prefixes")[0]
    assert "FI_PROVIDER" in others.rpartition("; ")[2]
    assert "; added or changed variables: ACCEL_IMPORT=json, DS_ACCELERATOR=card" in log


def test_an_encoding_that_lacks_a_character_alters_no_value(login_node):
    variables = {"CARD_LOG": "é", "PYTHONIOENCODING": "ascii"}
    assert (
        "export CARD_LOG=\"$(printf '\\303\\251')\""
        in login_node("env", "card", process=True, **variables).stdout
    )
    refused = login_node(
        "env", "card", "--format", "deepspeed", process=True, **variables
    )
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "stdout's encoding cannot write some of the values" in refused.stderr


def test_without_a_name_it_is_the_chosen_one_and_a_fall_back_is_told(accel):
    accel.install("npu")
    assert "export DS_ACCELERATOR=npu" in accel("env").stdout
    assert "export DS_ACCELERATOR=cpu" in accel("env", DS_ACCELERATOR="cpu").stdout


def test_what_cannot_be_written_or_found_is_an_error(accel, login_node):
    done = login_node("env", "card", "--format", "deepspeed", CARD_LOG="two\nlines")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "CARD_LOG: values in .deepspeed_env cannot contain newlines" in done.stderr
    done = accel("env", "nowhere", "--format", "json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "BackendNotFoundError"
    assert accel("env", "--format", "yaml").returncode == 2


def test_another_vendors_broken_package_is_kept_out_of_the_ranks(login_node):
    """Each rank's `import torch` would fail with it; an activation is heard of all the same."""
    login_node.world.module("torch_bad", "raise ImportError('libbad.so')")
    login_node.world.distribution(
        "torch-bad", "1.0", {"torch.backends": {"bad": "torch_bad:autoload"}}
    )
    on = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", "PYTHONPATH": "/mine"}
    done = login_node("env", "card", "--format", "json", **on)
    assert json.loads(done.stdout) == {
        **json.loads(done.stdout),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": os.pathsep.join([STARTUP_FOLDER, "/mine"]),
    }
    assert (
        "=0 is set for the ranks, because torch-bad 1.0 fails when torch loads it"
        in done.stderr
    )
    login_node.world.module("torch_bad", "def autoload(): pass")
    assert "AUTOLOAD=0" not in login_node("env", "card", **on).stdout
