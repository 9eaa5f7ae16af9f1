"""Import vendor packages and prepare integrations at every `import torch`, as environment variables request.

torch calls `autoload` by an entry point of torch's group `torch.backends`. The function imports the packages
that `ACCEL_IMPORT` names. In a rank of `accel run`, the variable names the chosen vendor's package, so that
torch has the device in an unchanged program and in the program's child processes.

An activation (`accel_train.deepspeed.activate()`) must also hold in child processes. Spawned workers and
launched ranks are new interpreters, which inherit only environment variables. This module applies the
activation there, if the variable `ACCEL_INTEGRATIONS` is set. The module never raises an error, because torch
cannot be imported if an entry point of this group fails.

This package is separate from accel_train, because `import torch` must not import accel_train, and must not
fail if accel_train fails. An entry point of the group `accel.integrations` names the function that prepares
an integration.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import warnings
from typing import Any

__all__ = [
    "AT_EXIT_GROUP",
    "AUTO",
    "IMPORT_VARIABLE",
    "INTEGRATIONS_GROUP",
    "INTEGRATIONS_VARIABLE",
    "NONE",
    "STARTUP_FOLDER",
    "autoload",
    "integrations_with_auto",
    "split_names",
]

#: A folder for `PYTHONPATH`. The folder's `sitecustomize` module calls `autoload` if torch's autoload is off.
STARTUP_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")  # noqa: PTH100, PTH118, PTH120

#: The variable that lists the integrations to prepare, separated by commas. `activate()` sets it for child
#: processes.
INTEGRATIONS_VARIABLE = "ACCEL_INTEGRATIONS"
#: The variable that lists the packages to import after torch, separated by commas. accel-core reads it too.
IMPORT_VARIABLE = "ACCEL_IMPORT"
_TORCH_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The value of `INTEGRATIONS_VARIABLE` that prepares the integration of each framework below when the
#: framework is imported.
AUTO = "auto"
#: The value of `INTEGRATIONS_VARIABLE` in a rank of `accel run --no-integrations`, which prepares no
#: integration.
NONE = "none"
#: For each framework's module, the integration that is prepared when the module is imported.
_INTEGRATION_OF_MODULE = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "pytorch_lightning": "lightning",
}
#: The variable that pins an accelerator.
_PIN_VARIABLE = "DS_ACCELERATOR"
#: `_INTEGRATION_OF_MODULE` for a process in which an accelerator is pinned, without `auto`.
_INTEGRATION_OF_PINNED_MODULE = {"deepspeed": "deepspeed_pin"}
#: The group of entry points that prepare integrations, such as `deepspeed = "accel_train.deepspeed:prepare"`.
INTEGRATIONS_GROUP = "accel.integrations"
#: The group of entry points that are called at the end of a process.
AT_EXIT_GROUP = "accel.at_exit"
_ERRORS_OF_OTHER_CODE = (Exception, SystemExit)


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, such as the value of `ACCEL_INTEGRATIONS`, into names in lower case."""
    stripped = [part.strip().lower() for part in text.split(",")]
    return tuple(name for name in stripped if name)


def integrations_with_auto(environ: dict[str, str] | os._Environ[str]) -> str:
    """Return the value of `ACCEL_INTEGRATIONS` in `environ`, with `auto` added in front."""
    values = [AUTO]
    for name in split_names(environ.get(INTEGRATIONS_VARIABLE, "")):
        if name not in values:
            values.append(name)
    return ",".join(values)


def autoload() -> None:
    """Import the packages in `ACCEL_IMPORT`, and prepare the integrations in `ACCEL_INTEGRATIONS`.

    Errors are reported as warnings. Preparing an integration imports neither the framework nor a vendor's
    package, and chooses no accelerator.
    """
    _import_packages(os.environ.get(IMPORT_VARIABLE, ""))
    if _registered_pid != os.getpid():
        _register_at_exit()
    # Nearly every process that imports torch has none of these variables, and must not lose time.
    values = split_names(os.environ.get(INTEGRATIONS_VARIABLE, ""))
    if values:
        _select_device_of_rank_later()
        _prepare_integrations([name for name in values if name not in (AUTO, NONE)])
    if AUTO in values:
        _prepare_on_import(_INTEGRATION_OF_MODULE)
    elif os.environ.get(_PIN_VARIABLE):
        _prepare_on_import(_INTEGRATION_OF_PINNED_MODULE)


def _prepare_on_import(integration_of_module: dict[str, str]) -> None:
    """Prepare each integration when its framework's module is imported. A second call changes nothing."""
    for finder in sys.meta_path:
        if isinstance(finder, _ImportWatcher):
            return
    # A framework that is in sys.modules already is importing torch at this moment.
    integrations = []
    for module, integration in integration_of_module.items():
        if module in sys.modules:
            integrations.append(integration)
    _prepare_integrations(integrations)
    sys.meta_path.insert(0, _ImportWatcher(integration_of_module))


def _import_packages(text: str) -> None:
    """Import the packages in `text`, the value of `ACCEL_IMPORT`. All errors become one warning.

    For `package:function`, the function is also called, as torch's autoload would call it. If torch's
    autoload is on, such an entry is left to torch. A module that is already imported is skipped.
    """
    problems = []
    is_autoload_on = os.environ.get(_TORCH_AUTOLOAD, "1") == "1"
    for part in text.split(","):
        entry = part.strip()
        module, _, function = entry.partition(":")
        is_left_to_torch = function and is_autoload_on
        if not entry or module in sys.modules or is_left_to_torch:
            continue
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except _ERRORS_OF_OTHER_CODE as error:
            problems.append(f"{entry}: {_error_text(error)}")
    if problems:
        _warn_not_applied(IMPORT_VARIABLE, problems)


