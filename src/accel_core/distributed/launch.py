"""`accel run`: torchrun's own launcher, told what the chosen accelerator needs.

The accelerator is asked in a child process, so that the launcher, which lives as long as the job, holds
neither a vendor's package nor a device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accel_core import errors
from accel_core._support import child as isolation
from accel_core._support.torch_import import import_torch
from accel_core.distributed import cores
from accel_core.errors import AccelError, BackendUnavailableError, LaunchError
from accel_core.settings import ACCEL_COMMUNICATION_BACKEND, DS_ACCELERATOR, parse_pin

__all__ = ["Machine", "RankPlan", "ask_machine", "check_script", "describe", "launch", "parse", "plan_ranks"]

#: Seconds for the child that asks the accelerator; torch alone may take half of this from a network disk.
_PATIENCE = 120.0
_USAGE = "accel run [options of accel or torchrun] SCRIPT [arguments of the script]"
_ABOUT = """Start the ranks of a distributed job on this host: torchrun, for whatever accelerator is chosen.

Without --nproc-per-node, one rank for each device (on the CPU: for each NUMA node). Each rank is bound to
cores near its device. DS_ACCELERATOR is set to what was chosen here, so that all ranks choose the same."""


class Machine(NamedTuple):
    """What the accelerator says of this host."""

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


class RankPlan(NamedTuple):
    """What one rank on this host gets."""

    device: str
    #: As the kernel writes a list of cores; empty: not bound.
    cores: str
    environment: dict[str, str]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What the command line says, torchrun's options and ours in any order; exits for `--help`, bad usage.

    Raises `BackendUnavailableError` where there is no torch, and so no parser of torchrun.
    """
    try:
        import_torch()
        from torch.distributed.run import get_args_parser
    except (BackendUnavailableError, ImportError) as error:
        without = argparse.ArgumentParser(epilog=f"torchrun's own options are not shown: {error}")
        _with_ours(without).parse_known_args(arguments)
        if isinstance(error, BackendUnavailableError):
            raise
        raise LaunchError(f"this torch has no torch.distributed.run: {error}") from error
    parser = _with_ours(get_args_parser())
    if "PET_NPROC_PER_NODE" not in os.environ:  # how torchrun takes options from the environment
        parser.set_defaults(nproc_per_node="auto")
    return parser.parse_args(arguments)


def _with_ours(found: argparse.ArgumentParser) -> argparse.ArgumentParser:
    found.prog, found.usage, found.description = "accel run", _USAGE, _ABOUT
    found.formatter_class = argparse.RawDescriptionHelpFormatter
    ours = found.add_argument_group("options of accel")
    ours.add_argument("--backend", metavar="NAME", help="accelerator to use, as DS_ACCELERATOR names one")
    ours.add_argument(
        "--communication-backend", metavar="NAME", help="torch.distributed's backend [the accelerator's own]"
    )
    ours.add_argument(
        "--one-device-per-rank", action="store_true",
        help="show each rank its own device only, as device 0; default: all, and the rank takes LOCAL_RANK's",
    )  # fmt: skip
    ours.add_argument("--no-bind", action="store_true", help="do not bind ranks to cores")
    ours.add_argument("--dry-run", action="store_true", help="print what each rank would get, start nothing")
    return found


# --- asking the accelerator ----------------------------------------------------------------------------


def ask_machine(backend: str | None) -> Machine:
    """What the accelerator chosen here says, with `backend` as the pin if one is given.

    Raises the `AccelError` that the choice raises, and `LaunchError` when the child does not answer.
    """
    if backend is not None:
        try:
            os.environ[DS_ACCELERATOR.name] = str(parse_pin(backend))
        except ValueError as error:
            raise LaunchError(f"--backend {backend!r} is not valid, expected {error}") from None
    try:
        report = isolation.run(_answer, {}, _PATIENCE)
    except OSError as error:
        raise LaunchError(f"no child process can be started to ask the accelerator: {error}") from None
    answer: Any = report.answer
    if answer is None:
        raise LaunchError(
            f"the process that asks the accelerator {report.ending}"
            + (f" within {_PATIENCE:g} s" if report.timed_out else "")
            + f". Try accel info. It printed: {report.stderr or 'nothing'}"
        )
    if "error" in answer:
        raise getattr(errors, answer["error"], LaunchError)(answer["message"])
    return Machine(**answer)


