"""The variables for ranks on other hosts, and the forms in which launchers take them."""

import json
import os
import subprocess
import sys

import pytest
from accel_tests.plugins import arguments, declaring

import accel_train
from accel_core import Backend, Granted, Hardware, LaunchError, accelerator
from accel_core.backend import Environment, Visibility
from accel_train import as_deepspeed, as_shell, forwarded
from accel_train.launch import formats
from accel_train.launch.environment import pin_of

# ---------------------------------------------------------------------------- environment
# The variables for ranks on other hosts, and the forms in which launchers take them.


ENVIRON = {
    "CARD_LOG": "1", "CARD_VISIBLE_DEVICES": "0,1", "CCL_ROOT": "/opt/ccl", "PYTHONPATH": "/home/me/src",
    "ACCEL_STRICT": "1", "DS_ACCELERATOR": "card,cpu", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/home/me",
    "OMP_NUM_THREADS": "8", "TORCHELASTIC_RUN_ID": "job", "RANK": "3", "CARD_f%%": "() { :; }",
}  # fmt: skip
FIELDS = {"visibility": Visibility(("CARD_VISIBLE_DEVICES",)), "environment": Environment(("CARD", "CCL"))}


@pytest.fixture
def card(torch_world):
    torch_world.backend("card", **FIELDS)
    return accelerator("card")


def test_what_the_backend_and_every_backend_needs_is_forwarded_and_nothing_else(card, monkeypatch):
    assert forwarded(card, ENVIRON) == {
        "ACCEL_STRICT": "1", "CARD_LOG": "1", "CCL_ROOT": "/opt/ccl", "DS_ACCELERATOR": "card",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "8", "PYTHONPATH": "/home/me/src",
    }  # fmt: skip
    assert list(forwarded(card, ENVIRON)) == sorted(forwarded(card, ENVIRON))
    monkeypatch.setenv("CARD_OWN", "yes")
    assert forwarded(card)["CARD_OWN"] == "yes"


@pytest.mark.parametrize("prefixes", [[""], "NCCL", ["CARD", "A_"], [None]])
def test_a_class_that_exports_the_whole_environment_is_refused(card, monkeypatch, prefixes):
    """A declaration is checked; a class has its own export_envs(), a framework's too."""
    monkeypatch.setattr(type(card), "export_envs", lambda self: prefixes)
    if prefixes == "NCCL":  # one prefix, not its letters
        assert "CARD_LOG" not in forwarded(card, {**ENVIRON, "NAME": "x"})
        return
    with pytest.raises(LaunchError, match=r"^export_envs\(\) of card has .*, expected a prefix of three"):
        forwarded(card, {**ENVIRON, "MY_SECRET": "x"})


def test_what_the_vendor_wants_set_goes_too_unless_it_is_set(torch_world):
    environment = Environment(("CARD", "CCL"), set=("CARD_LOG=0", "CARD_MODE=a=b"))
    torch_world.backend("card", **{**FIELDS, "environment": environment})
    card = accelerator("card")
    given = forwarded(card, ENVIRON)
    assert (given["CARD_LOG"], given["CARD_MODE"]) == ("1", "a=b")


def test_a_name_that_two_distributions_declare_is_pinned_with_its_distribution(torch_world):
    torch_world.backend("card")
    torch_world.plugin("card", declaring(arguments("card")), distribution="other-card")
    assert pin_of(accelerator("card@other-card")) == "card@other-card"
    assert pin_of(accelerator("cpu")) == "cpu"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    "value",
    [
        *("plain", "two words", "it's", 'say "x"', "$HOME `id` \\", "two\nlines", "", "ü", "a,b"),
        os.fsdecode(b"\xff\xfe it's \x80\nline\xe9"),
    ],
)
def test_a_shell_gets_every_value_as_it_is(value):
    script = as_shell({"SOME_VALUE": value})
    assert script.isascii()  # text that no locale on the way alters, whatever the value's bytes are
    show = f"{sys.executable} -c \"import os, json; print(json.dumps(os.environ['SOME_VALUE']))\""
    done = subprocess.run(["sh", "-c", f"{script}\n{show}"], capture_output=True, text=True, check=True)
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
    with pytest.raises(LaunchError, match=r"^BAD: \.deepspeed_env cannot hold"):
        as_deepspeed({"GOOD": "1", "BAD": value})