def _select_device_of_rank_later() -> None:
    """Select the device with the index `LOCAL_RANK` when the vendor's runtime starts.

    Otherwise all ranks of a script that selects no device would share device 0. A vendor's module that is
    built like `torch.cuda` queues calls until its runtime starts, so this function initializes no device.
    """
    local_rank = os.environ.get("LOCAL_RANK", "")
    torch = sys.modules.get("torch")
    if not local_rank.isdecimal() or not hasattr(torch, "accelerator"):
        return
    with contextlib.suppress(*_ERRORS_OF_OTHER_CODE):
        device = torch.accelerator.current_accelerator()  # type: ignore[union-attr]
        if device is None:
            return
        device_module = getattr(torch, device.type)
        if hasattr(device_module, "_lazy_call"):
            device_module._lazy_call(
                lambda: _select_device_if_present(device_module, int(local_rank))
            )


def _select_device_if_present(device_module: Any, index: int) -> None:
    """Select the device `index` with `device_module`, such as `torch.cuda`, if that device exists.

    If only one device is visible to each rank, the device's index is 0 in every rank.
    """
    if index < device_module.device_count():
        device_module.set_device(index)


class _ImportWatcher:
    """A finder that finds no module, but prepares an integration just before its framework is imported."""

    def __init__(self, integration_of_module: dict[str, str]) -> None:
        self._integration_of_expected_module = {}
        for module, integration in integration_of_module.items():
            if module not in sys.modules:
                self._integration_of_expected_module[module] = integration

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> None:
        # pop(), because each integration is prepared only once.
        integration = self._integration_of_expected_module.pop(name, None)
        if integration is not None:
            _prepare_integrations([integration])


#: The id of the process that has registered `_run_at_exit`. A forked child has a different id.
_registered_pid = 0


def _register_at_exit() -> None:
    """Register `_run_at_exit` for this process, and forget the registration of a parent process."""
    global _registered_pid
    _registered_pid = os.getpid()
    atexit.register(_run_at_exit)


def _run_at_exit() -> None:
    """Call the functions of `accel.at_exit` if `accel run` started the process, or it uses accel_core."""
    # After Ctrl-C, an import here would make Python end with status 1 instead of by SIGINT. Imported code may
    # call `exec`, as named tuples do, and that clears Python's record of the interrupt.
    uncaught = getattr(sys, "last_type", None)
    if uncaught is not None and issubclass(uncaught, KeyboardInterrupt):
        return
    is_started_by_accel_run = bool(os.environ.get(INTEGRATIONS_VARIABLE))
    uses_accel_core = "accel_core.current" in sys.modules
    is_forked_child = os.getpid() != _registered_pid
    if (is_started_by_accel_run or uses_accel_core) and not is_forked_child:
        _call_exit_functions()


def _call_exit_functions() -> None:
    """Call the functions that the entry points of the group `accel.at_exit` name, and ignore errors."""
    with contextlib.suppress(*_ERRORS_OF_OTHER_CODE):
        from accel_core.settings import permitted_entry_points

        for entry_point in permitted_entry_points(AT_EXIT_GROUP):
            function = entry_point.load()
            function()


def _prepare_integrations(integrations: list[str]) -> None:
    """Prepare the integrations with these names. All errors become one warning."""
    if not integrations:
        return
    try:
        problems = _call_integrations_and_list_problems(integrations)
    except _ERRORS_OF_OTHER_CODE as error:
        # The metadata of a distribution cannot be read.
        problems = [_error_text(error)]
    if problems:
        # Without the first variable, only a pin leads to an integration.
        variable = _PIN_VARIABLE
        if os.environ.get(INTEGRATIONS_VARIABLE):
            variable = INTEGRATIONS_VARIABLE
        _warn_not_applied(variable, problems)


def _warn_not_applied(variable: str, problems: list[str]) -> None:
    """Warn that the value of the environment variable `variable` cannot be applied, because of `problems`."""
    with warnings.catch_warnings():
        # If warnings were errors, the error would stop the import of torch.
        warnings.simplefilter("default")
        warnings.warn(
            f"{variable}={os.environ.get(variable)!r} cannot be applied: {'; '.join(problems)}. "
            f"Correct it, or unset {variable}.",
            RuntimeWarning,
            stacklevel=4,
        )


def _call_integrations_and_list_problems(integrations: list[str]) -> list[str]:
    """Call the entry point of each integration; return a sentence for each that failed or is missing."""
    # Imported here because this import takes 30 ms.
    from accel_core.settings import permitted_entry_points

    entry_points: dict[str, Any] = {}
    for entry_point in permitted_entry_points(INTEGRATIONS_GROUP):
        # The first entry point of a name counts.
        entry_points.setdefault(entry_point.name.lower(), entry_point)
    problems = []
    for name in integrations:
        if name not in entry_points:
            known = ", ".join(sorted(entry_points)) or "none; install accel-train again"
            problems.append(
                f"no installed distribution provides an integration {name!r} (known: {known})"
            )
            continue
        try:
            prepare = entry_points[name].load()
            prepare()
        except _ERRORS_OF_OTHER_CODE as error:
            problems.append(f"{name}: {_error_text(error)}")
    return problems


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