def _answer(_arguments: dict[str, object], _say: Callable[[str], None]) -> dict[str, Any]:
    """In the child: choose, and tell."""
    import warnings

    from accel_core import current
    from accel_core.distributed.environment import pin_of

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", errors.AcceleratorFallbackWarning)
            accelerator = current.get_accelerator()
        count = accelerator.device_count()
        is_cpu = accelerator.device_name() == "cpu"
        alone, not_alone = ([], "") if is_cpu else _one_by_one(accelerator, count)
        mine = [str(w.message) for w in caught if issubclass(w.category, errors.AcceleratorFallbackWarning)]
        return Machine(
            name=accelerator.name,
            pin=pin_of(accelerator),
            origin=str(accelerator.backend.provenance or ""),
            is_cpu=is_cpu,
            devices=count,
            communication=accelerator.communication_backend_name(),
            names=[accelerator.device_name(index) for index in range(count)],
            pci=[None if is_cpu else _pci(accelerator, index) for index in range(count)],
            alone=alone,
            not_alone=not_alone,
            warning="\n".join(mine),
        )._asdict()
    except AccelError as error:
        return {"error": type(error).__name__, "message": str(error)}


def _one_by_one(accelerator: Any, count: int) -> tuple[list[dict[str, str]], str]:
    """For each device the variables that hide all others, in the vendor's grammar; or why there are none."""
    if not accelerator.visible_devices_envs():
        return [], f"{accelerator.name} has no variable for visible devices"
    ids = accelerator.visible_device_ids()
    ids = tuple(range(count)) if ids is None else ids
    if len(ids) < count:
        return [], f"{len(ids)} ids stand for {count} devices: {accelerator.visible_devices_envs()[0]}={ids}"
    found: list[dict[str, str]] = []
    for item in ids[:count]:
        found.append({})
        accelerator.set_visible_devices_envs(found[-1], [item])
    return found, ""


def _pci(accelerator: Any, index: int) -> str | None:
    """The device's PCI address, for its NUMA node only: whatever goes wrong, the rank is spread instead."""
    try:
        address: str | None = accelerator.device_properties(index).pci_address
    except Exception:
        return None
    return address


# --- the plan ------------------------------------------------------------------------------------------


