"""Examine the accelerator on this host and start torchrun's launcher, for `accel run`.

The accelerator is examined in a child process. The launcher runs as long as the job, so it must not load a
vendor's package or occupy a device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from accel_core import Backend
from accel_core.cli import output as options
from accel_core.errors import AccelError, LaunchError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.explain.device_access import scheduler_step
from accel_core.hardware import visible_devices
from accel_core.hardware.placement import detect_placement
from accel_core.settings import DS_ACCELERATOR, Pin, parse_pin
from accel_core.text import one_line
from accel_train.child_accelerator import Chosen, Progress, call_on_accelerator
from accel_train.launch.environment import import_variables, isolation_reason
from accel_train.launch.plan import Machine, RankPlan, bypasses_worker, common_variables

__all__ = ["check_script", "examine_machine", "launch"]


def check_script(arguments: argparse.Namespace) -> None:
    """Raise `LaunchError` if the script to launch does not exist."""
    is_path = not (arguments.module or arguments.no_python)
    if is_path and not Path(arguments.training_script).exists():
        raise LaunchError(
            f"{arguments.training_script}: no such script in {Path.cwd()}. To run a module, use -m. To run a "
            "command, use --no-python."
        )


# --- examining the accelerator -------------------------------------------------------------------------


def examine_machine(
    backend: str | None,
    communication: str | None = None,
    timeout: float | None = None,
    start: Callable[..., Any] | None = None,
) -> Machine:
    """Choose the accelerator in a child process, and return a description of the accelerator on this host.

    `backend` is the value of `--backend`, which takes the place of `DS_ACCELERATOR`. `communication` is the
    torch.distributed communication backend; `None` means the accelerator's default. `timeout` is the time
    limit for each probe in seconds; `None` means the value of the setting. `start` is called with the
    arguments of `subprocess.Popen`, its default, to start the child process.

    Raises the same `AccelError` as the choice. Raises `BackendUnavailableError` if the child process does not
    respond. Raises `LaunchError` if no child process can be started, or if torch does not have the
    communication backend for the device.
    """
    pin = None
    if backend is not None:
        pin = _pin_backend_in_environment(backend)
    settings = options.read_settings(timeout)
    if pin is not None:
        request = f"accel run --backend {backend}"
        settings = replace(settings, request=request, is_pinned_by_variable=False)
    child_arguments = {"communication": communication, "environ": dict(os.environ)}
    try:
        result = call_on_accelerator(
            describe_machine_in_child,
            child_arguments,
            settings,
            timeout=settings.probe_timeout,
            pin=pin,
            start=start,
        )
    except AccelError as error:
        error_class = type(error)
        if isinstance(error.__cause__, OSError):  # The child process cannot be started.
            error_class = LaunchError
        raise error_class(str(error)) from error
    warnings = [f"{sentence}." for sentence in result.crashes]
    for message, _is_mere_absence in result.fallback_warnings:
        warnings.append(message)
    conflicts = autoload_conflicts(result.backend, settings.probe_timeout)
    machine = Machine(**result.value)._replace(
        warning="\n".join(warnings).strip(),
        import_variables=import_variables(result.backend, conflicts),
    )
    if conflicts:
        machine = machine._replace(isolation_reason=isolation_reason(conflicts))
    return machine


def _pin_backend_in_environment(backend: str) -> Pin:
    """Set `DS_ACCELERATOR` to `backend`, the value of `--backend`, and return the pin.

    The variable is set for this process and its child processes. Raises `LaunchError` if the value is not
    valid.
    """
    try:
        pin = parse_pin(backend)
    except ValueError as error:
        raise LaunchError(
            f"--backend {backend!r} is not valid, expected {error}"
        ) from None
    os.environ[DS_ACCELERATOR.name] = str(pin)
    return pin


def describe_machine_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_progress: Progress
) -> dict[str, Any]:
    """Return the fields of `Machine` for the chosen accelerator. This function runs in the child process.

    `report_progress` is called with the name of each step, for the error message if the child process does
    not respond.
    """
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
            single_device_env = _environments_with_one_device(accelerator, ids[:count])
    report_progress("device names, PCI addresses and communication backend")
    device_names = [one_line(accelerator.device_name(index)) for index in range(count)]
    pci_addresses: list[str | None] = [None] * count
    if not is_cpu:
        pci_addresses = [_pci_address(accelerator, index) for index in range(count)]
    return Machine(
        name=accelerator.name,
        pin=pin_of(accelerator),
        origin=str(accelerator.backend.provenance or ""),
        is_cpu=is_cpu,
        device_count=count,
        communication=communication_of(accelerator, arguments["communication"]),
        device_names=device_names,
        pci_addresses=pci_addresses,
        single_device_env=single_device_env,
        single_device_error=single_device_error,
        warning="",
        defaults=missing_defaults(accelerator.backend, environ),
        **visibility_report(accelerator.backend, environ, count),
    )._asdict()


def visibility_report(
    backend: Backend, environ: Mapping[str, str], count: int
) -> dict[str, Any]:
    """Return the four `visibility_*` fields of `Machine`, about this host's visible-devices variables.

    `count` is the number of devices that the accelerator reports while the variables in `environ` are set.
    """
    inventory = visible_devices.inventory(backend)
    visible = visible_devices.read_visible_devices(backend, environ, inventory)
    assignments_in_effect = []
    for effect in visible.effects:
        if not effect.overruled_by:
            assignments_in_effect.append(f"{effect.variable}={effect.value!r}")
    assignments = " with ".join(assignments_in_effect)
    # In a job, the scheduler sets the variables, so the user must request more devices from it.
    step = scheduler_step(detect_placement(), backend)
    if not step:
        # Unset overruled variables too: they would take effect next.
        variables = " ".join(effect.variable for effect in visible.effects)
        step = f"unset {variables}"
    problem, problem_step = "", ""
    listed_count = len(visible.devices or ())
    if visible.faulty:
        problem = "; ".join(str(fault) for fault in visible.faulty)
        problem_step = visible.next_step
    elif listed_count > count:
        problem = (
            f"{assignments} names {listed_count} devices, but the vendor's runtime reports "
            f"{count}"
        )
        problem_step = step
    limit = _visibility_limit(assignments, count, inventory.count)
    return {
        "visibility_problem": problem,
        "visibility_problem_step": problem_step,
        "visibility_limit": limit,
        "visibility_limit_step": step if limit else "",
    }


def _visibility_limit(assignments: str, count: int, total: int | None) -> str:
    """Return a clause about hidden devices, such as `"CUDA_VISIBLE_DEVICES='0' shows 1 of 8 devices"`.

    Returns an empty string if `assignments` is empty, or if `total` is known and no device is hidden.
    `assignments` is the text of the variables with their values. `count` is the number of visible devices.
    `total` is the number of devices on this host, or `None` if it is unknown.
    """
    if not assignments:  # No variable is set.
        return ""
    if total is None:
        return f"{assignments} shows {count} of this host's devices"
    if total > count:
        return f"{assignments} shows {count} of {total} devices"
    return ""


def _device_ids(accelerator: Any) -> Any:
    """Return the ids of the devices that the visible-devices variable makes visible.

    If the variable is not set, the ids of all devices are returned. Returns `None` if the ids are unknown, or
    if the vendor has no such variable.
    """
    if not accelerator.visible_devices_envs():
        return None
    visible_ids = accelerator.visible_device_ids()
    if visible_ids is None:  # No variable is set.
        return accelerator._all_device_ids()
    return visible_ids


def _single_device_error(accelerator: Any, ids: Any, count: int) -> str:
    """Return the reason why a rank cannot be limited to one of the `count` devices.

    Returns an empty string if it can be. `ids` is the result of `_device_ids`.
    """
    variables = accelerator.visible_devices_envs()
    if not variables:
        return f"{accelerator.name} has no environment variable that selects the visible devices"
    first_variable, *_ = variables
    if ids is None:
        return f"the device ids cannot be determined from {first_variable}"
    if len(ids) < count:
        return f"{first_variable} contains only these device ids for {count} devices: {ids}"
    return ""


def _environments_with_one_device(
    accelerator: Any, ids: Sequence[Any]
) -> list[dict[str, str]]:
    """Return, for each device id, the variables that hide all other devices."""
    environments: list[dict[str, str]] = []
    for device_id in ids:
        environment: dict[str, str] = {}
        accelerator.set_visible_devices_envs(environment, [device_id])
        environments.append(environment)
    return environments


def _pci_address(accelerator: Any, index: int) -> str | None:
    """Return the PCI address of the device with the index `index`, or `None` if it cannot be read.

    Ranks of devices without a known address are spread over all NUMA nodes.
    """
    # The address is only needed to find the device's NUMA node, so any error is ignored.
    with suppress(Exception):
        address: str | None = accelerator.device_properties(index).pci_address
        return address
    return None


# --- the launch ----------------------------------------------------------------------------------------


def launch(
    arguments: argparse.Namespace,
    machine: Machine,
    plans: Sequence[RankPlan],
    module_before: str = "",
    started_file: str = "",
) -> None:
    """Start torchrun's agent, and return when all ranks on this host have succeeded.

    `module_before` is the name of a module that each rank runs before its script. `started_file` is the path
    of a file that each rank creates when it starts. Either may be empty. Raises torch's `ChildFailedError` if
    ranks failed and no restarts are left.
    """
    from torch.distributed.elastic.multiprocessing.errors import record
    from torch.distributed.run import run

    os.environ.update(common_variables(machine, arguments))
    has_thread_counts = any("OMP_NUM_THREADS" in plan.environment for plan in plans)
    if has_thread_counts:
        # If the variable is not set here, torchrun sets it to 1 and warns. Each rank's plan replaces it.
        threads = [int(plan.environment.get("OMP_NUM_THREADS", 1)) for plan in plans]
        os.environ["OMP_NUM_THREADS"] = str(min(threads))
    if arguments.max_restarts and arguments.rdzv_backend == "c10d":
        # Without this variable, restarted ranks use the store of the first start. It has stale keys, and
        # hosts that joined later do not have its address (pytorch#135712).
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    arguments.nproc_per_node = str(len(plans))
    if not bypasses_worker(arguments):
        _make_ranks_start_with_worker(arguments, plans, module_before, started_file)
    # If the job fails, `record` writes the error to the file that TORCHELASTIC_ERROR_FILE names.
    run_and_record_error = record(run)
    run_and_record_error(arguments)


def _make_ranks_start_with_worker(
    arguments: argparse.Namespace,
    plans: Sequence[RankPlan],
    module_before: str,
    started_file: str,
) -> None:
    """Change torchrun's arguments so that each rank starts `accel_train.launch.worker`.

    The worker then replaces itself with the script. `module_before` and `started_file` are parameters of
    `launch`. torchrun's messages call a job by its first argument without a dash, which is still the script.
    Raises `LaunchError` if both `--module` and `--no-python` are given.
    """
    if arguments.module and arguments.no_python:
        raise LaunchError("--module and --no-python cannot be used together")
    script_option = "--python"
    if arguments.module:
        script_option = "--module"
    elif arguments.no_python:
        script_option = "--command"
    job = {
        "launcher": os.getpid(),  # The worker makes its rank end when this process ends.
        "started": started_file,
        "ranks": [plan._asdict() for plan in plans],
    }
    worker_arguments = [
        "-maccel_train.launch.worker",
        f"--plan={json.dumps(job, separators=(',', ':'))}",
    ]
    if module_before:
        worker_arguments.append(f"--before={module_before}")
    worker_arguments += [script_option, arguments.training_script]
    arguments.training_script_args = [
        *worker_arguments,
        *arguments.training_script_args,
    ]
    # With --no-python, torchrun starts this command unchanged.
    arguments.training_script = sys.executable
    arguments.module, arguments.no_python = False, True
