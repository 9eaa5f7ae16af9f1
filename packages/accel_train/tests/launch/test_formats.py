"""The formats of `accel env` for Ray, Slurm and Docker: each value arrives unchanged, or is rejected."""

import json
import os
import subprocess
import sys

import pytest

from accel_core import (
    Backend,
    Hardware,
    ResourceRequest,
)
from accel_core.errors import (
    LaunchError,
)
from accel_train.launch import formats

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
RAY, SLURM = (
    r"^CARD_X: Ray replaces .* or use --format shell\.$",
    r"^CARD_X: Slurm's --export",
)


def declared(**fields):
    return Backend(name="card", priority=1, device_type="card", **fields)


def test_ray_gets_one_object_of_texts():
    assert json.loads(formats.as_ray({**PLAIN, **ODD})) == {
        "env_vars": {**PLAIN, **ODD}
    }


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
        *(
            (formats.as_ray, value, RAY)
            for value in ("$HOME/x", "${HOME}", "a$b", *BYTES.values())
        ),
        *(
            (formats.as_slurm, value, SLURM)
            for value in (*filter(None, ODD.values()), *BYTES.values())
        ),
        *((formats.as_slurm, value, SLURM) for value in ("a b", "a#b", "$HOME", "a\r")),
    ],
)
def test_what_a_launcher_would_split_or_alter_is_refused(write, value, said):
    with pytest.raises(LaunchError, match=said):
        write({**PLAIN, "CARD_X": value})


def words(text):
    """What a shell makes of the words, in a locale without any of the characters."""
    shell = [
        "sh",
        "-c",
        'eval "set -- $1"; for word; do printf "%s\\0" "$word"; done',
        "sh",
        text,
    ]
    done = subprocess.run(
        shell, capture_output=True, check=True, env={"LC_ALL": "C", "PATH": os.defpath}
    )
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_docker_gets_the_devices_and_every_value():
    backend = declared(request=ResourceRequest(docker="--gpus all --ipc=host"))
    given = {**PLAIN, **ODD, **BYTES}
    flags = words(formats.as_docker(given, backend))
    expected = [
        part for name, value in given.items() for part in ("-e", f"{name}={value}")
    ]
    assert flags == [
        os.fsencode(word) for word in ("--gpus", "all", "--ipc=host", *expected)
    ]


def test_every_device_of_this_host_stands_for_the_first(tmp_path):
    for number in range(3):
        (tmp_path / f"card{number}").touch()
    (tmp_path / "card_control").touch()
    backend = declared(
        hardware=Hardware(nodes=(f"{tmp_path}/card[0-9]*",)),
        request=ResourceRequest(
            docker=f"--device {tmp_path}/card0 --device {tmp_path}/card_control"
        ),
    )
    flags = formats.container_flags(backend)
    assert flags[1::2] == [
        f"{tmp_path}/{name}" for name in ("card0", "card1", "card2", "card_control")
    ]
    assert set(flags[::2]) == {"--device"}


def test_the_tests_of_transformers_get_a_module(torch_world, tmp_path):
    torch_world.backend("card")
    written = formats.as_transformers_spec("card")
    spec = {}
    exec(compile(written, "accel_spec.py", "exec"), spec)  # as they import it
    assert spec["DEVICE_NAME"] == "card"
    assert all(
        callable(spec[f"{name}_FN"])
        for name in ("MANUAL_SEED", "EMPTY_CACHE", "DEVICE_COUNT")
    )
