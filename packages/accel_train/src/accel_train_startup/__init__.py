"""Run at every `import torch`: import vendors' packages and prepare integrations, as variables say.

It is an entry point of torch's group `torch.backends`. It imports the packages that `ACCEL_IMPORT` names. In
a rank of `accel run` that is the chosen vendor's, so that torch has the device in an unchanged program and in
the processes that it starts.

An activation (`accel_train.deepspeed.activate()`) must also hold in child processes: spawned workers and
launched ranks are new interpreters, which inherit only environment variables. This module applies the
activation there. It does nothing unless the variable is set, and it never raises: if an entry point of this
group fails, torch cannot be imported.

It is a package of its own, because `import torch` must not import accel-train, and must not fail with it. An
entry point in group `accel.integrations` names the function to call for an integration.
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

#: A folder for `PYTHONPATH`: its `sitecustomize` calls `autoload` if torch's autoload is off.
AT_START = os.path.join(os.path.dirname(os.path.abspath(__file__)), "at_start")  # noqa: PTH100, PTH118, PTH120

#: Variable with the integrations to prepare, separated by commas. `activate()` sets it for child processes.
VARIABLE = "ACCEL_INTEGRATIONS"
#: Variable with the packages to import after torch, separated by commas; accel-core reads it too.
IMPORTED = "ACCEL_IMPORT"
_TORCH_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: Value of `VARIABLE`: prepare the integration of each framework below when it is imported.
AUTO = "auto"
#: Value of `VARIABLE` in a rank of `accel run --no-integrations`: prepare nothing.
NONE = "none"
#: The integration that is prepared when a framework's module is imported, by module.
_INTEGRATION_OF_MODULE = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "pytorch_lightning": "lightning",
}
#: Variable that pins an accelerator.
_PIN = "DS_ACCELERATOR"
#: The same for a process that has a pin, and neither `auto` nor an activation.
_INTEGRATION_OF_PINNED_MODULE = {"deepspeed": "deepspeed_pin"}
#: Group of entry points that prepare integrations: `deepspeed = "accel_train.deepspeed:prepare"`.
GROUP = "accel.integrations"
#: Group of entry points that are called at the end of a process.
AT_EXIT = "accel.at_exit"
_ERRORS = (Exception, SystemExit)


def names(text: str) -> tuple[str, ...]:
    """Return the names in the variable's comma-separated list, in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def with_auto(environ: dict[str, str] | os._Environ[str]) -> str:
    """Return the variable's value in `environ`, with `AUTO` in it."""
    return ",".join(dict.fromkeys((AUTO, *names(environ.get(VARIABLE, "")))))


def autoload() -> None:
    """Import what `ACCEL_IMPORT` names, and prepare the integrations that `ACCEL_INTEGRATIONS` names.

    Errors become warnings. Preparing imports neither the framework nor a vendor's package, and chooses no
    accelerator.
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
    """Prepare each integration when its framework's module is imported; a second call changes nothing."""
    if any(isinstance(finder, _ImportWatcher) for finder in sys.meta_path):
        return
    # A framework that is in sys.modules is importing torch at this moment.
    _apply_integrations(
        [
            name
            for module, name in integration_of_module.items()
            if module in sys.modules
        ]
    )
    sys.meta_path.insert(0, _ImportWatcher(integration_of_module))


def _import_packages(text: str) -> None:
    """Import the packages in `text`, which is the value of `ACCEL_IMPORT`; errors become one warning.

    The function of `package:function` is also called, as torch's autoload would; it is left to torch if the
    autoload is on. A module that is already imported is skipped.
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
    """Select the device of this rank's `LOCAL_RANK` when the vendor's runtime starts.

    A vendor's module that follows `torch.cuda` queues calls until then, so nothing is initialised here.
    Without this, all ranks of a script that selects no device would share device 0.
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
    """Select a device by `namespace`, `torch.cuda` for example; do nothing if it has no device `index`.

    A rank that sees only its own device has no other index than 0.
    """
    if index < namespace.device_count():
        namespace.set_device(index)


class _ImportWatcher:
    """A finder that finds nothing, and applies an integration when its framework is about to be imported."""

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


#: The process that has registered `_run_at_exit`; a forked child has another id.
_registered_pid = 0


def _register_at_exit(pid: int) -> None:
    """Register `_run_at_exit` for this process, and forget that of a parent that forked it."""
    global _registered_pid
    _registered_pid = pid
    atexit.register(_run_at_exit)


def _run_at_exit() -> None:
    """Call the functions of group `accel.at_exit`, in a process that was launched or uses accel_core."""
    # After Ctrl-C an import here would make Python end with status 1, not by SIGINT: evaluating code, as a
    # named tuple does, clears Python's note of the interrupt.
    if issubclass(getattr(sys, "last_type", None) or object, KeyboardInterrupt):
        return
    is_relevant = os.environ.get(VARIABLE) or "accel_core.current" in sys.modules
    if is_relevant and os.getpid() == _registered_pid:
        _call_exit_functions()


def _call_exit_functions() -> None:
    """Call what the entry points of group `accel.at_exit` name; errors are ignored."""
    with contextlib.suppress(*_ERRORS):
        from accel_core.settings import permitted_entry_points

        for entry_point in permitted_entry_points(AT_EXIT):
            entry_point.load()()


def _apply_integrations(integrations: list[str]) -> None:
    """Prepare these integrations by name; errors become one warning."""
    if not integrations:
        return
    try:
        problems = _call_integrations(integrations)
    except _ERRORS as error:  # the metadata of a distribution cannot be read
        problems = [_error_text(error)]
    if problems:
        _warn_not_applied(VARIABLE if os.environ.get(VARIABLE) else _PIN, problems)


def _warn_not_applied(variable: str, problems: list[str]) -> None:
    """Warn that the value of a variable cannot be applied, because of `problems`."""
    with warnings.catch_warnings():
        # An error would stop the import of torch.
        warnings.simplefilter("default")
        warnings.warn(
            f"{variable}={os.environ.get(variable)!r} cannot be applied: {'; '.join(problems)}. "
            f"Correct it, or unset {variable}.",
            RuntimeWarning,
            stacklevel=4,
        )


def _call_integrations(integrations: list[str]) -> list[str]:
    """Call the entry point of each integration; return a sentence for each that failed or is missing."""
    # Imported here: it takes 30 ms, unless torch has loaded it already.
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
