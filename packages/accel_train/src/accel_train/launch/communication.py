"""Find the communication backend for an accelerator's tensors, before a process starts."""

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

__all__ = ["communication_of", "prepared"]

#: oneCCL's bindings; importing them registers `ccl`.
_CCL = "oneccl_bindings_for_pytorch"


def communication_of(accelerator: Accelerator, named: str | None = None) -> str:
    """Return the name for `torch.distributed.init_process_group`: `"hccl"`, `"staged"`.

    `named` takes precedence, then `ACCEL_COMMUNICATION_BACKEND`, which `accel run` sets, then the
    accelerator's own backend. Raises `LaunchError` if torch has no such backend for the device type.
    """
    if accelerator.device_name() != "cpu":
        register(accelerator)  # it may be named for a device that has another
    own = accelerator.communication_backend_name()
    said = named or ACCEL_COMMUNICATION_BACKEND.read(os.environ)
    name = (said or own).lower()
    if name == own:
        # accel run names the accelerator's own, which may turn out not to work; what is asked for stays.
        usable = prepared(accelerator)
        name = name if named else usable
    problem = unusable_reason(name, accelerator.device_name())
    if problem:
        source = (
            ""
            if said
            else f"{accelerator.name} declares the communication backend {name!r}, and "
        )
        raise LaunchError(f"{source}{problem}")
    return name


def prepared(accelerator: Accelerator) -> str:
    """Return the accelerator's own backend, once what brings it is imported: for a process group to be made.

    On the CPU oneCCL's bindings register `ccl`; gloo serves, with a warning, where they fail.
    """
    if (
        accelerator.device_name() == "cpu"
        and accelerator.communication_backend_name() == "ccl"
    ):
        import torch

        try:
            import_module(_CCL)
            if not torch.distributed.is_backend_available("ccl"):
                raise ImportError(f"{_CCL} registers no backend ccl with this torch")
        except (Exception, SystemExit) as error:
            accelerator._communication_backend_name = "gloo"
            warnings.warn(
                f"oneCCL's bindings do not work here, so the CPU communicates over gloo: "
                f"{type(error).__name__}: {error}. Install the oneccl_bindings_for_pytorch that was built "
                f"for torch {torch.__version__}, or uninstall it.",
                RuntimeWarning,
                stacklevel=2,
            )
    return accelerator.communication_backend_name()
