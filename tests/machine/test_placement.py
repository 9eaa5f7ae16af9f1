"""In which container and which scheduler's job a process is, on trees built on disk; and what it is told."""

import pytest

from accel_core.backend import Backend, Hardware, ResourceRequest
from accel_core.explain.device_access import (
    access_step,
    container_name,
    scheduler_step,
)
from accel_core.hardware.placement import detect_placement

NVIDIA = Backend(
    name="cuda", priority=200, device_type="cuda", hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)),
    request=ResourceRequest(
        docker="--gpus all", kubernetes="nvidia.com/gpu", slurm="gpu", apptainer="--nv", podman="--cdi"
    )
    )  # fmt: skip
#: A device of which nobody but Docker has heard.
ACME = Backend(
    name="acme", priority=350, device_type="acme", hardware=Hardware(nodes=("/dev/acme[0-9]*",)),
    request=ResourceRequest(docker="--device /dev/acme0")
    )  # fmt: skip

APPTAINER, SINGULARITY = (
    {"APPTAINER_CONTAINER": "/a.sif"},
    {"SINGULARITY_CONTAINER": "/a.sif"},
)


@pytest.mark.parametrize(
    ("kind", "file", "text"),
    [
        ("docker", ".dockerenv", ""),
        ("podman", "run/.containerenv", ""),
        ("podman", "run/systemd/container", "podman\n"),
        ("apptainer", ".singularity.d/runscript", ""),
        (
            "kubernetes",
            "etc/hosts",
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n",
        ),
        (
            "kubernetes",
            "etc/hosts",
            "# Kubernetes-managed hosts file (host network).\n",
        ),
        ("kubernetes", "var/run/secrets/kubernetes.io/serviceaccount/token", ""),
        ("container", "run/host/container-manager", "systemd-nspawn"),
        ("container", "run/systemd/container", "lxc\n"),
        ("", "etc/hosts", "127.0.0.1 localhost # Kubernetes-managed hosts file\n"),
        ("", "run/systemd/container", "wsl\n"),
        ("", "run/systemd/container", ""),
        ("", "proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"),
    ],
)
def test_a_container_by_what_its_runtime_leaves(machine, kind, file, text):
    assert not detect_placement(machine.path, {})
    machine.write(file, text)
    found = detect_placement(machine.path, {})
    assert found.container == kind
    assert bool(found) == bool(kind)


@pytest.mark.parametrize(
    ("marks", "environ", "name"),
    [
        (
            [".dockerenv"],
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            "this Kubernetes pod",
        ),
        ([".dockerenv"], APPTAINER, "this Apptainer container"),
        ([".singularity.d/env"], SINGULARITY, "this Singularity container"),
        ([], APPTAINER | SINGULARITY, "this Apptainer container"),
        ([".dockerenv", "run/.containerenv"], {}, "this Podman container"),
        ([".dockerenv"], {}, "this container"),
    ],
)
def test_the_innermost_is_named(machine, marks, environ, name):
    for mark in marks:
        machine.write(mark)
    assert f"this {container_name(detect_placement(machine.path, environ))}" == name


SLURM = {"SLURM_JOB_ID": "7"}
FROM_SLURM = "request a device from Slurm: #SBATCH --gres=gpu:1, or srun --gres=gpu:1"
START, EXEC = (
    "start the container with access to the devices: ",
    "start the container with access to the devices: ",
)
OF_ACME = "--bind /dev/acme0"
SING = f"{EXEC}singularity exec"
POD = "request a device in the pod's spec, under the container: resources: {limits: {nvidia.com/gpu: 1}}"
LIMITS = "request a device in the pod's spec, under resources.limits of the container"


@pytest.mark.parametrize(
    ("environ", "mark", "nvidia", "acme"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "::1"},
            "",
            POD,
            f"{LIMITS}; `kubectl describe node` lists the resource names",
        ),
        (
            APPTAINER,
            "",
            f"{EXEC}apptainer exec --nv",
            f"{EXEC}apptainer exec {OF_ACME}",
        ),
        (SINGULARITY, "", f"{SING} --nv", f"{SING} {OF_ACME}"),
        (
            {},
            "run/.containerenv",
            f"{START}podman run --cdi",
            f"{START}podman run --device /dev/acme0",
        ),
        (
            {},
            ".dockerenv",
            f"{START}docker run --gpus all",
            f"{START}docker run --device /dev/acme0",
        ),
        # Slurm says what GPUs it gave, and of other devices nothing.
        (SLURM, "", FROM_SLURM, ""),
        (SLURM | SINGULARITY, "", f"{FROM_SLURM}; {SING} --nv", f"{SING} {OF_ACME}"),
        (
            SLURM | SINGULARITY | {"SLURM_JOB_GPUS": "2"},
            "",
            f"{SING} --nv",
            f"{SING} {OF_ACME}",
        ),
        ({}, "", "", ""),
    ],
)
def test_the_step_that_brings_the_devices_in(machine, environ, mark, nvidia, acme):
    if mark:
        machine.write(mark)
    place = detect_placement(machine.path, environ)
    assert access_step(place, NVIDIA) == nvidia
    assert access_step(place, ACME) == acme
    if place.container:
        assert place.can_provide_devices(NVIDIA) == bool(nvidia)
        assert place.can_provide_devices(ACME) == bool(acme)


def test_a_name_that_nobody_declared_is_looked_up(machine):
    place = detect_placement(machine.path, {"SLURM_JOB_ID": "7"})
    assert scheduler_step(place, ACME) == (
        "request a device from Slurm: #SBATCH --gres=gpu:1, or srun --gres=gpu:1; "
        "`sinfo -o %G` lists the resource names"
    )
