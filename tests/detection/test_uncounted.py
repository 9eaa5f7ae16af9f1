"""Why a vendor's runtime counts no device: on machines that are trees of files, with nodes and variables."""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import children
from accel_tests.acme import acme
from accel_tests.computers import Computer

from accel_core.backend import Hardware
from accel_core.detection import Status
from accel_core.detection.device import uncounted

CARD = acme(
    hardware=Hardware(nodes=("/dev/acme[0-9]*", "/dev/doors/acme")),
    granted={"slurm": "gpu", "apptainer": "--acme"},
)
ONE, OTHER = "ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES"
NONE = "the vendor's runtime counts no device"
NAME = f"unset {ONE}, or name in it devices that exist"
UNSET = f"unset {ONE}, or name in it the devices to use"
INDICES = {"visibility": {"grammar": "indices"}}
#: Variables, fields of the declaration; what is said, which may end in an ellipsis, and the next step.
SAID = {
    "nothing is known": ({}, {}, NONE, ""),
    "one that another overrules is not blamed": ({ONE: "1", OTHER: "99"}, {}, f"{NONE} with {ONE}='1'", NAME),
    # A value that may be right is only named: modules are numbered by their places, one door leads to all, a
    # card has several devices.
    **{
        f"it may be right: {value}, {changes}": ({ONE: value}, changes, f"{NONE} with {ONE}={value!r}", NAME)
        for value, changes in (
            ("1", {}), ("GPU-8932f937", {}), ("7", {"visibility": {"grammar": "modules"}}),
            ("7.0", {"visibility": {"grammar": "level-zero"}}), ("7", {"visibility": {"grammar": "indices"}}),
            ("7", {"hardware": Hardware(nodes=("/dev/doors/acme",))}), ("7", {"hardware": Hardware()}),
        )
    },
    "it cannot be read": ({ONE: "all"}, INDICES, f"{ONE}='all' is not valid: …", UNSET),
    # Apptainer shows the host's /dev, and brings the driver's libraries in with a flag.
    "nodes, and no libraries": (
        {"APPTAINER_CONTAINER": "/a.sif"}, {},
        f"{NONE} in this Apptainer container, which shows /dev/acme0, /dev/acme1",
        "start it with the host's devices: apptainer exec --acme",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_why_the_runtime_counts_none(tmp_path, monkeypatch, what):
    """On a machine with two cards, all of which may be opened."""
    monkeypatch.setattr("accel_core.machine.on_linux", lambda: True)
    environ, changes, reason, hint = SAID[what]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    machine = Computer(tmp_path)
    for node in ("acme0", "acme1", *(["doors/acme"] if "door" in str(changes) else [])):
        machine.write(f"dev/{node}")
    visible = changes.pop("visibility", {})
    found = replace(CARD, visibility=CARD.visibility._replace(**visible), **changes)
    outcome = uncounted(found, machine.path)
    assert (outcome.status, outcome.devices) == (Status.NO_DEVICE, 0)
    assert outcome.reason == reason or ("…" in reason and outcome.reason.startswith(reason.strip("…")))
    assert hint in (None, outcome.hint)


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
        ended = children.run(f"ROOT = {folder!r}\n{ASK}", sys.path).succeeded()
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
