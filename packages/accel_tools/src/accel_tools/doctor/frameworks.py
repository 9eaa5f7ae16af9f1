"""Ask a framework, in a child process, which device it would choose here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.hardware import vendors

__all__ = ["FRAMEWORKS", "Framework", "ask"]


class Framework(NamedTuple):
    """A framework: how to ask it for its device, and how to make it use ours."""

    name: str
    #: The distributions that must be installed; its version is that of the first.
    distributions: tuple[str, ...]
    #: The question, as a user would write it.
    question: str
    #: Imports the framework and gives torch's name of the device.
    device: Callable[[], str]
    #: What makes it choose ours: `{}` is our name, `{install}` the command that installs accel-train.
    to_ours: str
    #: What makes it choose the CPU; empty where that is nothing else.
    to_cpu: str = ""
    #: What makes it choose ours where it would choose the device that is the key.
    from_theirs: Mapping[str, str] = {}

    def step(self, ours: str, theirs: str) -> str:
        """Return the step that makes the framework choose `ours` instead of `theirs`."""
        if theirs in self.from_theirs:
            return self.from_theirs[theirs].format(ours)
        if ours == "cpu" and self.to_cpu:
            return self.to_cpu
        install = vendors.install_command("accel-train")
        return self.to_ours.format(ours.partition(".")[0], install=install)


def ask(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: return the device that the framework named in `job` chooses without a launcher."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    [framework] = [
        framework for framework in FRAMEWORKS if framework.name == job["framework"]
    ]
    stage(framework.question)
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


_ARGUMENTS = "AcceleratorArguments of accel_train.transformers before TrainingArguments"

#: In the order of the report.
FRAMEWORKS = (
    Framework(
        "DeepSpeed",
        ("deepspeed",),
        "deepspeed.accelerator.get_accelerator().device_name()",
        _deepspeed,
        to_ours="export DS_ACCELERATOR={}; for a name that DeepSpeed lacks also {install}",
    ),
    Framework(
        "Accelerate",
        ("accelerate",),
        "accelerate.PartialState().device",
        _accelerate,
        to_ours="export ACCELERATE_TORCH_DEVICE={}",
        to_cpu="export ACCELERATE_USE_CPU=1",
    ),
    Framework(
        "Transformers' Trainer",
        ("transformers", "accelerate"),
        "transformers.TrainingArguments().device",
        _trainer,
        to_ours=_ARGUMENTS,
        to_cpu=f"TrainingArguments(use_cpu=True), or {_ARGUMENTS}",
        from_theirs={"cpu": "export ACCELERATE_TORCH_DEVICE={}"},
    ),
    Framework(
        "Lightning",
        ("lightning",),
        "lightning.fabric.Fabric(devices=1).device",
        _lightning,
        to_ours="Trainer(**trainer_options()) with accel_train.lightning",
        from_theirs={"mps": "export DISABLE_MPS=1"},
    ),
)
