"""Plan the ranks on this host: the device, cores and variables of each.

The cores of a rank are near its device, and no two ranks get the same ones.
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


#: More than any host has cores: a slip of the finger must not start as many as memory holds.
_MOST_RANKS = 1 << 12


class Machine(NamedTuple):
    """Facts about the accelerator on this host."""

    #: The backend's name.
    name: str
    #: The value of `DS_ACCELERATOR` that means it: the name, or `name@distribution` if the name is ambiguous.
    pin: str
    #: The distribution that declares it, with its version; empty if none does.
    origin: str
    is_cpu: bool
    devices: int
    communication: str
    #: Each device's name in torch.
    names: list[str]
    #: Each device's PCI address; `None` if it is not known.
    pci: list[str | None]
    #: For each device the variables that make it the only visible one.
    single_device_env: list[dict[str, str]]
    #: Why no variables can make a device the only visible one; empty if they can.
    single_device_error: str
    #: The warning of the choice, if there was one.
    warning: str
    #: Variables that the vendor wants set and that are not set.
    defaults: dict[str, str] = {}  # noqa: RUF012 - never changed
    #: Variables that bring the chosen device into the ranks' torch, and keep broken packages of other vendors
    #: out.
    import_variables: dict[str, str] = {}  # noqa: RUF012
    #: A sentence on these broken packages; empty if there are none.
    isolation_reason: str = ""
    #: What the visible-devices variables hide or misname, and the next step; both empty if nothing.
    visibility_problem: str = ""
    visibility_problem_step: str = ""
    #: That these variables show fewer devices than the host has, and how to see the others.
    visibility_limit: str = ""
    visibility_limit_step: str = ""


class RankPlan(NamedTuple):
    """The plan of one rank on this host."""

    device: str
    #: The rank's cores in the kernel's form (`0-3,8`); empty if the rank is not bound to cores.
    cores: str
    environment: dict[str, str]


def plan_ranks(
    arguments: argparse.Namespace, machine: Machine, root: str = "/"
) -> list[RankPlan]:
    """Return a plan for each rank on this host.

    Raises `LaunchError` for more ranks than devices, and for a device that cannot be the only visible one.
    """
    count = _rank_count(arguments, machine)
    _require_possible_options(arguments, machine)
    cores = _cores_of_ranks(arguments, machine, count, root)
    plans = []
    for rank in range(count):
        environment = {}
        if arguments.one_device_per_rank and not machine.is_cpu:
            environment.update(machine.single_device_env[rank])
        if cores and not os.environ.get("OMP_NUM_THREADS"):
            environment["OMP_NUM_THREADS"] = str(cores[rank].threads)
        device = "cpu" if machine.is_cpu else machine.names[rank]
        core_ranges = format_ranges(cores[rank].ids) if cores else ""
        plans.append(RankPlan(device, core_ranges, environment))
    return plans


def _require_possible_options(arguments: argparse.Namespace, machine: Machine) -> None:
    """Raise `LaunchError` for options of `accel run` that cannot be followed here, or not together."""
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

    Raises `LaunchError` for no rank, for too many, and for more than the accelerator has devices.
    """
    wanted: str = arguments.nproc_per_node
    if wanted == "auto":
        count = machine.devices
        if count == 0:
            raise LaunchError(
                f"{machine.name} has no device on this host, so there is no rank to start. "
                f"See accel why {machine.name}, or choose another with --backend."
            )
    else:
        count = _torch_count(wanted)
    if count < 1:
        raise LaunchError(f"--nproc-per-node {wanted}: expected 1 or more ranks")
    if count > _MOST_RANKS:
        raise LaunchError(
            f"--nproc-per-node {wanted:.20}: expected at most {_MOST_RANKS} ranks on one host"
        )
    if count > machine.devices and not machine.is_cpu:
        cause = machine.visibility_problem or machine.visibility_limit
        because = f": {cause}" if cause else ""
        step = (
            machine.visibility_limit_step or "choose another accelerator with --backend"
        )
        raise LaunchError(
            f"--nproc-per-node {wanted}: {count} ranks but {machine.devices} {machine.name} "
            f"device{'' if machine.devices == 1 else 's'}{because}. Start at most "
            f"{machine.devices}, or {step}."
        )
    return count


def _torch_count(wanted: str) -> int:
    """Return the number of ranks for a value of torchrun's option: a number, `cpu`, `gpu`, a device type.

    Raises `LaunchError` for a value that torchrun rejects.
    """
    from torch.distributed.run import determine_local_world_size

    try:
        return int(determine_local_world_size(wanted))
    except (ValueError, RuntimeError) as error:
        raise LaunchError(
            f"--nproc-per-node {wanted!r} is not valid: {error}. Expected a number, or auto."
        ) from None


