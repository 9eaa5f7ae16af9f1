"""Plan for the ranks on this host: device, cores and variables of each.

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
    "bypasses_worker",
    "common_variables",
    "describe",
    "plan_ranks",
    "share_out",
]


#: More than any host has cores: a slip of the finger must not start as many as memory holds.
_MOST_RANKS = 1 << 12


class Machine(NamedTuple):
    """Facts about the accelerator on this host."""

    #: Name, and `name@distribution` where only that says which is meant.
    name: str
    pin: str
    origin: str
    is_cpu: bool
    devices: int
    communication: str
    #: Of each device: its name in torch, its PCI address, the variables that make only it visible.
    names: list[str]
    pci: list[str | None]
    alone: list[dict[str, str]]
    #: Why devices cannot be shown one by one; empty where they can.
    not_alone: str
    #: The warning of the choice, if there was one.
    warning: str
    #: Variables that the vendor wants set and that are not; none where they are not wanted.
    defaults: dict[str, str] = {}  # noqa: RUF012 - never changed
    #: Variables that bring the chosen device into the ranks' torch and keep broken packages of other vendors
    #: out, and a sentence on these packages.
    kept: dict[str, str] = {}  # noqa: RUF012
    why_kept: str = ""
    #: What the visible-devices variables hide or misname, and the value that works here.
    masked: str = ""
    masked_step: str = ""
    #: That they show fewer devices than there are, and how to see the others.
    limited: str = ""
    limited_step: str = ""


class RankPlan(NamedTuple):
    """The plan of one rank on this host."""

    device: str
    #: As the kernel writes a list of cores; empty: not bound.
    cores: str
    environment: dict[str, str]


def plan_ranks(
    arguments: argparse.Namespace, machine: Machine, root: str = "/"
) -> list[RankPlan]:
    """Return a plan for each rank on this host.

    Raises `LaunchError` for more ranks than devices, and for a device that cannot be the only visible one.
    """
    count = _count(arguments, machine)
    if arguments.one_device_per_rank and machine.not_alone:
        raise LaunchError(f"--one-device-per-rank is not possible: {machine.not_alone}")
    if arguments.one_device_per_rank and bypasses_worker(arguments):
        raise LaunchError(
            "--one-device-per-rank cannot be used with --run-path or --virtual-local-rank"
        )
    if arguments.doctor and bypasses_worker(arguments):
        raise LaunchError(
            "--doctor cannot be used with --run-path or --virtual-local-rank"
        )
    shares = _shares(arguments, machine, count, root)
    plans = []
    for rank in range(count):
        environment = {}
        if arguments.one_device_per_rank and not machine.is_cpu:
            environment.update(machine.alone[rank])
        if shares and not os.environ.get("OMP_NUM_THREADS"):
            environment["OMP_NUM_THREADS"] = str(shares[rank].threads)
        device = "cpu" if machine.is_cpu else machine.names[rank]
        plans.append(
            RankPlan(
                device, format_ranges(shares[rank].ids) if shares else "", environment
            )
        )
    return plans


def _count(arguments: argparse.Namespace, machine: Machine) -> int:
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
        few = machine.masked or machine.limited
        more = machine.limited_step or "choose another accelerator with --backend"
        raise LaunchError(
            f"--nproc-per-node {wanted}: {count} ranks but {machine.devices} {machine.name} "
            f"device{'' if machine.devices == 1 else 's'}{few and f': {few}'}. Start at most "
            f"{machine.devices}, or {more}."
        )
    return count


def _torch_count(wanted: str) -> int:
    """A number, or torchrun's own words: cpu, gpu, xpu, a device type."""
    from torch.distributed.run import determine_local_world_size

    try:
        return int(determine_local_world_size(wanted))
    except (ValueError, RuntimeError) as error:
        raise LaunchError(
            f"--nproc-per-node {wanted!r} is not valid: {error}. Expected a number, or auto."
        ) from None


def _shares(
    arguments: argparse.Namespace, machine: Machine, count: int, root: str
) -> list[Cores] | None:
    """The cores of each rank; `None` where ranks are not bound: switched off, torchrun does it, or no way."""
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
    return share_out(near, allowed, root, quota=hardware.cgroup_cpu_quota(root))


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


def share_out(
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
    nodes = {
        node: physical_cores(usable, root)
        for node, ids in numa_nodes(root).items()
        if (usable := set(ids) & set(allowed))
    }
    nodes = nodes or {0: physical_cores(allowed, root)}
    order = sorted(nodes)
    homes = [
        node if node in nodes else order[rank * len(order) // len(near)]
        for rank, node in enumerate(near)
    ]
    most = None if quota is None else max(1, int(quota / len(near)))
    return [
        _part(nodes[home], homes[:rank].count(home), homes.count(home), home, most)
        for rank, home in enumerate(homes)
    ]


def _part(
    cores: list[tuple[int, ...]], place: int, ranks: int, node: int, most: int | None
) -> Cores:
    """The share of the `place`-th of `ranks` ranks on a node."""
    mine = (
        cores[place * len(cores) // ranks : (place + 1) * len(cores) // ranks]
        if ranks <= len(cores)
        else []
    )
    threads = len(mine) or 1
    ids = tuple(sorted(core for siblings in mine or cores for core in siblings))
    return Cores(ids, min(threads, most or threads), node)


# --- The plan in words ---------------------------------------------------------------------------------


def describe(
    machine: Machine, arguments: argparse.Namespace, plans: Sequence[RankPlan]
) -> str:
    """Return the plan as text for people: a line for the job and one for each rank on this host."""
    name = f"{machine.name} ({machine.origin})" if machine.origin else machine.name
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
        **machine.kept,
        **chosen,
        startup.VARIABLE: integrations,
    }


def _communication(machine: Machine, arguments: argparse.Namespace) -> str:
    return str(arguments.communication_backend or machine.communication)
