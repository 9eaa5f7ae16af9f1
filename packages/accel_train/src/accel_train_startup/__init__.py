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
    "AT_EXIT",
    "AT_START",
    "AUTO",
    "GROUP",
    "IMPORTED",
    "NONE",
    "VARIABLE",
    "autoload",
    "names",
    "with_auto",
]

#: A folder for `PYTHONPATH`. The folder's `sitecustomize` module calls `autoload` if torch's autoload is off.
AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")  # noqa: PTH100, PTH118, PTH120

#: The variable that lists the integrations to prepare, separated by commas. `activate()` sets it for child
#: processes.
VARIABLE = "ACCEL_INTEGRATIONS"
#: The variable that lists the packages to import after torch, separated by commas. accel-core reads it too.
IMPORTED = "ACCEL_IMPORT"
_TORCH_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The value of `VARIABLE` that prepares the integration of each framework below when the framework is
#: imported.
AUTO = "auto"
#: The value of `VARIABLE` in a rank of `accel run --no-integrations`. No integration is prepared.
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
_PIN = "DS_ACCELERATOR"
#: `_INTEGRATION_OF_MODULE` for a process in which an accelerator is pinned, without `auto`.
_INTEGRATION_OF_PINNED_MODULE = {"deepspeed": "deepspeed_pin"}
#: The group of entry points that prepare integrations, such as `deepspeed = "accel_train.deepspeed:prepare"`.
GROUP = "accel.integrations"
#: The group of entry points that are called at the end of a process.
AT_EXIT = "accel.at_exit"
_ERRORS = (Exception, SystemExit)


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, such as the value of `ACCEL_INTEGRATIONS`, into names in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def with_auto(environ: dict[str, str] | os._Environ[str]) -> str:
    """Return the value of `ACCEL_INTEGRATIONS` in `environ`, with `auto` added in front."""
    return ",".join(dict.fromkeys((AUTO, *names(environ.get(VARIABLE, "")))))


def autoload() -> None:
    """Import the packages in `ACCEL_IMPORT`, and prepare the integrations in `ACCEL_INTEGRATIONS`.

    Errors are reported as warnings. Preparing an integration imports neither the framework nor a vendor's
    package, and chooses no accelerator.
    """
    _import_packages(os.environ.get(IMPORTED, ""))
    if _registered_pid != os.getpid():
        _register_at_exit(os.getpid())
    # Nearly every process that imports torch has none of these variables, and must not lose time.
    integrations = names(os.environ.get(VARIABLE, ""))
    if integrations:
        _select_device_of_rank_later()
        _apply_integrations([name for name in integrations if name not in (AUTO, NONE)])
    if AUTO in integrations:
        _apply_on_import(_INTEGRATION_OF_MODULE)
    elif os.environ.get(_PIN):
        _apply_on_import(_INTEGRATION_OF_PINNED_MODULE)


def _apply_on_import(integration_of_module: dict[str, str]) -> None:
    """Prepare each integration when its framework's module is imported. A second call changes nothing."""
    if any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
        return
    # A framework that is in sys.modules already is importing torch at this moment.
    _apply_integrations(
        [
            name
            for module, name in integration_of_module.items()
            if module in sys.modules
        ]
    )
    sys.meta_path.insert(0, _ImportWatcher(integration_of_module))


def _import_packages(text: str) -> None:
    """Import the packages in `text`, the value of `ACCEL_IMPORT`. All errors become one warning.

    For `package:function`, the function is also called, as torch's autoload would call it. If torch's
    autoload is on, such an entry is left to torch. A module that is already imported is skipped.
    """
    problems = []
    for name in filter(None, map(str.strip, text.split(","))):
        module, _, function = name.partition(":")
        is_left_to_torch = function and os.environ.get(_TORCH_AUTOLOAD, "1") == "1"
        if module in sys.modules or is_left_to_torch:
            continue
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except _ERRORS as error:
            problems.append(f"{name}: {_error_text(error)}")
    if problems:
        _warn_not_applied(IMPORTED, problems)