def test_the_packages_names_are_resolved_when_used():
    assert set(accel_train.__all__) <= set(dir(accel_train))
    with pytest.raises(AttributeError, match=r"module 'accel_train' has no attribute 'missing'"):
        accel_train.missing  # noqa: B018


# ---------------------------------------------------------------------------- formats
# What Ray, Slurm and Docker get: each value arrives, or is refused by name.


PLAIN = {"DS_ACCELERATOR": "card", "CARD_LOG": "/var/log:2,3".replace(",", ":")}
ODD = {
    "CARD_A": 'it\'s "quoted" `here` \\ !',
    "CARD_B": "two\nlines\n",
    "CARD_C": "größer ☃",
    "CARD_D": " a, b ",
    "CARD_E": "",
}
#: A byte that is not UTF-8, as Python keeps it.
BYTES = {"CARD_F": "caf\udce9"}
RAY, SLURM = r"^CARD_X: Ray replaces .* or use --format shell\.$", r"^CARD_X: Slurm's --export"


def declared(**fields):
    return Backend(name="card", priority=1, device_type="card", **fields)


def test_ray_gets_one_object_of_texts():
    assert json.loads(formats.as_ray({**PLAIN, **ODD})) == {"env_vars": {**PLAIN, **ODD}}


@pytest.mark.skipif(sys.platform == "win32", reason="Ray's rule is the platform's")
def test_what_ray_gets_it_does_not_alter(monkeypatch):
    """It calls `os.path.expandvars` on each."""
    monkeypatch.setenv("b", "altered")
    given = {"CARD_X": "100 $, $(b), $-", **ODD}
    for name, value in json.loads(formats.as_ray(given))["env_vars"].items():
        assert os.path.expandvars(value) == given[name]


def test_slurm_gets_a_line_of_its_words():
    line = formats.as_slurm(PLAIN)
    assert line == "#SBATCH --export=ALL,DS_ACCELERATOR=card,CARD_LOG=/var/log:2:3"


@pytest.mark.parametrize(
    ("write", "value", "said"),
    [
        *((formats.as_ray, value, RAY) for value in ("$HOME/x", "${HOME}", "a$b", *BYTES.values())),
        *((formats.as_slurm, value, SLURM) for value in (*filter(None, ODD.values()), *BYTES.values())),
        *((formats.as_slurm, value, SLURM) for value in ("a b", "a#b", "$HOME", "a\r")),
    ],
)
def test_what_a_launcher_would_split_or_alter_is_refused(write, value, said):
    with pytest.raises(LaunchError, match=said):
        write({**PLAIN, "CARD_X": value})


def words(text):
    """What a shell makes of the words, in a locale without any of the characters."""
    shell = ["sh", "-c", 'eval "set -- $1"; for word; do printf "%s\\0" "$word"; done', "sh", text]
    done = subprocess.run(shell, capture_output=True, check=True, env={"LC_ALL": "C", "PATH": os.defpath})
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_docker_gets_the_devices_and_every_value():
    backend = declared(granted=Granted(docker="--gpus all --ipc=host"))
    given = {**PLAIN, **ODD, **BYTES}
    flags = words(formats.as_docker(given, backend))
    expected = [part for name, value in given.items() for part in ("-e", f"{name}={value}")]
    assert flags == [os.fsencode(word) for word in ("--gpus", "all", "--ipc=host", *expected)]


def test_every_device_of_this_host_stands_for_the_first(tmp_path):
    for number in range(3):
        (tmp_path / f"card{number}").touch()
    (tmp_path / "card_control").touch()
    backend = declared(
        hardware=Hardware(nodes=(f"{tmp_path}/card[0-9]*",)),
        granted=Granted(docker=f"--device {tmp_path}/card0 --device {tmp_path}/card_control"),
    )
    flags = formats.container_flags(backend)
    assert flags[1::2] == [f"{tmp_path}/{name}" for name in ("card0", "card1", "card2", "card_control")]
    assert set(flags[::2]) == {"--device"}


def test_the_tests_of_transformers_get_a_module(torch_world, tmp_path):
    torch_world.backend("card")
    written = formats.as_transformers_spec("card")
    spec = {}
    exec(compile(written, "accel_spec.py", "exec"), spec)  # as they import it
    assert spec["DEVICE_NAME"] == "card"
    assert all(callable(spec[f"{name}_FN"]) for name in ("MANUAL_SEED", "EMPTY_CACHE", "DEVICE_COUNT"))
