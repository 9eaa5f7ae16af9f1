"""Query a framework in a child process for the device that it would choose on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.hardware import vendors

__all__ = ["FRAMEWORKS", "Framework", "query"]


class Framework(NamedTuple):
    """A framework, how to query its device, and how to make it use accel's device."""

    name: str
    #: The distributions that must be installed. The framework's version is that of the first.
    distributions: tuple[str, ...]
    #: The call that returns the device, as a user would write it.
    call: str
    #: A function that imports the framework and returns torch's name of the device.
    device: Callable[[], str]
    #: The step that selects a backend. `{}` stands for the backend's name, `{install}` for the
    #: command that installs accel-train.
    to_backend: str
    #: The step that selects the CPU; empty if `to_backend` also selects the CPU.
    to_cpu: str = ""
    #: Pairs of a device and the step that selects a backend (`{}`) instead of this device.
    instead_of: tuple[tuple[str, str], ...] = ()

    def step(self, backend: str, device: str) -> str:
        """Return the step that makes the framework choose `backend` instead of `device`."""
        for wrong_device, step in self.instead_of:
            if wrong_device == device:
                return step.format(backend)
        if backend == "cpu" and self.to_cpu:
            return self.to_cpu
        install = vendors.install_command("accel-train")
        return self.to_backend.format(backend.partition(".")[0], install=install)


def query(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """Query the device that the framework `job["framework"]` chooses without a launcher.

    Runs in a child process. The answer has the keys `device` and `fails` (the error message); one of
    the two values is empty.
    """
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    [framework] = [
        framework for framework in FRAMEWORKS if framework.name == job["framework"]
    ]
    stage(framework.call)
    try:
        return {"device": str(framework.device()), "fails": ""}
    except PLUGIN_ERRORS as error:
        return {"device": "", "fails": root_cause(error)}


def _deepspeed() -> str:
    from deepspeed.accelerator import get_accelerator

    return str(get_accelerator().device_name())


def _accelerate() -> str:
    from accelerate import PartialState

    return str(PartialState().device.type)


def _trainer() -> str:
    from transformers import TrainingArguments

    return str(TrainingArguments(report_to=[]).device.type)


def _lightning() -> str:
    from lightning.fabric import Fabric

    return str(Fabric(devices=1).device.type)


_ARGUMENTS = "accel_train.transformers.AcceleratorArguments before TrainingArguments"

#: All frameworks that are queried, in the order of the report.
FRAMEWORKS = (
    Framework(
        "DeepSpeed",
        ("deepspeed",),
        "deepspeed.accelerator.get_accelerator().device_name()",
        _deepspeed,
        to_backend="export DS_ACCELERATOR={}; if DeepSpeed does not support the name, also {install}",
    ),
    Framework(
        "Accelerate",
        ("accelerate",),
        "accelerate.PartialState().device",
        _accelerate,
        to_backend="export ACCELERATE_TORCH_DEVICE={}",
        to_cpu="export ACCELERATE_USE_CPU=1",
    ),
    Framework(
        "Transformers' Trainer",
        ("transformers", "accelerate"),
        "transformers.TrainingArguments().device",
        _trainer,
        to_backend=_ARGUMENTS,
        to_cpu=f"TrainingArguments(use_cpu=True), or {_ARGUMENTS}",
        instead_of=(("cpu", "export ACCELERATE_TORCH_DEVICE={}"),),
    ),
    Framework(
        "Lightning",
        ("lightning",),
        "lightning.fabric.Fabric(devices=1).device",
        _lightning,
        to_backend="Trainer(**trainer_options()) with accel_train.lightning",
        instead_of=(("mps", "export DISABLE_MPS=1"),),
    ),
)
