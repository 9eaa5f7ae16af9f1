"""Find the torch.distributed backend for an accelerator's tensors, before a process group starts."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING

from accel_core.errors import LaunchError
from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND
from accel_train.staged import register, unusable_reason

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["communication_of", "prepare_communication"]

#: The package of oneCCL's bindings. Importing the package registers the backend `ccl`.
_CCL_PACKAGE = "oneccl_bindings_for_pytorch"


def communication_of(accelerator: Accelerator, requested: str | None = None) -> str:
    """Return the communication backend to pass to `torch.distributed.init_process_group`, such as `"hccl"`.

    The result is `requested` if it is not empty, or otherwise the value of `ACCEL_COMMUNICATION_BACKEND`
    (which `accel run` sets), or otherwise the accelerator's default. Raises `LaunchError` if torch does not
    have this backend for the device type.
    """
    if accelerator.device_name() != "cpu":
        # Register the backend "staged", which may be requested for any device.
        register(accelerator)
    default = accelerator.communication_backend_name()
    configured = requested
    if not configured:
        configured = ACCEL_COMMUNICATION_BACKEND.read(os.environ)
    name = (configured or default).lower()
    if name == default:
        usable_name = prepare_communication(accelerator)
        # Only a backend that the caller did not request is replaced with a usable one.
        if not requested:
            name = usable_name
    problem = unusable_reason(name, accelerator.device_name())
    if problem and not configured:
        problem = f"{accelerator.name} declares the communication backend {name!r}, but {problem}"
    if problem:
        raise LaunchError(problem)
    return name


def prepare_communication(accelerator: Accelerator) -> str:
    """Import the package that registers the accelerator's communication backend with torch, if one is needed.

    Returns the backend's name. Only `ccl`, a backend for the CPU, needs such a package: oneCCL's bindings. If
    the bindings fail, a warning is issued and the accelerator uses gloo.
    """
    is_cpu = accelerator.device_name() == "cpu"
    if is_cpu and accelerator.communication_backend_name() == "ccl":
        import torch

        try:
            import_module(_CCL_PACKAGE)
            if not torch.distributed.is_backend_available("ccl"):
                raise ImportError(
                    f"{_CCL_PACKAGE} does not register the backend ccl with this torch"
                )
        except (Exception, SystemExit) as error:
            accelerator._communication_backend_name = "gloo"
            warnings.warn(
                f"oneCCL's bindings do not work here, so the CPU communicates over gloo: "
                f"{type(error).__name__}: {error}. Install the {_CCL_PACKAGE} that was built for torch "
                f"{torch.__version__}, or uninstall it.",
                RuntimeWarning,
                stacklevel=2,
            )
    return accelerator.communication_backend_name()
