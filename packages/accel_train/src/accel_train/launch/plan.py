"""Plan the ranks on this host: the device, cores and variables of each rank.

The cores of a rank are near its device. Ranks do not share cores unless there are more ranks than cores.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from typing import NamedTuple

import accel_train_startup as startup
from accel_core import hardware
from accel_core.errors import LaunchError
from accel_core.settings import DS_ACCELERATOR
from accel_train.launch.cores import (
    format_ranges,
    numa_node_of,
    numa_nodes,
    physical_cores,
)
from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND

__all__ = [
    "Cores",
    "Machine",
    "RankPlan",
    "assign_cores",
    "bypasses_worker",
    "common_variables",
    "describe",
    "plan_ranks",
]


#: More ranks than any host has cores. The limit keeps a typing error from filling the host's memory with
#: processes.
_MAX_RANKS = 1 << 12


class Machine(NamedTuple):
    """A description of this host's accelerator, with the values that the launcher uses."""

    #: The backend's name.
    name: str
    #: The value of `DS_ACCELERATOR` that selects the backend: `name`, or `name@distribution` if `name` is
    #: ambiguous.
    pin: str
    #: The distribution that declares the backend, and its version: `"accel-npu 1.0"`. May be empty.
    origin: str
    is_cpu: bool
    #: The number of visible devices.
    device_count: int
    #: The communication backend of torch.distributed, such as `"hccl"`.
    communication: str
    #: The name of each device in torch, such as `"npu:0"`.
    device_names: list[str]
    #: Each device's PCI address, or `None` if it is unknown.
    pci_addresses: list[str | None]
    #: For each device, the variables that hide all other devices.
    single_device_env: list[dict[str, str]]
    #: The reason why a rank cannot be limited to one device, or an empty string if it can be.
    single_device_error: str
    #: The warnings that were issued during the choice, or an empty string if there were none.
    warning: str
    #: The declaration's default values of variables that are not set.
    defaults: dict[str, str] = {}  # noqa: RUF012 - never changed
    #: Variables that make `import torch` in a rank load the chosen device's package. They also keep torch
    #: from loading a package of another vendor that breaks the import.
    import_variables: dict[str, str] = {}  # noqa: RUF012
    #: A sentence about packages that break `import torch`, or an empty string if there are none.
    isolation_reason: str = ""
    #: What is wrong with the value of a visible-devices variable, and the next step; or both empty.
    visibility_problem: str = ""
    visibility_problem_step: str = ""
    #: Which visible-devices variable hides devices of this host, and the step that makes the devices visible;
    #: or both empty.
    visibility_limit: str = ""
    visibility_limit_step: str = ""


class RankPlan(NamedTuple):
    """The device, cores and environment variables of one rank on this host."""

    device: str
    #: The rank's cores in the kernel's format, such as `0-3,8`, or an empty string if the rank is not bound
    #: to cores.
    cores: str
    environment: dict[str, str]


def plan_ranks(
    arguments: argparse.Namespace, machine: Machine, root: str = "/"
) -> list[RankPlan]:
    """Return a plan for each rank on this host, ordered by local rank.

    `root` is the folder that contains `sys` and `proc`. Raises `LaunchError` if the number of ranks is
    impossible, or if options cannot be used on this host or cannot be combined.
    """
    count = _rank_count(arguments, machine)
    _check_options(arguments, machine)
    cores_by_rank = None
    if not _is_binding_disabled(arguments):
        cores_by_rank = _assign_allowed_cores(machine, count, root)
    plans = []
    for rank in range(count):
        environment = {}
        core_ranges = ""
        if arguments.one_device_per_rank and not machine.is_cpu:
            environment.update(machine.single_device_env[rank])
        if cores_by_rank:
            cores = cores_by_rank[rank]
            core_ranges = format_ranges(cores.ids)
            if not os.environ.get("OMP_NUM_THREADS"):
                environment["OMP_NUM_THREADS"] = str(cores.threads)
        device = "cpu"
        if not machine.is_cpu:
            device = machine.device_names[rank]
        plans.append(RankPlan(device, core_ranges, environment))
    return plans


def _check_options(arguments: argparse.Namespace, machine: Machine) -> None:
    """Raise `LaunchError` if options of `accel run` cannot be used on this host or cannot be combined."""
    if arguments.one_device_per_rank and machine.single_device_error:
        raise LaunchError(
            f"--one-device-per-rank is not possible: {machine.single_device_error}"
        )
    if arguments.one_device_per_rank and bypasses_worker(arguments):
        raise LaunchError(
            "--one-device-per-rank cannot be used with --run-path or --virtual-local-rank"
        )
    if arguments.doctor and bypasses_worker(arguments):
        raise LaunchError(
            "--doctor cannot be used with --run-path or --virtual-local-rank"
        )


