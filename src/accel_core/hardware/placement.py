"""Detect this process's container and scheduler job, and find out how to get devices
there.

The signs are environment variables, marks of container runtimes, control groups and
mounts. They are read only if a device is missing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_core import hardware
from accel_core.backend import Backend

#: Variables that schedulers set in each of their processes. kubelet sets
#: KUBERNETES_SERVICE_HOST in every container, whatever the value of
#: `enableServiceLinks`: kubernetes/kubernetes, pkg/kubelet/kubelet_pods.go.
_KUBERNETES = "KUBERNETES_SERVICE_HOST"
_SLURM = "SLURM_JOB_ID"
#: Variables that Slurm sets if it gave GPUs to the job: sbatch(1), srun(1), "OUTPUT
#: ENVIRONMENT VARIABLES". Slurm sets none of them for resources with another name.
_SLURM_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
#: Apptainer sets both variables. Singularity sets only SINGULARITY_CONTAINER.
_APPTAINER = "APPTAINER_CONTAINER"
_SINGULARITY = "SINGULARITY_CONTAINER"


@dataclass(frozen=True)
class Placement:
    """The container and the job in which this process runs. The object is false if
    there is neither.
    """

    #: The kind of container: `"kubernetes"`, `"apptainer"`, `"podman"`, `"docker"`, or
    #: `"container"` for any other kind; empty outside of containers.
    container: str = ""
    #: The command that starts such a container. For `"apptainer"` this may be
    #: `"singularity"`, Apptainer's older name.
    command: str = ""
    #: The number of the Slurm job; empty outside of jobs.
    slurm_job: str = ""
    #: Whether Slurm reports that it gave GPUs to the job.
    has_slurm_gpus: bool = False

    def __bool__(self) -> bool:
        return bool(self.container or self.slurm_job)

    @property
    def name(self) -> str:
        """The container in words, such as `"this Kubernetes pod"`."""
        if self.container == "kubernetes":
            return "this Kubernetes pod"
        if self.container == "apptainer":
            return f"this {self.command.capitalize()} container"
        if self.container == "podman":
            return "this Podman container"
        return "this container"

    def withheld(self, backend: Backend) -> str:
        """Return a clause if Slurm gave the job none of `backend`'s devices; otherwise
        an empty string.

        Slurm reports the devices of a job only if the resource is called `gpu`.
        """
        if backend.request.slurm != "gpu" or not self.slurm_job or self.has_slurm_gpus:
            return ""
        return f"; Slurm gave the job {self.slurm_job} none"

    def step(self, backend: Backend) -> str:
        """Return the next step to get devices of `backend` in this container or job;
        empty if unknown.
        """
        steps = []
        if self.withheld(backend):
            steps.append(self.scheduler_step(backend))
        steps.append(self._container_step(backend))
        return "; ".join(filter(None, steps))

    def scheduler_step(self, backend: Backend) -> str:
        """Return the next step to request a device from Slurm, or otherwise from
        Kubernetes.

        Empty if neither of them runs this process.
        """
        if self.slurm_job:
            return self._slurm_step(backend)
        if self.container == "kubernetes":
            return self._kubernetes_step(backend)
        return ""

    def _container_step(self, backend: Backend) -> str:
        """Return the next step to start this kind of container with devices; empty if
        unknown.
        """
        if self.container == "kubernetes":
            return self._kubernetes_step(backend)
        if self.container == "apptainer":
            return self._apptainer_step(backend)
        if self.container:
            return self._docker_step(backend)
        return ""

    def _slurm_step(self, backend: Backend) -> str:
        resource = backend.request.slurm or "gpu"
        option = f"--gres={resource}:1"
        step = f"request it from Slurm: #SBATCH {option}, or srun {option}"
        if not backend.request.slurm:
            step += "; `sinfo -o %G` lists the resource names"
        return step

    def _kubernetes_step(self, backend: Backend) -> str:
        resource = backend.request.kubernetes
        if not resource:
            return (
                "request it under the container's resources.limits in the pod's spec; "
                "`kubectl describe node` lists the resource names"
            )
        limits = f"resources: {{limits: {{{resource}: 1}}}}"
        return f"request it in the pod's spec, under the container: {limits}"

    def _apptainer_step(self, backend: Backend) -> str:
        nodes = backend.hardware.nodes + backend.hardware.shared_nodes
        options = backend.request.apptainer
        if not options and nodes:
            first_node = nodes[0].replace("[0-9]*", "0")
            options = f"--bind {first_node}"
        if not options:
            return ""
        return f"start the container with the host's devices: {self.command} exec {options}"

    def _docker_step(self, backend: Backend) -> str:
        command = "docker"
        options = backend.request.docker
        if self.container == "podman":
            command = "podman"
            options = backend.request.podman or options
        if not options:
            return ""
        return f"start the container with its devices: {command} run {options}"


def placement(root: str = "/", environ: Mapping[str, str] = os.environ) -> Placement:
    """Detect this process's container and job by the marks of container runtimes and
    schedulers.

    Files are looked for below `root`. An empty result is not certain, because LXC
    without systemd and a bare `unshare` leave no mark.
    """
    container = _container_kind(root, environ)
    command = container
    if container == "apptainer" and _APPTAINER not in environ:
        command = "singularity" if _SINGULARITY in environ else "apptainer"
    return Placement(
        container=container,
        command=command,
        slurm_job=environ.get(_SLURM, ""),
        has_slurm_gpus=any(environ.get(name) for name in _SLURM_GPUS),
    )


#: A file that marks each kind of container, the innermost kind first. Source for
#: Apptainer and Singularity, which have the file in their images:
#: https://github.com/sylabs/singularity-userdocs/blob/2.6/environment_and_metadata.rst.
#: Source for Podman, Docker and other managers: systemd, src/basic/virt.c,
#: `container_file_table` and `detect_container`.
_MARKS = {
    "apptainer": "/.singularity.d",
    "kubernetes": "/var/run/secrets/kubernetes.io",
    "podman": "/run/.containerenv",
    "docker": "/.dockerenv",
    "container": "/run/host/container-manager",
}
#: The beginning of the file /etc/hosts of a pod, which kubelet writes. It is needed
#: because containerd leaves no mark. Source: kubernetes/kubernetes,
#: pkg/kubelet/kubelet_pods.go, `managedHostsHeader` and
#: `managedHostsHeaderWithHostNetwork`.
_KUBERNETES_HOSTS = "# Kubernetes-managed hosts file"


def _container_kind(root: str, environ: Mapping[str, str]) -> str:
    """Return the kind of the innermost container; empty outside of containers."""
    manager = _systemd_container(root)
    for kind, mark in _MARKS.items():
        if kind == manager or hardware.path_exists(mark, root):
            return kind
        if kind == "apptainer" and (_APPTAINER in environ or _SINGULARITY in environ):
            return kind
        if kind == "kubernetes" and _is_kubernetes_pod(root, environ):
            return kind
    return ""


def _is_kubernetes_pod(root: str, environ: Mapping[str, str]) -> bool:
    hosts = hardware.read_text("/etc/hosts", root)
    return _KUBERNETES in environ or hosts.startswith(_KUBERNETES_HOSTS)


def _systemd_container(root: str) -> str:
    """Return the kind of container that systemd reports; otherwise an empty string."""
    manager = hardware.read_text("/run/systemd/container", root)
    if manager in ("", "wsl"):  # systemd counts WSL as a container
        return ""
    if manager in ("docker", "podman"):
        return manager
    return "container"


def denied_nodes(nodes: tuple[str, ...], root: str) -> tuple[str, ...]:
    """Return the device nodes in `/dev` if this process may open none of them;
    otherwise an empty tuple.

    The nodes' modes or this process's control group can be the reason: Linux also
    applies the control group's list of devices (fs/namei.c, `inode_permission`).
    """
    device_nodes = tuple(node for node in nodes if node.startswith("/dev/"))
    for node in device_nodes:
        if os.access(hardware.under_root(root, node), os.R_OK | os.W_OK):
            return ()
    return device_nodes


def permission_step(node: str, root: str, start: str = "") -> str:
    """Return the next step to get the permission to open the device node `node`.

    `start` is the command that starts this container with its devices. If a container
    has the node, the process may lack only the node's group, which may have no name in
    the container.
    """
    path = Path(hardware.under_root(root, node))
    try:
        status = path.stat()
        own_groups = [*os.getgroups(), os.getegid()]
        group_may_open = status.st_mode & 0o060 == 0o060
        lacks_group = group_may_open and status.st_gid not in own_groups
        if start and lacks_group and " run " in start:
            return f"{start} --group-add {status.st_gid}"
        if start:
            return start
        group = path.group()
    except (OSError, AttributeError, KeyError):
        # There are no such groups on Windows, and some groups have no name.
        return start or f"see `ls -l {node}`"
    if lacks_group and not _has_account():
        return f"run as a user who is in the group {group} ({status.st_gid})"
    if lacks_group:
        command = f"sudo usermod -aG {group} $USER"
        return f"join the group {group}: {command}, then log in again"
    hint = "and check which devices this process's control group allows"
    return f"see `ls -l {node}`, {hint}"


def _has_account() -> bool:
    """Return whether this user has an entry in /etc/passwd. Without an entry, the user
    cannot join a group.
    """
    import pwd  # This module does not exist on Windows.

    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
