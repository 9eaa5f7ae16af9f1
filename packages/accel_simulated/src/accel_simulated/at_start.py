"""Start a simulation: `accel_simulated.pth` imports this module at Python's start if `ACCEL_SIMULATE` is set.

The module adds the vendor's simulated package to `sys.path`, and makes the device available when torch is
imported. It does not check `ACCEL_SIMULATE`, because an invalid value must not stop Python from starting: the
first `import torch` raises the error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from accel_simulated import core_patches, imports

if TYPE_CHECKING:
    from accel_simulated.declared import DeclaredDevice
    from accel_simulated.request import Request

__all__ = ["backend_and_device_type", "begin_simulation", "describe"]

#: The value of `ACCEL_SIMULATE` when this process started.
_initial_value = ""
_HERE = os.path.dirname(os.path.abspath(__file__))


def begin_simulation() -> None:
    """Prepare this process to simulate the device that `ACCEL_SIMULATE` names."""
    global _initial_value
    _initial_value = os.environ["ACCEL_SIMULATE"]
    name = _requested_name()
    declared_device = _declared_device()
    if declared_device is not None:
        from accel_simulated import declared

        declared.install(declared_device)
    else:
        _add_runtime_to_path(name)
    backend, device_type = backend_and_device_type()
    # `accel simulate --report` sets this variable.
    if os.path.isdir(os.environ.get("ACCEL_SIMULATE_RECORD", "")):
        from accel_simulated.detector import recording

        recording.begin(device_type)
    imports.on_import("torch", before=_prepare_requested_device)
    core_patches.install(backend, device_type, lambda: describe(os.environ))
    if name == "klxpu":  # torch_xmlir is not loaded through torch's entry points
        from accel_simulated import kunlunxin

        kunlunxin.install()
    if name == "mps":  # accel-core would otherwise find mps on macOS only
        imports.on_import("accel_core.hardware", after=_match_any_platform)


def _add_runtime_to_path(name: str) -> None:
    """Insert the folder that contains the vendor's simulated package into `sys.path`.

    The folder goes after the entries of `PYTHONPATH`, but before the folders of installed packages. Nothing
    is inserted if torch itself contains the device's module.
    """
    runtime = os.path.join(_HERE, "runtimes", name)
    if not name or not os.path.isdir(runtime):
        return
    # The simulated package goes before the installed packages, so that it is found first.
    position = len(sys.path)
    for index, folder in enumerate(sys.path):
        if folder.endswith(("site-packages", "dist-packages")):
            position = index
            break
    sys.path.insert(position, runtime)


def backend_and_device_type() -> tuple[str, str]:
    """Return the names that accel-core and torch use for the device in `ACCEL_SIMULATE`.

    The first item is the backend's name in accel-core, and the second is the torch device type. Neither name
    is validated.
    """
    name = _requested_name()
    declared_device = _declared_device()
    if declared_device is not None:
        return declared_device.backend, name
    if name == "klxpu":
        return name, "cuda"  # Kunlunxin's device is a cuda device in torch
    return name, name


def _requested_name() -> str:
    """Return the device name in `ACCEL_SIMULATE`, in lower case."""
    return os.environ.get("ACCEL_SIMULATE", "").partition(":")[0].strip().lower()


def _declared_device() -> DeclaredDevice | None:
    """Return the requested device if an installed plugin declares it, or `None` otherwise."""
    if not os.environ.get("ACCEL_SIMULATE_DECLARED"):
        return None
    from accel_simulated import declared

    device = declared.from_environment()
    if device is None or device.vendor.name != _requested_name():
        return None
    return device


def describe(environ: Mapping[str, str]) -> str:
    """Return a description of the simulated device, such as `"acme:2 by accel-simulated 0.1.0"`.

    `environ` contains the environment variables that configure the simulation. If `environ` is `os.environ`,
    the device is also built, because the caller is about to probe it in a child process with a time limit.

    Raises `SettingError` if a variable is invalid or has changed since this process started. Also raises the
    same errors as `device.check_no_real_runtime` and `building.build`.
    """
    from accel_simulated import __version__, faults
    from accel_simulated.request import current_request

    request = current_request(environ)
    fault_names = ", ".join(faults.requested_faults(environ))
    # The caller is about to probe the device in a child process, whose time limit is too short for a build.
    # Another mapping than os.environ describes a different process, for which this process builds nothing.
    if request is not None and environ is os.environ:
        _check_and_build(request)
    description = f"{request} by accel-simulated {__version__}"
    if fault_names:
        description += f", with requested faults ({fault_names})"
    return description


def _check_and_build(request: Request) -> None:
    """Check that this process can simulate the requested device, and build the device.

    Raises `SettingError` if `ACCEL_SIMULATE` has changed since this process started.
    """
    from accel_core import SettingError
    from accel_simulated import building, device
    from accel_simulated.request import VARIABLE, current_request

    initial_request = current_request({**os.environ, VARIABLE: _initial_value})
    if request != initial_request:
        raise SettingError(
            f"{VARIABLE}={str(request)!r} was set after this process had started to simulate "
            f"{initial_request}. Next step: start another Python process: "
            f"accel simulate {request} -- COMMAND"
        )
    device.check_no_real_runtime(request)
    building.build_and_export(request.vendor.kind)


def _match_any_platform(module: ModuleType) -> None:
    """Make accel-core accept every platform that a backend declares as this machine's platform."""
    module.platform_matches = lambda platforms: True  # type: ignore[attr-defined]


def _prepare_requested_device() -> None:
    """Build the device in `ACCEL_SIMULATE`, if any, just before torch is imported.

    Raises `SettingError` if a variable is invalid. Also raises the same errors as `device.prepare`.
    """
    from accel_simulated import device
    from accel_simulated.request import current_request

    request = current_request()
    if request is not None:
        device.prepare(request)


if os.environ.get("ACCEL_SIMULATE", "").strip():
    begin_simulation()
