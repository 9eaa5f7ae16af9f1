"""The container or job of this process, and the way to get devices there.

Told by variables, by the marks that runtimes leave, by control groups and by mounts. Only asked where a
device is missing, so that the first choice of one that is there never comes here.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from accel_core import hardware
from accel_core.backend import Backend

#: Variables by which a scheduler tells a process that it is one of its own. kubelet sets the one in every
#: container, whatever `enableServiceLinks` says: kubernetes/kubernetes, pkg/kubelet/kubelet_pods.go.
_KUBERNETES, _SLURM = "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID"
#: What Slurm sets where it gave a job GPUs (sbatch(1), srun(1), "OUTPUT ENVIRONMENT VARIABLES"). Of devices
#: by other names it says nothing.
_SLURM_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
#: Apptainer sets its own name for it and Singularity's, Singularity the latter alone.
_APPTAINER, _SINGULARITY = "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"


class Placement(NamedTuple):
    """The container and the job that this process runs in; false if it runs in neither."""

    #: `"kubernetes"`, `"apptainer"`, `"podman"`, `"docker"`, `"container"` for another; empty outside.
    container: str = ""
    #: The command that starts such a container: `"singularity"` where that is Apptainer's name.
    command: str = ""
    #: The number of Slurm's job; empty outside.
    slurm_job: str = ""
    #: Slurm told of the GPUs that it gave.
    given_gpus: bool = False

    def __bool__(self) -> bool:
        return bool(self.container or self.slurm_job)

    @property
    def name(self) -> str:
        """The container in words: `"this Kubernetes pod"`."""
        kind = {"kubernetes": "Kubernetes pod", "apptainer": f"{self.command.capitalize()} container"}
        kind["podman"] = "Podman container"
        return f"this {kind.get(self.container, 'container')}"

    def withheld(self, backend: Backend) -> str:
        """Return that Slurm started the job without a device, as a clause: so it says of GPUs alone."""
        none = self.slurm_job and not self.given_gpus and backend.granted.slurm == "gpu"
        return f"; Slurm gave the job {self.slurm_job} none" if none else ""

    def step(self, backend: Backend) -> str:
        """Say how a process in such a container or job gets devices of `backend`; empty if unknown."""
        asked = self.schedulers_step(backend) if self.withheld(backend) else ""
        return "; ".join(filter(None, [asked, self._start(backend)]))

    def schedulers_step(self, backend: Backend) -> str:
        """Return how to ask Slurm, else Kubernetes, for a device; empty where neither runs this process."""
        if self.slurm_job:
            one = f"--gres={backend.granted.slurm or 'gpu'}:1"
            names = "" if backend.granted.slurm else "; `sinfo -o %G` lists the names"
            return f"ask Slurm for it: #SBATCH {one}, or srun {one}{names}"
        return self._start(backend) if self.container == "kubernetes" else ""

    def _start(self, backend: Backend) -> str:
        """How such a container is given devices."""
        granted, hardware = backend.granted, backend.hardware
        if self.container == "kubernetes":
            if not granted.kubernetes:
                named = "the container's resources.limits in the pod's spec; `kubectl describe node`"
                return f"ask for it under {named} lists the names"
            limits = f"{{limits: {{{granted.kubernetes}: 1}}}}"
            return f"ask for it in the pod's spec, under the container: resources: {limits}"
        if self.container == "apptainer":
            nodes = [node.replace("[0-9]*", "0") for node in hardware.nodes + hardware.shared_nodes]
            flags = granted.apptainer or (f"--bind {nodes[0]}" if nodes else "")
            return f"start it with the host's devices: {self.command} exec {flags}" if flags else ""
        command = "podman" if self.container == "podman" else "docker"
        flags = (command == "podman" and granted.podman) or granted.docker
        return f"start it with its devices: {command} run {flags}" if self.container and flags else ""


def placement(root: str = "/", environ: Mapping[str, str] = os.environ) -> Placement:
    """Detect this process's container and job by the marks of runtimes and schedulers.

    `root` is the folder under which files are looked for. No container is not certain: LXC without systemd,
    and a bare `unshare`, leave no mark.
    """
    kind = _container(root, environ)
    singularity = kind == "apptainer" and _SINGULARITY in environ and _APPTAINER not in environ
    command = "singularity" if singularity else kind
    return Placement(kind, command, environ.get(_SLURM, ""), any(environ.get(name) for name in _SLURM_GPUS))


#: What container runtimes leave behind, the innermost first. In images of Apptainer and Singularity:
#: https://github.com/sylabs/singularity-userdocs/blob/2.6/environment_and_metadata.rst. Podman, Docker, and
#: what a manager may put there: systemd, src/basic/virt.c, `container_file_table` and `detect_container`.
_MARKS = (
    ("/.singularity.d", "apptainer"),
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
    ("/run/host/container-manager", "container"),
)
#: How kubelet begins a pod's /etc/hosts; containerd leaves no mark. kubernetes/kubernetes,
#: pkg/kubelet/kubelet_pods.go, `managedHostsHeader` and `managedHostsHeaderWithHostNetwork`.
_KUBERNETES_HOSTS = "# Kubernetes-managed hosts file"


def _container(root: str, environ: Mapping[str, str]) -> str:
    """The kind of the innermost container; empty outside."""
    found = {kind for mark, kind in _MARKS if hardware.path_exists(mark, root)}
    if _APPTAINER in environ or _SINGULARITY in environ:
        found.add("apptainer")
    if _KUBERNETES in environ or hardware.read_text("/etc/hosts", root).startswith(_KUBERNETES_HOSTS):
        found.add("kubernetes")
    # Which container a systemd in it was started in; to systemd, WSL is one.
    if (manager := hardware.read_text("/run/systemd/container", root)) not in ("", "wsl"):
        found.add(manager if manager in ("docker", "podman") else "container")
    return next((kind for _, kind in _MARKS if kind in found), "")


def denied_nodes(nodes: tuple[str, ...], root: str) -> tuple[str, ...]:
    """Return the device nodes if this process may open none of them, because of their modes or its control
    group.

    As in Linux (fs/namei.c, `inode_permission`), the control group's list of devices applies too.
    """
    own = tuple(node for node in nodes if node.startswith("/dev/"))
    return () if any(os.access(hardware.under_root(root, node), os.R_OK | os.W_OK) for node in own) else own


def permission_step(node: str, root: str, start: str = "") -> str:
    """Whom to ask, or what to join, for the permission to open `node`; `start` is how the container starts.

    A container that shows a node lacks only the node's group, which may have no name there.
    """
    path = Path(hardware.under_root(root, node))
    try:
        status, mine = path.stat(), (*os.getgroups(), os.getegid())
        closed = status.st_mode & 0o060 == 0o060 and status.st_gid not in mine
        if start:
            return f"{start} --group-add {status.st_gid}" if closed and " run " in start else start
        group = path.group()
    except (OSError, AttributeError, KeyError):  # Windows has no groups, and some groups no name
        return start or f"see `ls -l {node}`"
    if closed:
        return f"join the group {group}: sudo usermod -aG {group} $USER, then log in again"
    return f"see `ls -l {node}`, and which devices its control group allows this process"