def plan_ranks(arguments: argparse.Namespace, machine: Machine, root: str = "/") -> list[RankPlan]:
    """What each rank on this host gets.

    Raises `LaunchError` for more ranks than devices, and for a device that cannot be shown alone.
    """
    count = _count(arguments, machine)
    if arguments.one_device_per_rank and machine.not_alone:
        raise LaunchError(f"--one-device-per-rank cannot be had: {machine.not_alone}")
    if arguments.one_device_per_rank and _hands_off(arguments):
        raise LaunchError("--one-device-per-rank goes neither with --run-path nor with --virtual-local-rank")
    shares = _shares(arguments, machine, count, root)
    plans = []
    for rank in range(count):
        environment = {}
        if arguments.one_device_per_rank and not machine.is_cpu:
            environment.update(machine.alone[rank])
        if shares and not os.environ.get("OMP_NUM_THREADS"):
            environment["OMP_NUM_THREADS"] = str(shares[rank].threads)
        device = "cpu" if machine.is_cpu else machine.names[rank]
        plans.append(RankPlan(device, cores.as_ranges(shares[rank].ids) if shares else "", environment))
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
    if count > machine.devices and not machine.is_cpu:
        raise LaunchError(
            f"--nproc-per-node {wanted}: {count} ranks and {machine.devices} {machine.name} "
            f"device{'' if machine.devices == 1 else 's'}. Start at most {machine.devices}, or choose "
            "another accelerator with --backend."
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


def check_script(arguments: argparse.Namespace) -> None:
    """Raise `LaunchError` for a script that is not there."""
    if arguments.module or arguments.no_python or Path(arguments.training_script).exists():
        return
    raise LaunchError(
        f"{arguments.training_script}: there is no such script in {Path.cwd()}. For a module use -m, for a "
        "command --no-python."
    )


def _shares(
    arguments: argparse.Namespace, machine: Machine, count: int, root: str
) -> list[cores.Cores] | None:
    """The cores of each rank; `None` where ranks are not bound: switched off, torchrun does it, or no way."""
    allowed = cores.allowed_cores()
    unbound = arguments.no_bind or getattr(arguments, "numa_binding", None) or _hands_off(arguments)
    if unbound or not allowed:
        return None
    near = [None if machine.is_cpu else cores.device_node(machine.pci[rank], root) for rank in range(count)]
    return cores.share_out(near, allowed, root, quota=cores.cpu_quota(root))


def _hands_off(arguments: argparse.Namespace) -> bool:
    """Whether our worker cannot stand before the script: it would not run, or not know which rank it is."""
    return bool(arguments.run_path or getattr(arguments, "virtual_local_rank", False))


def describe(machine: Machine, arguments: argparse.Namespace, plans: Sequence[RankPlan]) -> str:
    """The plan for people: a line for the job and one for each rank on this host."""
    name = f"{machine.name} ({machine.origin})" if machine.origin else machine.name
    devices = f"{machine.devices} device{'' if machine.devices == 1 else 's'} here"
    lines = [
        f"{name} over {_communication(machine, arguments)}, {devices}, nodes {arguments.nnodes}",
        f"all ranks: {_assignments(_common(machine, arguments))}",
    ]
    for rank, plan in enumerate(plans):
        bound = f"cores {plan.cores}" if plan.cores else "not bound"
        said = [f"local rank {rank}: {plan.device}", bound, _assignments(plan.environment)]
        lines.append(", ".join(part for part in said if part))
    return "\n".join(lines)


def _assignments(environment: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items())


def _common(machine: Machine, arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that every rank gets from the launcher's environment."""
    communication = _communication(machine, arguments)
    return {DS_ACCELERATOR.name: machine.pin, ACCEL_COMMUNICATION_BACKEND.name: communication}


def _communication(machine: Machine, arguments: argparse.Namespace) -> str:
    return str(arguments.communication_backend or machine.communication)


# --- the launch ----------------------------------------------------------------------------------------


def launch(arguments: argparse.Namespace, machine: Machine, plans: Sequence[RankPlan]) -> None:
    """Hand over to torchrun's agent; returns when all ranks on this host have succeeded.

    Raises torch's `ChildFailedError` when ranks failed and no restart is left.
    """
    from torch.distributed.elastic.multiprocessing.errors import record
    from torch.distributed.run import run

    os.environ.update(_common(machine, arguments))
    threads = [int(plan.environment.get("OMP_NUM_THREADS", 1)) for plan in plans]
    if any("OMP_NUM_THREADS" in plan.environment for plan in plans):
        os.environ["OMP_NUM_THREADS"] = str(min(threads))  # else torchrun sets 1 and warns
    if arguments.max_restarts and arguments.rdzv_backend == "c10d":
        # Else the ranks of every round meet in a store of the first one, which hosts that came later never
        # learn of, and in which they find what the first ones left (pytorch#135712).
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    arguments.nproc_per_node = str(len(plans))
    if not _hands_off(arguments):
        _insert_worker(arguments, plans)
    record(run)(arguments)


def _insert_worker(arguments: argparse.Namespace, plans: Sequence[RankPlan]) -> None:
    """Make the command of each rank our worker's, which becomes the script's.

    torchrun names a job in its messages by the first argument without a dash, which stays the script.
    """
    if arguments.module and arguments.no_python:
        raise LaunchError("--module and --no-python do not go together")
    kind = "--module" if arguments.module else "--command" if arguments.no_python else "--python"
    plan = json.dumps([p._asdict() for p in plans], separators=(",", ":"))
    arguments.training_script_args = [
        "-maccel_core.distributed.worker",
        f"--plan={plan}",
        kind,
        arguments.training_script,
        *arguments.training_script_args,
    ]
    arguments.training_script = sys.executable
    arguments.module, arguments.no_python = False, True
