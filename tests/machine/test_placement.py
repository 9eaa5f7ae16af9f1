"""In which container and which scheduler's job a process is, on trees built on disk; and what it is told."""

from __future__ import annotations

import pytest

from accel_core.backend import Backend, Granted, Hardware
from accel_core.machine.placement import placement

NVIDIA = Backend(
    name="cuda", priority=200, device_type="cuda", hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)),
    granted=Granted(
        docker="--gpus all", kubernetes="nvidia.com/gpu", slurm="gpu", apptainer="--nv", podman="--cdi"
    )
    )  # fmt: skip
#: A device of which nobody but Docker has heard.
ACME = Backend(
    name="acme", priority=350, device_type="acme", hardware=Hardware(nodes=("/dev/acme[0-9]*",)),
    granted=Granted(docker="--device /dev/acme0")
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "file", "text"),
    [
        ("docker", ".dockerenv", ""),
        ("podman", "run/.containerenv", ""),
        ("podman", "run/systemd/container", "podman\n"),
        ("apptainer", ".singularity.d/runscript", ""),
        ("kubernetes", "etc/hosts", "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"),
        ("kubernetes", "etc/hosts", "# Kubernetes-managed hosts file (host network).\n"),
        ("kubernetes", "var/run/secrets/kubernetes.io/serviceaccount/token", ""),
        ("container", "run/host/container-manager", "systemd-nspawn"),
        ("container", "run/systemd/container", "lxc\n"),
    ],
)
def test_a_container_by_what_its_runtime_leaves(machine, kind, file, text):
    assert not placement(machine.path, {})
    machine.write(file, text)
    assert placement(machine.path, {}).container == kind


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("etc/hosts", "127.0.0.1 localhost # Kubernetes-managed hosts file\n"),
        ("run/systemd/container", "wsl\n"),
        ("run/systemd/container", ""),
        ("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"),
    ],
)
def test_what_is_no_container(machine, file, text):
    machine.write(file, text)
    assert not placement(machine.path, {})


@pytest.mark.parametrize(
    ("marks", "environ", "name"),
    [
        ([".dockerenv"], {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "this Kubernetes pod"),
        ([".dockerenv"], {"APPTAINER_CONTAINER": "/a.sif"}, "this Apptainer container"),
        ([".singularity.d/env"], {"SINGULARITY_CONTAINER": "/a.sif"}, "this Singularity container"),
        (
            [],
            {"APPTAINER_CONTAINER": "/a.sif", "SINGULARITY_CONTAINER": "/a.sif"},
            "this Apptainer container",
        ),
        ([".dockerenv", "run/.containerenv"], {}, "this Podman container"),
        ([".dockerenv"], {}, "this container"),
    ],
)
def test_the_innermost_is_named(machine, marks, environ, name):
    for mark in marks:
        machine.write(mark)
    assert placement(machine.path, environ).name == name


@pytest.mark.parametrize(
    ("environ", "mark", "nvidia", "acme"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            "",
            "ask for it in the pod's spec, under the container: resources: {limits: {nvidia.com/gpu: 1}}",
            (
                "ask for it under the container's resources.limits in the pod's spec; "
                "`kubectl describe node` lists the names"
            ),
        ),
        (
            {"APPTAINER_CONTAINER": "/a.sif"},
            "",
            "start it with the host's devices: apptainer exec --nv",
            "start it with the host's devices: apptainer exec --bind /dev/acme0",
        ),
        (
            {"SINGULARITY_CONTAINER": "/a.sif"},
            "",
            "start it with the host's devices: singularity exec --nv",
            "start it with the host's devices: singularity exec --bind /dev/acme0",
        ),
        (
            {},
            "run/.containerenv",
            "start it with its devices: podman run --cdi",
            "start it with its devices: podman run --device /dev/acme0",
        ),
        (
            {},
            ".dockerenv",
            "start it with its devices: docker run --gpus all",
            "start it with its devices: docker run --device /dev/acme0",
        ),
        # Slurm says what GPUs it gave, and of other devices nothing.
        ({"SLURM_JOB_ID": "7"}, "", "ask Slurm for it: #SBATCH --gres=gpu:1, or srun --gres=gpu:1", ""),
        (
            {"SLURM_JOB_ID": "7", "SINGULARITY_CONTAINER": "/a.sif"},
            "",
            (
                "ask Slurm for it: #SBATCH --gres=gpu:1, or srun --gres=gpu:1; "
                "start it with the host's devices: singularity exec --nv"
            ),
            "start it with the host's devices: singularity exec --bind /dev/acme0",
        ),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2", "SINGULARITY_CONTAINER": "/a.sif"},
            "",
            "start it with the host's devices: singularity exec --nv",
            "start it with the host's devices: singularity exec --bind /dev/acme0",
        ),
        ({}, "", "", ""),
    ],
)
def test_the_step_that_brings_the_devices_in(machine, environ, mark, nvidia, acme):
    if mark:
        machine.write(mark)
    place = placement(machine.path, environ)
    assert (place.step(NVIDIA), place.step(ACME)) == (nvidia, acme)


def test_a_name_that_nobody_declared_is_looked_up(machine):
    assert placement(machine.path, {"SLURM_JOB_ID": "7"}).schedulers_step(ACME) == (
        "ask Slurm for it: #SBATCH --gres=gpu:1, or srun --gres=gpu:1; `sinfo -o %G` lists the names"
    )


def test_this_machine_can_be_asked():
    assert placement().container in ("", "docker", "podman", "kubernetes", "apptainer", "container")