def _select_device_of_rank_later() -> None:
    """Select the device with the index `LOCAL_RANK` when the vendor's runtime starts.

    Otherwise all ranks of a script that selects no device would share device 0. A vendor's module that is
    built like `torch.cuda` queues calls until its runtime starts, so this function initializes no device.
    """
    local_rank = os.environ.get("LOCAL_RANK", "")
    torch = sys.modules.get("torch")
    if not local_rank.isdecimal() or not hasattr(torch, "accelerator"):
        return
    with contextlib.suppress(*_ERRORS):
        device = torch.accelerator.current_accelerator()  # type: ignore[union-attr]
        if device is None:
            return
        namespace = getattr(torch, device.type)
        if hasattr(namespace, "_lazy_call"):
            namespace._lazy_call(lambda: _select_device(namespace, int(local_rank)))


def _select_device(namespace: Any, index: int) -> None:
    """Select the device `index` with the module `namespace`, such as `torch.cuda`, if that device exists.

    If only one device is visible to each rank, the device's index is 0 in every rank.
    """
    if index < namespace.device_count():
        namespace.set_device(index)


class _ImportWatcher:
    """A finder that finds no module, but prepares an integration just before its framework is imported."""

    def __init__(self, integration_of_module: dict[str, str]) -> None:
        self._not_imported = {
            module: name
            for module, name in integration_of_module.items()
            if module not in sys.modules
        }

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> None:
        if name in self._not_imported:
            _apply_integrations([self._not_imported.pop(name)])


#: The id of the process that has registered `_run_at_exit`. A forked child has a different id.
_registered_pid = 0


def _register_at_exit(pid: int) -> None:
    """Register `_run_at_exit` for the process `pid`, and forget the registration of a parent process."""
    global _registered_pid
    _registered_pid = pid
    atexit.register(_run_at_exit)


def _run_at_exit() -> None:
    """Call the functions of `accel.at_exit` if `accel run` started the process, or it uses accel_core."""
    # After Ctrl-C, an import here would make Python end with status 1 instead of by SIGINT. Imported code may
    # call `exec`, as named tuples do, and that clears Python's record of the interrupt.
    if issubclass(getattr(sys, "last_type", None) or object, KeyboardInterrupt):
        return
    is_relevant = os.environ.get(VARIABLE) or "accel_core.current" in sys.modules
    if is_relevant and os.getpid() == _registered_pid:
        _call_exit_functions()


def _call_exit_functions() -> None:
    """Call the functions that the entry points of the group `accel.at_exit` name, and ignore errors."""
    with contextlib.suppress(*_ERRORS):
        from accel_core.settings import permitted_entry_points

        for entry_point in permitted_entry_points(AT_EXIT):
            entry_point.load()()


def _apply_integrations(integrations: list[str]) -> None:
    """Prepare the integrations with these names. All errors become one warning."""
    if not integrations:
        return
    try:
        problems = _call_integrations(integrations)
    except _ERRORS as error:  # Raised if the metadata of a distribution cannot be read.
        problems = [_error_text(error)]
    if problems:
        _warn_not_applied(VARIABLE if os.environ.get(VARIABLE) else _PIN, problems)


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


def _call_integrations(integrations: list[str]) -> list[str]:
    """Call the entry point of each integration; return a sentence for each that failed or is missing."""
    # Imported here because this import takes 30 ms.
    from accel_core.settings import permitted_entry_points

    entry_points = {
        entry_point.name.lower(): entry_point
        for entry_point in reversed(permitted_entry_points(GROUP))
    }
    problems = []
    for name in integrations:
        if name not in entry_points:
            known = ", ".join(sorted(entry_points)) or "none; install accel-train again"
            problems.append(
                f"no installed distribution provides an integration {name!r} (known: {known})"
            )
            continue
        try:
            entry_points[name].load()()
        except _ERRORS as error:
            problems.append(f"{name}: {_error_text(error)}")
    return problems


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