def _rank_count(arguments: argparse.Namespace, machine: Machine) -> int:
    """Return the number of ranks on this host.

    Raises `LaunchError` if this is below 1, above `_MAX_RANKS`, or above the number of devices.
    """
    option: str = arguments.nproc_per_node
    if option == "auto":
        count = machine.device_count
        if count == 0:
            raise LaunchError(
                f"{machine.name} has no device on this host, so no rank can be started. Run accel why "
                f"{machine.name} for the reason, or choose another accelerator with --backend."
            )
    else:
        count = _torchrun_rank_count(option)
    if count < 1:
        raise LaunchError(f"--nproc-per-node {option}: expected 1 or more ranks")
    if count > _MAX_RANKS:
        raise LaunchError(
            f"--nproc-per-node {option:.20}: expected at most {_MAX_RANKS} ranks on one host"
        )
    if count > machine.device_count and not machine.is_cpu:
        raise _too_few_devices_error(option, count, machine)
    return count


def _too_few_devices_error(option: str, ranks: int, machine: Machine) -> LaunchError:
    """Return the error for more ranks than devices. `option` is the value of `--nproc-per-node`."""
    count = machine.device_count
    message = (
        f"--nproc-per-node {option}: the number of ranks ({ranks}) exceeds the number of {machine.name} "
        f"devices ({count})"
    )
    cause = machine.visibility_problem or machine.visibility_limit
    if cause:
        message += f": {cause}"
    step = machine.visibility_limit_step or "choose another accelerator with --backend"
    return LaunchError(f"{message}. Start no more ranks than devices, or {step}.")


def _torchrun_rank_count(option: str) -> int:
    """Return the number of ranks that torchrun starts for a `--nproc-per-node` such as `4` or `gpu`.

    Raises `LaunchError` if torchrun rejects the value.
    """
    from torch.distributed.run import determine_local_world_size

    try:
        return int(determine_local_world_size(option))
    except (ValueError, RuntimeError) as error:
        raise LaunchError(
            f"--nproc-per-node {option!r} is not valid: {error}. Expected a number, or auto."
        ) from None


def _is_binding_disabled(arguments: argparse.Namespace) -> bool:
    """Return whether `accel run` does not bind ranks to cores, because of an option."""
    is_bound_by_torchrun = bool(getattr(arguments, "numa_binding", None))
    return arguments.no_bind or is_bound_by_torchrun or bypasses_worker(arguments)


def _assign_allowed_cores(
    machine: Machine, count: int, root: str
) -> list[Cores] | None:
    """Return the cores of each of the `count` ranks, out of those that this process may use.

    Returns `None` if this system cannot bind processes to cores.
    """
    allowed = hardware.allowed_cores()
    if not allowed:
        return None
    device_nodes: list[int | None] = [None] * count
    if not machine.is_cpu:
        addresses = machine.pci_addresses[:count]
        device_nodes = [numa_node_of(address, root) for address in addresses]
    quota = hardware.cgroup_cpu_quota(root)
    return assign_cores(device_nodes, allowed, root, quota=quota)


def bypasses_worker(arguments: argparse.Namespace) -> bool:
    """Return whether torchrun's options make it impossible to use `accel_train.launch.worker`.

    With `--run-path`, torchrun itself runs the script as Python code. With `--virtual-local-rank`, every rank
    has `LOCAL_RANK=0`, so the worker could not find the rank's plan.
    """
    return bool(arguments.run_path or getattr(arguments, "virtual_local_rank", False))


# --- Dividing the cores among the ranks ----------------------------------------------------------------


class Cores(NamedTuple):
    """The CPU cores assigned to one rank."""

    #: The sorted numbers of the logical cores. If there are more ranks than cores, ranks share cores.
    ids: tuple[int, ...]
    #: The number of compute threads for these cores: one for each physical core, and at least 1.
    threads: int
    #: The NUMA node of the cores.
    node: int


