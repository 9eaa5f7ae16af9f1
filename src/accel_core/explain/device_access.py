"""Describe how to make devices available in this process's container or scheduler job."""

from __future__ import annotations

from accel_core.backend import Backend
from accel_core.hardware.placement import Placement, has_account, node_group


def container_name(place: Placement) -> str:
    """Return the kind of this process's container in words, such as `"Kubernetes pod"`."""
    if place.container == "kubernetes":
        return "Kubernetes pod"
    if place.container == "apptainer":
        return f"{place.command.capitalize()} container"
    if place.container == "podman":
        return "Podman container"
    return "container"


def withheld_clause(place: Placement, backend: Backend) -> str:
    """Return a clause that Slurm gave the job none of `backend`'s devices, or an empty
    string if that is not known.
    """
    if not place.is_withheld_by_slurm(backend):
        return ""
    return f"Slurm assigned no such device to job {place.slurm_job}"


def access_step(place: Placement, backend: Backend) -> str:
    """Return the next step that makes `backend`'s devices available in this container
    or job, or an empty string if no such step is known.
    """
    steps = []
    if place.is_withheld_by_slurm(backend):
        steps.append(_slurm_step(backend))
    container_step = _container_step(place, backend)
    if container_step:
        steps.append(container_step)
    return "; ".join(steps)


def scheduler_step(place: Placement, backend: Backend) -> str:
    """Return the next step to request a device from Slurm or Kubernetes, whichever
    started this process. If neither started this process, the result is empty.
    """
    if place.slurm_job:
        return _slurm_step(backend)
    if place.container == "kubernetes":
        return _kubernetes_step(backend)
    return ""


def _slurm_step(backend: Backend) -> str:
    resource = backend.request.slurm or "gpu"
    option = f"--gres={resource}:1"
    step = f"request a device from Slurm: #SBATCH {option}, or srun {option}"
    if not backend.request.slurm:  # "gpu" may be the wrong name.
        step += "; `sinfo -o %G` lists the resource names"
    return step


def _container_step(place: Placement, backend: Backend) -> str:
    """Return the next step to start this kind of container with devices, or an empty
    string if unknown.
    """
    if place.container == "kubernetes":
        return _kubernetes_step(backend)
    options = place.container_options(backend)
    if not options:
        return ""
    if place.container == "apptainer":
        command = f"{place.command} exec {options}"
        return f"start the container with access to the devices: {command}"
    program = "podman" if place.container == "podman" else "docker"
    command = f"{program} run {options}"
    return f"start the container with access to the devices: {command}"


def _kubernetes_step(backend: Backend) -> str:
    resource = backend.request.kubernetes
    if not resource:
        return (
            "request a device in the pod's spec, under resources.limits of the "
            "container; `kubectl describe node` lists the resource names"
        )
    limits = f"resources: {{limits: {{{resource}: 1}}}}"
    return f"request a device in the pod's spec, under the container: {limits}"


def permission_step(place: Placement, backend: Backend, node: str, root: str) -> str:
    """Return the user's next step to get permission to open the device node `node`.

    The node is looked for below the folder `root`.
    """
    step = access_step(place, backend)
    if step:
        return step + _group_option(place, backend, node, root)
    group = node_group(node, root)
    if group is None or not group.name:
        return f"check the permissions with `ls -l {node}`"
    if not group.is_missing:
        # The process is in the group already, or the group may not open the node.
        return (
            f"check the permissions with `ls -l {node}`, and check which devices the "
            "cgroup of this process allows"
        )
    if not has_account():
        return f"run as a user who is in the group {group.name} (group id {group.gid})"
    command = f"sudo usermod -aG {group.name} $USER"
    return f"join the group {group.name}: {command}, then log in again"


def _group_option(place: Placement, backend: Backend, node: str, root: str) -> str:
    """Return the option with which Docker or Podman adds the node's group to the
    container's process, or an empty string if it is not needed.

    The option contains the group's id, because the group may have no name in the
    container.
    """
    has_group_option = place.container in ("podman", "docker", "container")
    if not has_group_option or not place.container_options(backend):
        return ""  # The next step does not contain `docker run` or `podman run`.
    group = node_group(node, root)
    if group is None or not group.is_missing:
        return ""
    return f" --group-add {group.gid}"
