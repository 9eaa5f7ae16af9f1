"""Why a vendor's runtime counts no device: on machines that are trees of files, with nodes and variables."""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from accel_tests import children
from accel_tests.acme import acme
from accel_tests.asking import counts_none
from accel_tests.computers import Computer

from accel_core import Hardware, Status
from accel_core.explain.device_access import permission_step
from accel_core.hardware.placement import Placement

CARDS = acme(
    hardware=Hardware(nodes=("/dev/acme[0-9]*", "/dev/doors/acme")),
    request={"slurm": "gpu", "apptainer": "--acme"},
)
ONE, OTHER, FILTER = "ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES", "ACME_FILTER"
ZERO = "the vendor's runtime counts no device"
NAME = f"unset {ONE}, or set it to devices that exist"
UNSET_IT = f"unset {ONE}, or set it to the devices to use"
BY_INDEX = {"visibility": {"grammar": "indices"}}
#: Variables, fields of the declaration; what is said, which may end in an ellipsis, and the next step.
SAID = {
    "nothing is known": ({}, {}, ZERO, ""),
    **{
        f"a number beyond the devices: {name}": (
            {name: "99"}, {},
            f"{name}='99' hides every device: there is no device 99",
            f"export {name}=0,1",
        )
        for name in (ONE, OTHER, FILTER)
    },
    "one of them is there": (
        {ONE: "2,1,7"}, {}, f"{ONE}='2,1,7' hides every device: there is no device 2…", f"export {ONE}=1",
    ),
    "one that another overrules is not blamed": ({ONE: "1", OTHER: "99"}, {}, f"{ZERO} with {ONE}='1'", NAME),
    # What each grammar makes of a value with a number too high for two devices.
    **{
        f"in the grammar of {grammar}": (
            {ONE: "7"}, {"visibility": {"grammar": grammar}},
            f"{ONE}='7' hides every device: there is no device 7", None,
        )
        for grammar in ("cuda", "ascending", "mlu")
    },
    # A value that may be right is only named: modules are numbered by their places, one door leads to all, a
    # card has several devices.
    **{
        f"it may be right: {value}, {changes}": ({ONE: value}, changes, f"{ZERO} with {ONE}={value!r}", NAME)
        for value, changes in (
            ("1", {}), ("GPU-8932f937", {}), ("7", {"visibility": {"grammar": "modules"}}),
            ("7.0", {"visibility": {"grammar": "level-zero"}}), ("7", {"visibility": {"grammar": "indices"}}),
            ("7", {"hardware": Hardware(nodes=("/dev/doors/acme",))}), ("7", {"hardware": Hardware()}),
        )
    },
    "it hides all": ({ONE: ""}, {}, f"{ONE}='' hides every device", f"export {ONE}=0,1"),
    "it cannot be read": ({ONE: "all"}, BY_INDEX, f"{ONE}='all' is not valid: …", UNSET_IT),
    # Apptainer shows the host's /dev, and brings the driver's libraries in with a flag.
    "nodes, and no libraries": (
        {"APPTAINER_CONTAINER": "/a.sif"}, {},
        f"{ZERO} in this Apptainer container, although the container has /dev/acme0, /dev/acme1",
        "start the container with access to the devices: apptainer exec --acme",
    ),
    # A pod has nodes only if it was started with them: no step repeats that.
    "nodes, in a container that was started with them": (
        {"KUBERNETES_SERVICE_HOST": "::1"}, {}, ZERO, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_why_the_runtime_counts_none(tmp_path, monkeypatch, what):
    """On a machine with two cards, all of which may be opened."""
    monkeypatch.setattr("accel_core.hardware.on_linux", lambda: True)
    environ, changes, reason, hint = SAID[what]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    machine = Computer(tmp_path)
    for node in ("acme0", "acme1", *(["doors/acme"] if "door" in str(changes) else [])):
        machine.write(f"dev/{node}")
    visible = changes.pop("visibility", {})
    found = replace(CARDS, visibility=replace(CARDS.visibility, **visible), **changes)
    outcome = counts_none(found, machine.path)
    assert outcome.status is Status.NO_DEVICE
    assert outcome.devices == 0
    assert outcome.reason == reason or (
        "…" in reason and outcome.reason.startswith(reason.strip("…"))
    )
    assert hint in (None, outcome.hint)


#: Asks as a user who may open nothing.
COUNT_AS_NOBODY = Path(__file__).with_name("count_as_nobody.py")


@pytest.mark.skipif(not hasattr(os, "chown"), reason="permissions as POSIX has them")
def test_a_container_lacks_the_group_of_a_node_that_it_shows(monkeypatch, tmp_path):
    """ROCm/ROCm-docker#116: started with its devices, whose group has no name there."""
    (tmp_path / "kfd").write_text("")
    (tmp_path / "kfd").chmod(0o660)
    monkeypatch.setattr(os, "getgroups", list)
    monkeypatch.setattr(os, "getegid", lambda: -1)
    backend = acme(request={"docker": "--device /kfd"})
    docker, pod = (
        permission_step(Placement(kind), backend, "/kfd", str(tmp_path))
        for kind in ("docker", "kubernetes")
    )
    run = "start the container with access to the devices: docker run --device /kfd"
    assert docker == f"{run} --group-add {os.getgid()}"
    assert pod.startswith("request a device in the pod's spec, under resources.limits")


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="permissions as POSIX has them")
def test_nodes_that_this_process_may_not_open():
    """By their modes here, by the job's control group on a cluster: the kernel asks both at once."""
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # pytest's own may be searched by nobody else
        Path(folder).chmod(0o755)
        dev = Path(folder, "dev")
        dev.mkdir()
        for number in range(2):
            node = dev / f"acme{number}"
            node.touch()
            node.chmod(0o660 if os.geteuid() == 0 else 0)
        program = COUNT_AS_NOBODY.read_text("utf-8")
        ended = children.run(program, sys.path, {"COUNT_ROOT": folder}).succeeded()
    outside, in_job = ended.stdout.splitlines()
    reason = "this process has no permission to open /dev/acme0, /dev/acme1"
    if os.geteuid() == 0:
        import grp

        name = grp.getgrgid(0).gr_name
        step = (
            f"join the group {name}: sudo usermod -aG {name} $USER, then log in again"
        )
    else:
        step = (
            "check the permissions with `ls -l /dev/acme0`, and check which devices the "
            "cgroup of this process allows"
        )
    assert outside == f"{reason} | {step}"
    assert in_job == (
        f"{reason}; Slurm assigned no such device to job 4711 | "
        "request a device from Slurm: #SBATCH --gres=gpu:1, or srun --gres=gpu:1"
    )