def _cores_of_ranks(
    arguments: argparse.Namespace, machine: Machine, count: int, root: str
) -> list[Cores] | None:
    """Return the cores of each rank; `None` if ranks are not bound to cores.

    Ranks are not bound if the user switched it off, if torchrun binds them, or if this host has no way to.
    """
    allowed = hardware.allowed_cores()
    unbound = (
        arguments.no_bind
        or getattr(arguments, "numa_binding", None)
        or bypasses_worker(arguments)
    )
    if unbound or not allowed:
        return None
    addresses = [None] * count if machine.is_cpu else machine.pci[:count]
    near = [numa_node_of(address, root) for address in addresses]
    return assign_cores(near, allowed, root, quota=hardware.cgroup_cpu_quota(root))


def bypasses_worker(arguments: argparse.Namespace) -> bool:
    """Return whether our worker cannot run before the script, or could not know its rank."""
    return bool(arguments.run_path or getattr(arguments, "virtual_local_rank", False))


# --- Sharing the cores ---------------------------------------------------------------------------------


class Cores(NamedTuple):
    """The cores of one rank."""

    #: Logical cores, sorted; shared with other ranks where there are more ranks than cores.
    ids: tuple[int, ...]
    #: Compute threads that these cores are good for: hyper-threads and shares do not count.
    threads: int
    #: The NUMA node.
    node: int


def assign_cores(
    near: Sequence[int | None],
    allowed: Collection[int],
    root: str = "/",
    *,
    quota: float | None = None,
) -> list[Cores]:
    """Return the cores of each rank; `near` holds the NUMA node of each rank's device, or `None`.

    Ranks without a known node are spread evenly over the nodes. Within a node each rank gets an equal run of
    whole cores, so two ranks never share a core through hyper-threading. `allowed`: the cores that may be
    used. `quota`: how many cores the control group lets the whole process use.
    """
    cores_of_node = {}
    for node, ids in numa_nodes(root).items():
        usable = set(ids) & set(allowed)
        if usable:
            cores_of_node[node] = physical_cores(usable, root)
    if not cores_of_node:
        cores_of_node = {0: physical_cores(allowed, root)}
    nodes = sorted(cores_of_node)
    node_of_rank = []
    for rank, near_node in enumerate(near):
        if near_node is not None and near_node in cores_of_node:
            node_of_rank.append(near_node)
        else:
            node_of_rank.append(nodes[rank * len(nodes) // len(near)])
    most_threads = None if quota is None else max(1, int(quota / len(near)))
    return [
        _share_of_node(
            cores_of_node[node],
            position=node_of_rank[:rank].count(node),
            ranks=node_of_rank.count(node),
            node=node,
            most_threads=most_threads,
        )
        for rank, node in enumerate(node_of_rank)
    ]


def _share_of_node(
    physical: list[tuple[int, ...]],
    *,
    position: int,
    ranks: int,
    node: int,
    most_threads: int | None,
) -> Cores:
    """Return the cores of the `position`-th of `ranks` ranks on a node, counted from 0.

    `physical`: the logical cores of each physical core. If there are more ranks than physical cores, each
    rank gets all of them and one thread.
    """
    own: list[tuple[int, ...]] = []
    if ranks <= len(physical):
        start = position * len(physical) // ranks
        end = (position + 1) * len(physical) // ranks
        own = physical[start:end]
    threads = len(own) or 1
    if most_threads is not None:
        threads = min(threads, most_threads)
    logical = [core for siblings in own or physical for core in siblings]
    return Cores(tuple(sorted(logical)), threads, node)


# --- The plan in words ---------------------------------------------------------------------------------


def describe(
    machine: Machine, arguments: argparse.Namespace, plans: Sequence[RankPlan]
) -> str:
    """Return the plan as text for people: a line for the job and one for each rank on this host."""
    name = machine.name
    if machine.origin:
        name = f"{machine.name} ({machine.origin})"
    count = f"{machine.devices} device{'' if machine.devices == 1 else 's'} here"
    lines = [
        f"{name} over {_communication(machine, arguments)}, {count}, nodes {arguments.nnodes}",
        f"all ranks: {_assignments(common_variables(machine, arguments))}",
    ]
    for rank, plan in enumerate(plans):
        bound = f"cores {plan.cores}" if plan.cores else "not bound"
        parts = [
            f"local rank {rank}: {plan.device}",
            bound,
            _assignments(plan.environment),
        ]
        lines.append(", ".join(part for part in parts if part))
    return "\n".join(lines)


def _assignments(environment: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items())


def common_variables(machine: Machine, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the variables that every rank gets from the launcher's environment."""
    communication = _communication(machine, arguments)
    chosen = {
        DS_ACCELERATOR.name: machine.pin,
        ACCEL_COMMUNICATION_BACKEND.name: communication,
    }
    integrations = (
        startup.NONE if arguments.no_integrations else startup.with_auto(os.environ)
    )
    return {
        **machine.defaults,
        **machine.import_variables,
        **chosen,
        startup.VARIABLE: integrations,
    }


def _communication(machine: Machine, arguments: argparse.Namespace) -> str:
    return str(arguments.communication_backend or machine.communication)