def assign_cores(
    device_nodes: Sequence[int | None],
    allowed: Collection[int],
    root: str = "/",
    *,
    quota: float | None = None,
) -> list[Cores]:
    """Return the CPU cores of each rank on this host, ordered by local rank.

    `device_nodes` is the NUMA node of each rank's device; ranks with `None` are spread evenly over the nodes.
    `allowed` is the set of logical cores that may be used. `quota` is the cgroup CPU limit in cores, for all
    ranks together; `None` means no limit. `root` is the folder that contains `sys`.

    The ranks on a NUMA node divide its physical cores evenly among themselves, so no two ranks share a
    physical core through hyper-threading.
    """
    cores_of_node = _usable_cores_of_nodes(allowed, root)
    nodes = sorted(cores_of_node)
    node_of_rank = []
    rank_count = len(device_nodes)
    for rank, device_node in enumerate(device_nodes):
        if device_node is not None and device_node in cores_of_node:
            node_of_rank.append(device_node)
        else:
            # Ranks without a known node are spread evenly over all nodes.
            node_of_rank.append(nodes[rank * len(nodes) // rank_count])
    max_threads = None
    if quota is not None:
        max_threads = max(1, int(quota / rank_count))
    cores_by_rank = []
    for rank, node in enumerate(node_of_rank):
        earlier_ranks_on_node = node_of_rank[:rank].count(node)
        cores = _cores_of_one_rank(
            cores_of_node[node],
            position=earlier_ranks_on_node,
            rank_count=node_of_rank.count(node),
            node=node,
            max_threads=max_threads,
        )
        cores_by_rank.append(cores)
    return cores_by_rank


def _usable_cores_of_nodes(
    allowed: Collection[int], root: str
) -> dict[int, list[tuple[int, ...]]]:
    """Return the physical cores of each NUMA node, restricted to the logical cores in `allowed`.

    Each physical core is the tuple of its logical cores. If the nodes are unknown, all cores are in node 0.
    """
    cores_of_node = {}
    for node, ids in numa_nodes(root).items():
        usable = set(ids) & set(allowed)
        if usable:
            cores_of_node[node] = physical_cores(usable, root)
    if not cores_of_node:  # The system does not report its nodes.
        cores_of_node = {0: physical_cores(allowed, root)}
    return cores_of_node


def _cores_of_one_rank(
    cores_of_node: list[tuple[int, ...]],
    *,
    position: int,
    rank_count: int,
    node: int,
    max_threads: int | None,
) -> Cores:
    """Return the cores of one rank of a NUMA node.

    `cores_of_node` has the logical cores of each physical core of the node. `position` is the rank's number
    among the `rank_count` ranks of the node, from 0. If there are more ranks than physical cores, each rank
    gets all cores and one thread.
    """
    core_count = len(cores_of_node)
    if rank_count <= core_count:
        # Divide the cores evenly, without overlap.
        start = position * core_count // rank_count
        end = (position + 1) * core_count // rank_count
        cores_of_rank = cores_of_node[start:end]
        threads = len(cores_of_rank)
    else:
        # There are too few cores, so the ranks share all of them.
        cores_of_rank = cores_of_node
        threads = 1
    if max_threads is not None:
        threads = min(threads, max_threads)
    logical_cores: list[int] = []
    for hyper_threads in cores_of_rank:
        logical_cores.extend(hyper_threads)
    return Cores(tuple(sorted(logical_cores)), threads, node)


# --- The plan as text ----------------------------------------------------------------------------------


def describe(
    machine: Machine, arguments: argparse.Namespace, plans: Sequence[RankPlan]
) -> str:
    """Return the launch plan as text: a line for the job, a line for its variables, and a line for each rank.

    `plans` contains the plan of each rank on this host.
    """
    name = machine.name
    if machine.origin:
        name = f"{machine.name} ({machine.origin})"
    plural = "" if machine.device_count == 1 else "s"
    devices = f"{machine.device_count} device{plural} here"
    lines = [
        f"{name} over {_communication(machine, arguments)}, {devices}, nodes {arguments.nnodes}",
        f"all ranks: {_format_assignments(common_variables(machine, arguments))}",
    ]
    for rank, plan in enumerate(plans):
        parts = [f"local rank {rank}: {plan.device}"]
        parts.append(f"cores {plan.cores}" if plan.cores else "not bound")
        if plan.environment:
            parts.append(_format_assignments(plan.environment))
        lines.append(", ".join(parts))
    return "\n".join(lines)


def _format_assignments(environment: dict[str, str]) -> str:
    """Return variables as `NAME=value`, separated by spaces."""
    return " ".join(f"{name}={value}" for name, value in environment.items())


def common_variables(machine: Machine, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables that every rank on this host gets."""
    if arguments.no_integrations:
        integrations = startup.NONE
    else:
        integrations = startup.integrations_with_auto(os.environ)
    return {
        **machine.defaults,
        **machine.import_variables,
        DS_ACCELERATOR.name: machine.pin,
        ACCEL_COMMUNICATION_BACKEND.name: _communication(machine, arguments),
        startup.INTEGRATIONS_VARIABLE: integrations,
    }


def _communication(machine: Machine, arguments: argparse.Namespace) -> str:
    """Return the communication backend that the user chose, or otherwise the accelerator's default."""
    return str(arguments.communication_backend or machine.communication)
