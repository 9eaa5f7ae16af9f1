"""Query frameworks for the devices that they would choose on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.hardware import vendors

__all__ = ["FRAMEWORKS", "Framework", "query_device"]


class Framework(NamedTuple):
    """A framework, with a query for the device that it chooses and steps to change this choice."""

    name: str
    #: The distributions that must be installed. The framework's version is that of the first.
    distributions: tuple[str, ...]
    #: The call that returns the device, as a user would write it.
    call: str
    #: A function that imports the framework and returns torch's name of the device.
    query: Callable[[], str]
    #: The step that selects a backend. `{}` stands for the backend's name, `{install}` for the
    #: command that installs accel-train.
    backend_step: str
    #: The step that selects the CPU, or an empty string if `backend_step` also selects the CPU.
    cpu_step: str = ""
    #: Pairs of a wrong device and the step that selects a backend (`{}`) instead of this device.
    steps_by_wrong_device: tuple[tuple[str, str], ...] = ()

    def step(self, backend: str, device: str) -> str:
        """Return the step that makes the framework choose the backend instead of `device`."""
        for wrong_device, step in self.steps_by_wrong_device:
            if wrong_device == device:
                return step.format(backend)
        if backend == "cpu" and self.cpu_step:
            return self.cpu_step
        # torch and the frameworks use only the part before the dot of a name such as "xpu.external".
        name = backend.partition(".")[0]
        install_command = vendors.install_command("accel-train")
        return self.backend_step.format(name, install=install_command)


def query_device(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Return the device that a framework chooses without a launcher.

    Runs in a child process. `job["framework"]` is the framework's name. The returned dictionary has the
    keys `device` and `error`, and one of the two values is an empty string.
    """
    # A framework would try to connect to other ranks if a launcher's variables were set.
    for variable in _LAUNCHER_VARIABLES:
        os.environ.pop(variable, None)
    [framework] = [f for f in FRAMEWORKS if f.name == job["framework"]]
    stage(framework.call)
    try:
        return {"device": str(framework.query()), "error": ""}
    except PLUGIN_ERRORS as error:
        return {"device": "", "error": root_cause(error)}


#: The variables that launchers set for each rank.
_LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _deepspeed_device() -> str:
    from deepspeed.accelerator import get_accelerator

    return str(get_accelerator().device_name())


def _accelerate_device() -> str:
    from accelerate import PartialState

    return str(PartialState().device.type)


def _transformers_device() -> str:
    from transformers import TrainingArguments

    return str(TrainingArguments(report_to=[]).device.type)


def _lightning_device() -> str:
    from lightning.fabric import Fabric

    return str(Fabric(devices=1).device.type)


_USE_ACCELERATOR_ARGUMENTS = (
    "accel_train.transformers.AcceleratorArguments before TrainingArguments"
)

#: All frameworks that are queried, in the order of the report.
FRAMEWORKS = (
    Framework(
        "DeepSpeed",
        ("deepspeed",),
        "deepspeed.accelerator.get_accelerator().device_name()",
        _deepspeed_device,
        backend_step="export DS_ACCELERATOR={}; if DeepSpeed does not support the name, also run: {install}",
    ),
    Framework(
        "Accelerate",
        ("accelerate",),
        "accelerate.PartialState().device",
        _accelerate_device,
        backend_step="export ACCELERATE_TORCH_DEVICE={}",
        cpu_step="export ACCELERATE_USE_CPU=1",
    ),
    Framework(
        "Transformers' Trainer",
        ("transformers", "accelerate"),
        "transformers.TrainingArguments().device",
        _transformers_device,
        backend_step=_USE_ACCELERATOR_ARGUMENTS,
        cpu_step=f"TrainingArguments(use_cpu=True), or {_USE_ACCELERATOR_ARGUMENTS}",
        steps_by_wrong_device=(("cpu", "export ACCELERATE_TORCH_DEVICE={}"),),
    ),
    Framework(
        "Lightning",
        ("lightning",),
        "lightning.fabric.Fabric(devices=1).device",
        _lightning_device,
        backend_step="Trainer(**trainer_options()) with accel_train.lightning",
        steps_by_wrong_device=(("mps", "export DISABLE_MPS=1"),),
    ),
)
