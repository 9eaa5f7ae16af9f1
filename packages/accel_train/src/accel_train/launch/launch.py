"""`accel run`: read the command line, ask the accelerator about this host, and start torchrun's launcher.

The accelerator is asked in a child process. The launcher lives as long as the job, and so it loads no
vendor's package and holds no device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from accel_core import Backend
from accel_core.cli import output as options
from accel_core.errors import AccelError, LaunchError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.hardware import placement, visible_devices
from accel_core.settings import DS_ACCELERATOR, parse_pin
from accel_core.text import one_line
from accel_train.child_accelerator import Chosen, Step, call_on_accelerator
from accel_train.launch.environment import for_ranks, why_kept
from accel_train.launch.plan import Machine, RankPlan, bypasses_worker, common_variables

__all__ = ["ask_machine", "check_script", "launch"]


def check_script(arguments: argparse.Namespace) -> None:
    """Raise `LaunchError` if the script does not exist."""
    if (
        arguments.module
        or arguments.no_python
        or Path(arguments.training_script).exists()
    ):
        return
    raise LaunchError(
        f"{arguments.training_script}: no such script in {Path.cwd()}. For a module use -m, for a "
        "command --no-python."
    )


# --- asking the accelerator ----------------------------------------------------------------------------


def ask_machine(
    backend: str | None,
    communication: str | None = None,
    timeout: float | None = None,
    start: Callable[..., Any] | None = None,
) -> Machine:
    """Return the facts of the accelerator chosen here; `backend` is the pin, if one is given.

    `communication`: torch's communication backend; `None` for the accelerator's own. `start` starts the
    child process. Raises the `AccelError`
    that the choice raises, and `BackendUnavailableError` if the child does not answer. Raises `LaunchError`
    if no child can be started, or if torch does not have the communication backend for the device.
    """
    if backend is not None:
        try:
            os.environ[DS_ACCELERATOR.name] = str(parse_pin(backend))
        except ValueError as error:
            raise LaunchError(
                f"--backend {backend!r} is not valid, expected {error}"
            ) from None
    settings = options.read_settings(timeout)
    given = {"communication": communication, "environ": dict(os.environ)}
    try:
        asked = call_on_accelerator(
            described_in_child,
            given,
            settings,
            timeout=settings.probe_timeout,
            start=start,
        )
    except AccelError as error:
        kind = (
            LaunchError if isinstance(error.__cause__, OSError) else type(error)
        )  # no process can be started
        raise kind(_as_typed(str(error), backend)) from error
    told = "\n".join(message for message, _ in asked.fallback)
    died = "".join(f"{sentence}.\n" for sentence in asked.crashed)
    machine = Machine(**asked.answer)._replace(warning=f"{died}{told}".strip())
    spoiled = autoload_conflicts(asked.backend, settings.probe_timeout)
    kept = for_ranks(asked.backend, spoiled)
    return machine._replace(kept=kept, why_kept=why_kept(spoiled) if spoiled else "")


def _as_typed(message: str, backend: str | None) -> str:
    """The message, which names the variable by which the child heard of `--backend`, as it was typed."""
    pinned = f"{DS_ACCELERATOR.name}={os.environ.get(DS_ACCELERATOR.name, '')!r}"
    if backend is None or not message.startswith(pinned):
        return message
    return f"accel run --backend {backend}{message.removeprefix(pinned)}"


def described_in_child(
    chosen: Chosen, arguments: dict[str, Any], step: Step
) -> dict[str, Any]:
    """In the child: return the facts of the chosen accelerator."""
    from accel_core.interface.devices import missing_defaults
    from accel_train.launch.communication import communication_of
    from accel_train.launch.environment import pin_of

    accelerator, environ = chosen.accelerator, arguments["environ"]
    step("device_count()")
    count = accelerator.device_count()
    is_cpu = accelerator.device_name() == "cpu"
    step("visible devices")
    alone, not_alone = ([], "") if is_cpu else _one_by_one(accelerator, count)
    step("names, places and communication")
    return Machine(
        name=accelerator.name,
        pin=pin_of(accelerator),
        origin=str(accelerator.backend.provenance or ""),
        is_cpu=is_cpu,
        devices=count,
        communication=communication_of(accelerator, arguments["communication"]),
        names=[one_line(accelerator.device_name(index)) for index in range(count)],
        pci=[None if is_cpu else _pci(accelerator, index) for index in range(count)],
        alone=alone,
        not_alone=not_alone,
        warning="",
        defaults=missing_defaults(accelerator.backend, environ),
        **masks_of(accelerator.backend, environ, count),
    )._asdict()


def masks_of(
    backend: Backend, environ: Mapping[str, str], count: int
) -> dict[str, Any]:
    """Return the fields of `Machine` on the visible-devices variables, under which `count` are seen."""
    devices = visible_devices.inventory(backend)
    found = visible_devices.masks(backend, environ, devices)
    used = [effect for effect in found.effects if not effect.overruled_by]
    values = " with ".join(f"{effect.variable}={effect.value!r}" for effect in used)
    masked = "; ".join(map(str, found.faulty))
    more = (
        # Those that another overrules too, or they would count next.
        placement.placement().scheduler_step(backend)
        or f"unset {' '.join(effect.variable for effect in found.effects)}"
    )
    if not masked and len(found.devices or ()) > count:
        masked = (
            f"{values} names {len(found.devices or ())}, but the vendor counts {count}"
        )
    of_how_many = f" of {devices.count}" if devices.count else ""
    limited = bool(used) and (devices.count is None or devices.count > count)
    return {
        "masked": masked,
        "masked_step": found.next_step if found.faulty else more if masked else "",
        "limited": f"{values} shows {count}{of_how_many}" if limited else "",
        "limited_step": more if limited else "",
    }


def _one_by_one(accelerator: Any, count: int) -> tuple[list[dict[str, str]], str]:
    """For each device the variables that hide all others, in the vendor's grammar; or why there are none."""
    if not accelerator.visible_devices_envs():
        return [], f"{accelerator.name} has no visible-devices variable"
    ids = accelerator.visible_device_ids()
    ids = accelerator._every_id() if ids is None else ids
    if ids is None:
        return (
            [],
            f"the ids of its devices in {accelerator.visible_devices_envs()[0]} are not known",
        )
    if len(ids) < count:
        return (
            [],
            f"{len(ids)} ids stand for {count} devices: {accelerator.visible_devices_envs()[0]}={ids}",
        )
    alone: list[dict[str, str]] = []
    for item in ids[:count]:
        alone.append({})
        accelerator.set_visible_devices_envs(alone[-1], [item])
    return alone, ""


