"""Why a vendor's runtime counts no device: on machines that are trees of files, with nodes and variables."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import children

from accel_core.backend import Backend, Granted, Hardware, Visibility
from accel_core.detection import Status
from accel_core.detection.device import uncounted

ACME = Backend(
    name="acme",
    priority=350,
    device_type="acme",
    hardware=Hardware(nodes=("/dev/acme[0-9]*", "/dev/doors/acme")),
    granted=Granted(docker="--device /dev/acme0", slurm="gpu", apptainer="--acme"),
    visibility=Visibility(
        variables=("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES"), filters=("ACME_FILTER",), grammar="cuda"
    ),
)
#: What each grammar makes of a value with a number too high for two devices.
BEYOND = {"cuda": "7", "ascending": "7", "mlu": "7", "level-zero": "7.0,7", "indices": "7"}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A machine with two cards, all of which may be opened."""
    monkeypatch.setattr("accel_core.machine.on_linux", lambda: True)
    for name in ("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dev").mkdir()
    for number in range(2):
        (tmp_path / f"dev/acme{number}").touch()
    return tmp_path


def said(root, backend=ACME):
    outcome = uncounted(backend, str(root))
    assert (outcome.status, outcome.devices) == (Status.NO_DEVICE, 0)
    return outcome.reason, outcome.hint


def test_nothing_is_known(nodes):
    assert said(nodes) == ("the vendor's runtime counts no device", "")


@pytest.mark.parametrize("variable", ["ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER"])
def test_a_number_beyond_the_devices_that_are_there(nodes, monkeypatch, variable):
    monkeypatch.setenv(variable, "99")
    assert said(nodes) == (
        f"{variable}='99' names device 99, counted from 0, and this machine has /dev/acme0, /dev/acme1",
        f"this machine has 2: name 0 or 1, or unset {variable}",
    )


def test_several_numbers_and_one_of_them_there(nodes, monkeypatch):
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "2,1,7")
    assert said(nodes)[0].startswith("ACME_VISIBLE_DEVICES='2,1,7' names devices 2, 7, counted from 0")


def test_a_variable_that_another_overrules_is_not_blamed(nodes, monkeypatch):
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CARD_VISIBLE_DEVICES", "99")
    assert said(nodes)[0] == "the vendor's runtime counts no device with ACME_VISIBLE_DEVICES='1'"


@pytest.mark.parametrize(("grammar", "value"), BEYOND.items(), ids=BEYOND)
def test_in_every_grammar(nodes, monkeypatch, grammar, value):
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", value)
    reason, _ = said(nodes, replace(ACME, visibility=ACME.visibility._replace(grammar=grammar)))
    assert reason.startswith(f"ACME_VISIBLE_DEVICES={value!r} names device 7, counted from 0")


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        ("1", {}),
        ("GPU-8932f937", {}),
        # Modules are numbered by their places, and one door leads to all devices.
        ("7", {"visibility": ACME.visibility._replace(grammar="modules")}),
        ("7", {"hardware": Hardware(nodes=("/dev/doors/acme",))}),
        ("7", {"hardware": Hardware()}),
    ],
)
def test_a_value_that_may_be_right_is_only_named(nodes, monkeypatch, value, changes):
    (nodes / "dev/doors").mkdir()
    (nodes / "dev/doors/acme").touch()
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", value)
    assert said(nodes, replace(ACME, **changes)) == (
        f"the vendor's runtime counts no device with ACME_VISIBLE_DEVICES={value!r}",
        "unset ACME_VISIBLE_DEVICES, or name in it devices that exist",
    )


def test_a_variable_that_hides_all_of_them_or_cannot_be_read(nodes, monkeypatch):
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "")
    assert said(nodes) == (
        "ACME_VISIBLE_DEVICES='' hides every device",
        "unset ACME_VISIBLE_DEVICES, or name in it the devices to use",
    )
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "all")
    reason, hint = said(nodes, replace(ACME, visibility=ACME.visibility._replace(grammar="indices")))
    assert reason.startswith("ACME_VISIBLE_DEVICES='all' is not valid: ")
    assert hint == "unset ACME_VISIBLE_DEVICES, or name in it the devices to use"


def test_a_container_that_has_the_nodes_and_not_the_libraries(nodes, monkeypatch):
    """Apptainer shows the host's /dev, and brings the driver's libraries in with a flag."""
    monkeypatch.setenv("APPTAINER_CONTAINER", "/a.sif")
    assert said(nodes) == (
        (
            "the vendor's runtime counts no device in this Apptainer container, "
            "which shows /dev/acme0, /dev/acme1"
        ),
        "start it with the host's devices: apptainer exec --acme",
    )


ASK = """
import os, sys
from accel_core.backend import Backend, Granted, Hardware
from accel_core.detection.device import uncounted
backend = Backend(
    name="acme", priority=350, device_type="acme",
    hardware=Hardware(nodes=("/dev/acme[0-9]*",)), granted=Granted(slurm="gpu"),
)
import grp, stat  # all of it before this process is nobody, who may read none of it
from accel_core.machine import placement
if os.geteuid() == 0:  # root may open every file
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for job in ("", "4711"):
    if job:
        os.environ["SLURM_JOB_ID"] = job
    outcome = uncounted(backend, ROOT)
    print(outcome.reason, outcome.hint, sep=" | ")
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="permissions as POSIX has them")
def test_nodes_that_this_process_may_not_open():
    """By their modes here, by the job's control group on a cluster: the kernel asks both at once."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own may be searched by nobody else
        Path(folder).chmod(0o755)
        dev = Path(folder, "dev")
        dev.mkdir()
        for number in range(2):
            node = dev / f"acme{number}"
            node.touch()
            node.chmod(0o660 if os.geteuid() == 0 else 0)
        ended = children.run(f"ROOT = {folder!r}\n{ASK}", sys.path)
        assert ended.returncode == 0, ended.stderr
    alone, in_job = ended.stdout.splitlines()
    reason = "this process may not open /dev/acme0, /dev/acme1"
    if os.geteuid() == 0:
        import grp

        name = grp.getgrgid(0).gr_name
        step = f"join the group {name}: sudo usermod -aG {name} $USER, then log in again"
    else:
        step = "see `ls -l /dev/acme0`, and which devices its control group allows this process"
    assert alone == f"{reason} | {step}"
    assert in_job == (
        f"{reason}; Slurm gave the job 4711 none | "
        "ask Slurm for it: #SBATCH --gres=gpu:1, or srun --gres=gpu:1"
    )
