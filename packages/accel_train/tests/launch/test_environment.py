"""The variables that are forwarded to ranks."""

import json
import os
import subprocess
import sys

import pytest
from accel_tests.plugins import arguments, declaring

import accel_train
from accel_core import (
    Environment,
    Visibility,
    accelerator,
)
from accel_core.errors import (
    LaunchError,
)
from accel_train import as_deepspeed, as_shell, forwarded
from accel_train.launch.environment import pin_of

ENVIRON = {
    "CARD_LOG": "1", "CARD_VISIBLE_DEVICES": "0,1", "CCL_ROOT": "/opt/ccl", "PYTHONPATH": "/home/me/src",
    "ACCEL_STRICT": "1", "DS_ACCELERATOR": "card,cpu", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/home/me",
    "OMP_NUM_THREADS": "8", "TORCHELASTIC_RUN_ID": "job", "RANK": "3", "CARD_f%%": "() { :; }",
}  # fmt: skip
FIELDS = {
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "environment": Environment(("CARD", "CCL")),
}


@pytest.fixture
def card(torch_world):
    torch_world.backend("card", **FIELDS)
    return accelerator("card")


def test_what_the_backend_and_every_backend_needs_is_forwarded_and_nothing_else(
    card, monkeypatch
):
    assert forwarded(card, ENVIRON) == {
        "ACCEL_STRICT": "1", "CARD_LOG": "1", "CCL_ROOT": "/opt/ccl", "DS_ACCELERATOR": "card",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "8", "PYTHONPATH": "/home/me/src",
    }  # fmt: skip
    assert list(forwarded(card, ENVIRON)) == sorted(forwarded(card, ENVIRON))
    monkeypatch.setenv("CARD_OWN", "yes")
    assert forwarded(card)["CARD_OWN"] == "yes"


@pytest.mark.parametrize("prefixes", [[""], "NCCL", ["CARD", "A_"], [None]])
def test_a_class_that_exports_the_whole_environment_is_refused(
    card, monkeypatch, prefixes
):
    """A declaration is checked; a class has its own export_envs(), a framework's too."""
    monkeypatch.setattr(type(card), "export_envs", lambda self: prefixes)
    if prefixes == "NCCL":  # one prefix, not its letters
        assert "CARD_LOG" not in forwarded(card, {**ENVIRON, "NAME": "x"})
        return
    with pytest.raises(
        LaunchError,
        match=r"^export_envs\(\) of card returned .*, expected a prefix of three",
    ):
        forwarded(card, {**ENVIRON, "MY_SECRET": "x"})


def test_what_the_vendor_wants_set_goes_too_unless_it_is_set(torch_world):
    environment = Environment(("CARD", "CCL"), defaults=("CARD_LOG=0", "CARD_MODE=a=b"))
    torch_world.backend("card", **{**FIELDS, "environment": environment})
    card = accelerator("card")
    given = forwarded(card, ENVIRON)
    assert given["CARD_LOG"] == "1"
    assert given["CARD_MODE"] == "a=b"


def test_a_name_that_two_distributions_declare_is_pinned_with_its_distribution(
    torch_world,
):
    torch_world.backend("card")
    torch_world.plugin("card", declaring(arguments("card")), distribution="other-card")
    assert pin_of(accelerator("card@other-card")) == "card@other-card"
    assert pin_of(accelerator("cpu")) == "cpu"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    "value",
    [
        *(
            "plain",
            "two words",
            "it's",
            'say "x"',
            "$HOME `id` \\",
            "two\nlines",
            "",
            "ü",
            "a,b",
        ),
        os.fsdecode(b"\xff\xfe it's \x80\nline\xe9"),
    ],
)
def test_a_shell_gets_every_value_as_it_is(value):
    script = as_shell({"SOME_VALUE": value})
    assert (
        script.isascii()
    )  # text that no locale on the way alters, whatever the value's bytes are
    show = f"{sys.executable} -c \"import os, json; print(json.dumps(os.environ['SOME_VALUE']))\""
    done = subprocess.run(
        ["sh", "-c", f"{script}\n{show}"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == value


def test_deepspeeds_file_holds_what_deepspeed_reads_back():
    text = as_deepspeed({"A": "1", "B": "two words", "C": "x=y"})
    assert text == "A=1\nB=two words\nC=x=y"


@pytest.mark.parametrize(
    "value",
    [
        *("two\nlines", "a\r", 'say "x"', "$HOME", "`id`", "back\\slash", " space"),
        *("eth0,eth1", "caf\udce9", "two\x0blines"),
    ],
)
def test_what_deepspeeds_file_cannot_hold_is_refused(value):
    with pytest.raises(LaunchError, match=r"^BAD: values in \.deepspeed_env cannot"):
        as_deepspeed({"GOOD": "1", "BAD": value})


def test_the_packages_names_are_resolved_when_used():
    assert set(accel_train.__all__) <= set(dir(accel_train))
    with pytest.raises(
        AttributeError, match=r"module 'accel_train' has no attribute 'missing'"
    ):
        accel_train.missing  # noqa: B018