def _pci(accelerator: Any, index: int) -> str | None:
    """The device's PCI address, for its NUMA node only: whatever goes wrong, the rank is spread instead."""
    with suppress(Exception):
        address: str | None = accelerator.device_properties(index).pci_address
        return address
    return None


# --- the launch ----------------------------------------------------------------------------------------


def launch(
    arguments: argparse.Namespace,
    machine: Machine,
    plans: Sequence[RankPlan],
    before: str = "",
    started: str = "",
) -> None:
    """Start torchrun's agent, and return when all ranks on this host have succeeded.

    `before`: a module that each rank runs before its script. `started`: a file that is made when a rank
    starts. Raises torch's `ChildFailedError` if ranks failed and no restart is left.
    """
    from torch.distributed.elastic.multiprocessing.errors import record
    from torch.distributed.run import run

    os.environ.update(common_variables(machine, arguments))
    threads = [int(plan.environment.get("OMP_NUM_THREADS", 1)) for plan in plans]
    if any("OMP_NUM_THREADS" in plan.environment for plan in plans):
        os.environ["OMP_NUM_THREADS"] = str(
            min(threads)
        )  # else torchrun sets 1 and warns
    if arguments.max_restarts and arguments.rdzv_backend == "c10d":
        # Else the ranks of every round meet in a store of the first one, which hosts that came later never
        # learn of, and in which they find what the first ones left (pytorch#135712).
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    arguments.nproc_per_node = str(len(plans))
    if not bypasses_worker(arguments):
        _insert_worker(arguments, plans, before, started)
    record(run)(arguments)


def _insert_worker(
    arguments: argparse.Namespace,
    plans: Sequence[RankPlan],
    before: str,
    started: str,
) -> None:
    """Make the command of each rank our worker's, which becomes the script's.

    The worker makes the file `started`, unless that is empty.
    torchrun names a job in its messages by the first argument without a dash, which stays the script.
    """
    if arguments.module and arguments.no_python:
        raise LaunchError("--module and --no-python exclude each other")
    kind = (
        "--module"
        if arguments.module
        else "--command"
        if arguments.no_python
        else "--python"
    )
    # A rank ends with the process that starts it, and that is this one.
    ranks = [plan._asdict() for plan in plans]
    plan = json.dumps(
        {"launcher": os.getpid(), "started": started, "ranks": ranks},
        separators=(",", ":"),
    )
    arguments.training_script_args = [
        "-maccel_train.launch.worker",
        f"--plan={plan}",
        *([f"--before={before}"] if before else []),
        kind,
        arguments.training_script,
        *arguments.training_script_args,
    ]
    arguments.training_script = sys.executable
    arguments.module, arguments.no_python = False, True
