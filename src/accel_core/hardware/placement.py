"""Detect this process's container and scheduler job, and the devices that they withhold.

The signs are environment variables, marks of container runtimes, cgroups and mounts.
They are read only if a device is missing.
"""

import os
import stat
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
    """The container and the scheduler job in which this process runs. An instance is
    falsy if this process runs in neither.
    """

    #: The kind of container: `"kubernetes"`, `"apptainer"`, `"podman"`, `"docker"`, or
    #: `"container"` for any other kind, or an empty string outside of containers.
    container: str = ""
    #: The command that starts such a container. For `"apptainer"` this may be
    #: `"singularity"`, Apptainer's older name.
    command: str = ""
    #: The id of the Slurm job, or an empty string outside of jobs.
    slurm_job: str = ""
    #: Whether Slurm reports that it gave GPUs to the job.
    has_slurm_gpus: bool = False

    def __bool__(self) -> bool:
        return bool(self.container or self.slurm_job)

    def is_withheld_by_slurm(self, backend: Backend) -> bool:
        """Return whether Slurm gave the job none of `backend`'s devices.

        Slurm reports the devices of a job only if the resource is called `gpu`. For any
        other resource, the result is False.
        """
        # Slurm reports only the devices of the resource that is called "gpu".
        if backend.request.slurm != "gpu" or not self.slurm_job:
            return False
        return not self.has_slurm_gpus

    def container_options(self, backend: Backend) -> str:
        """Return the command-line options that start a container of this kind with
        access to `backend`'s devices. The result is empty if the options are unknown or
        the container is a Kubernetes pod.
        """
        if self.container == "apptainer":
            return self._apptainer_options(backend)
        if self.container == "podman":
            return backend.request.podman or backend.request.docker
        if self.container in ("docker", "container"):
            return backend.request.docker
        return ""

    def _apptainer_options(self, backend: Backend) -> str:
        if backend.request.apptainer:
            return backend.request.apptainer
        # If the vendor has no option, the first device node is bound into the container.
        nodes = backend.hardware.nodes + backend.hardware.shared_nodes
        if not nodes:
            return ""
        first_node = nodes[0].replace("[0-9]*", "0")
        return f"--bind {first_node}"

    def can_provide_devices(self, backend: Backend) -> bool:
        """Return whether there is a known way to get `backend`'s devices in this
        container or job.
        """
        if self.container == "kubernetes" or self.is_withheld_by_slurm(backend):
            return True  # The pod or the job can request devices.
        return bool(self.container_options(backend))


def detect_placement(
    root: str = "/", environ: Mapping[str, str] = os.environ
) -> Placement:
    """Detect this process's container and job by the files and environment variables
    that container runtimes and schedulers leave.

    Files are looked for below `root`. An empty result does not prove that there is no
    container, because LXC without systemd and a bare `unshare` leave no such file.
    """
    container = _container_kind(root, environ)
    command = container
    is_singularity = _SINGULARITY in environ and _APPTAINER not in environ
    if container == "apptainer" and is_singularity:
        command = "singularity"
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
_MARK_FILES = {
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
    """Return the kind of the innermost container, or an empty string outside of containers."""
    reported_kind = _container_kind_of_systemd(root)
    is_apptainer = _APPTAINER in environ or _SINGULARITY in environ
    for kind, mark_file in _MARK_FILES.items():  # from the innermost to the outermost
        if kind == reported_kind or hardware.path_exists(mark_file, root):
            return kind
        if kind == "apptainer" and is_apptainer:
            return kind
        if kind == "kubernetes" and _is_kubernetes_pod(root, environ):
            return kind
    return ""


def _is_kubernetes_pod(root: str, environ: Mapping[str, str]) -> bool:
    hosts = hardware.read_text("/etc/hosts", root)
    return _KUBERNETES in environ or hosts.startswith(_KUBERNETES_HOSTS)


def _container_kind_of_systemd(root: str) -> str:
    """Return the kind of container that systemd reports, or an empty string if it
    reports none.
    """
    kind = hardware.read_text("/run/systemd/container", root)
    if kind in ("", "wsl"):  # systemd counts WSL as a container
        return ""
    if kind in ("docker", "podman"):
        return kind
    return "container"


def denied_nodes(nodes: tuple[str, ...], root: str) -> tuple[str, ...]:
    """Return those of `nodes` that are in `/dev`, if this process may open none of them.
    Otherwise, return an empty tuple.

    The reason can be the nodes' modes or this process's cgroup, which has a list of
    allowed devices (Linux, fs/namei.c, `inode_permission`).
    """
    device_nodes = tuple(node for node in nodes if node.startswith("/dev/"))
    for node in device_nodes:
        may_open = os.access(hardware.under_root(root, node), os.R_OK | os.W_OK)
        if may_open:
            return ()
    return device_nodes


@dataclass(frozen=True)
class NodeGroup:
    """The user group that owns a device node."""

    gid: int
    #: The group's name, or an empty string if the group has none, as in a container
    #: that lacks it.
    name: str
    #: Whether the group may open the node and this process is not in the group.
    is_missing: bool


def node_group(node: str, root: str) -> NodeGroup | None:
    """Return the user group of the device node `node`, or `None` if the group cannot be
    read, as on Windows.
    """
    path = Path(hardware.under_root(root, node))
    try:
        status = path.stat()
        own_groups = [*os.getgroups(), os.getegid()]
    except (OSError, AttributeError):
        return None
    can_read_and_write = stat.S_IRGRP | stat.S_IWGRP
    group_may_open = status.st_mode & can_read_and_write == can_read_and_write
    is_missing = group_may_open and status.st_gid not in own_groups
    try:
        name = path.group()
    except (OSError, KeyError):
        name = ""
    return NodeGroup(status.st_gid, name, is_missing)


def has_account() -> bool:
    """Return whether this user has an entry in /etc/passwd. Without an entry, the user
    cannot join a group.
    """
    import pwd  # This module does not exist on Windows.

    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True
