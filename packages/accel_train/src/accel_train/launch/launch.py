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
from accel_train.child_accelerator import Chosen, Progress, call_on_accelerator
from accel_train.launch.environment import for_ranks, isolation_reason
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
    child_arguments = {"communication": communication, "environ": dict(os.environ)}
    try:
        result = call_on_accelerator(
            describe_machine_in_child,
            child_arguments,
            settings,
            timeout=settings.probe_timeout,
            start=start,
        )
    except AccelError as error:
        error_class = type(error)
        if isinstance(error.__cause__, OSError):  # no process can be started
            error_class = LaunchError
        raise error_class(_with_typed_option(str(error), backend)) from error
    crashes = "".join(f"{sentence}.\n" for sentence in result.crashes)
    fallbacks = "\n".join(message for message, _ in result.fallback_warnings)
    machine = Machine(**result.value)
    import_breakers = autoload_conflicts(result.backend, settings.probe_timeout)
    return machine._replace(
        warning=f"{crashes}{fallbacks}".strip(),
        import_variables=for_ranks(result.backend, import_breakers),
        isolation_reason=isolation_reason(import_breakers) if import_breakers else "",
    )


def _with_typed_option(message: str, backend: str | None) -> str:
    """Return the message with `--backend`, as the user typed it, instead of the variable."""
    variable = f"{DS_ACCELERATOR.name}={os.environ.get(DS_ACCELERATOR.name, '')!r}"
    if backend is None or not message.startswith(variable):
        return message
    return f"accel run --backend {backend}{message.removeprefix(variable)}"


def describe_machine_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_progress: Progress
) -> dict[str, Any]:
    """In the child process: return the fields of `Machine` for the chosen accelerator."""
    from accel_core.interface.devices import missing_defaults
    from accel_train.launch.communication import communication_of
    from accel_train.launch.environment import pin_of

    accelerator, environ = chosen.accelerator, arguments["environ"]
    report_progress("device_count()")
    count = accelerator.device_count()
    is_cpu = accelerator.device_name() == "cpu"
    report_progress("visible devices")
    single_device_env: list[dict[str, str]] = []
    single_device_error = ""
    if not is_cpu:
        ids = _device_ids(accelerator)
        single_device_error = _single_device_error(accelerator, ids, count)
        if not single_device_error:
            single_device_env = _single_device_env(accelerator, ids[:count])
    report_progress("names, places and communication")
    return Machine(
        name=accelerator.name,
        pin=pin_of(accelerator),
        origin=str(accelerator.backend.provenance or ""),
        is_cpu=is_cpu,
        devices=count,
        communication=communication_of(accelerator, arguments["communication"]),
        names=[one_line(accelerator.device_name(index)) for index in range(count)],
        pci=[
            None if is_cpu else _pci_address(accelerator, index)
            for index in range(count)
        ],
        single_device_env=single_device_env,
        single_device_error=single_device_error,
        warning="",
        defaults=missing_defaults(accelerator.backend, environ),
        **visibility_report(accelerator.backend, environ, count),
    )._asdict()


def visibility_report(
    backend: Backend, environ: Mapping[str, str], count: int
) -> dict[str, Any]:
    """Return the fields of `Machine` about the visible-devices variables, under which `count` are visible."""
    inventory = visible_devices.inventory(backend)
    masks = visible_devices.masks(backend, environ, inventory)
    effective = [effect for effect in masks.effects if not effect.overruled_by]
    values = " with ".join(
        f"{effect.variable}={effect.value!r}" for effect in effective
    )
    # Unset overruled variables too: they would take effect next.
    variables = " ".join(effect.variable for effect in masks.effects)
    step = placement.placement().scheduler_step(backend) or f"unset {variables}"
    report = {
        "visibility_problem": "",
        "visibility_problem_step": "",
        "visibility_limit": "",
        "visibility_limit_step": "",
    }
    named_devices = len(masks.devices or ())
    if masks.faulty:
        report["visibility_problem"] = "; ".join(map(str, masks.faulty))
        report["visibility_problem_step"] = masks.next_step
    elif named_devices > count:
        report["visibility_problem"] = (
            f"{values} names {named_devices}, but the vendor counts {count}"
        )
        report["visibility_problem_step"] = step
    if effective and (inventory.count is None or inventory.count > count):
        total = f" of {inventory.count}" if inventory.count else ""
        report["visibility_limit"] = f"{values} shows {count}{total}"
        report["visibility_limit_step"] = step
    return report


def _device_ids(accelerator: Any) -> Any:
    """Return the ids that the vendor's variable shows, else the ids of all devices.

    `None` if they are not known, or the vendor has no such variable.
    """
    if not accelerator.visible_devices_envs():
        return None
    visible_ids = accelerator.visible_device_ids()
    return accelerator._every_id() if visible_ids is None else visible_ids


def _single_device_error(accelerator: Any, ids: Any, count: int) -> str:
    """Return why no variable can make each of `count` devices the only visible one; empty if one can.

    `ids`: of `_device_ids`.
    """
    variables = accelerator.visible_devices_envs()
    if not variables:
        return f"{accelerator.name} has no visible-devices variable"
    if ids is None:
        return f"the ids of its devices in {variables[0]} are not known"
    if len(ids) < count:
        return f"{len(ids)} ids stand for {count} devices: {variables[0]}={ids}"
    return ""


def _single_device_env(accelerator: Any, ids: Sequence[Any]) -> list[dict[str, str]]:
    """Return for each device id the variables that hide all other devices."""
    environments: list[dict[str, str]] = []
    for device_id in ids:
        environment: dict[str, str] = {}
        accelerator.set_visible_devices_envs(environment, [device_id])
        environments.append(environment)
    return environments


def _pci_address(accelerator: Any, index: int) -> str | None:
    """Return the device's PCI address; `None` if it cannot be read.

    It only serves to find the NUMA node: without it the ranks are spread over the nodes.
    """
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
        # If the variable is not set, torchrun sets it to 1 and warns.
        os.environ["OMP_NUM_THREADS"] = str(min(threads))
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
    """Change torchrun's arguments so that each rank starts our worker, which then becomes the script.

    The worker runs the module `before` first, and makes the file `started`, unless these are empty. torchrun
    names a job in its messages by the first argument without a dash, which stays the script.
    """
    if arguments.module and arguments.no_python:
        raise LaunchError("--module and --no-python exclude each other")
    script_option = "--python"
    if arguments.module:
        script_option = "--module"
    elif arguments.no_python:
        script_option = "--command"
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
        script_option,
        arguments.training_script,
        *arguments.training_script_args,
    ]
    arguments.training_script = sys.executable
    arguments.module, arguments.no_python = False, True
