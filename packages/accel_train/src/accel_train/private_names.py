"""Read other projects' private names and stack frames.

The test `packages/accel_train/tests/trainers/test_private_names.py` compares these names
with the installed releases, and in nightly runs with the newest releases.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

__all__ = [
    "ACCELERATE_LOSS_SCALING_TYPES",
    "ACCELERATE_RANK_TYPES",
    "LIGHTNING_CONNECTORS",
    "NAMES",
    "TRANSFORMERS_DEVICE_ORDER",
    "VERIFIED_RELEASES",
    "PrivateNames",
    "accelerate_requests_cpu",
    "accelerate_state",
    "deepspeed_accelerator",
    "had_process_group",
    "lightning_arguments",
    "set_accelerate_state",
]

#: For each distribution, the release that this module was written for.
VERIFIED_RELEASES = {
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "lightning": "2.6.6",
    "transformers": "5.23.0",
}


class PrivateNames(NamedTuple):
    """The private names of another project's class that accel_train uses."""

    distribution: str
    #: The path of the source file in the distribution's package folder.
    file: str
    class_name: str
    names: tuple[str, ...]


#: All private names that are read in this module, or overridden by a derived class of accel_train.
NAMES = (
    PrivateNames("accelerate", "state.py", "PartialState", ("_shared_state",)),
    PrivateNames("accelerate", "state.py", "AcceleratorState", ("_reset_state",)),
    PrivateNames(
        "transformers",
        "training_args.py",
        "TrainingArguments",
        ("_setup_devices", "_validate_args", "_n_gpu"),
    ),
    PrivateNames(
        "lightning",
        "fabric/strategies/ddp.py",
        "DDPStrategy",
        ("_set_world_ranks", "_determine_ddp_device_ids", "_timeout"),
    ),
    PrivateNames(
        "lightning",
        "fabric/strategies/fsdp.py",
        "FSDPStrategy",
        ("_fsdp_kwargs", "_set_world_ranks", "_timeout"),
    ),
    PrivateNames(
        "lightning", "pytorch/strategies/ddp.py", "DDPStrategy", ("_timeout",)
    ),
    PrivateNames(
        "lightning", "pytorch/strategies/fsdp.py", "FSDPStrategy", ("_timeout",)
    ),
)

#: Device types in the order in which Transformers' `TrainingArguments._setup_devices`
#: checks them, before it reads Accelerate's variable.
TRANSFORMERS_DEVICE_ORDER = (
    "mps", "xpu", "mlu", "musa", "npu", "hpu", "neuron", "tpu", "cuda",
)  # fmt: skip
#: Device types for which Accelerate's `PartialState._prepare_backend` starts ranks.
ACCELERATE_RANK_TYPES = ("mlu", "sdaa", "musa", "npu", "hpu", "cuda", "xpu", "neuron")
#: Device types for which Accelerate scales losses, which float16 requires. The list is
#: `supported_device` in `Accelerator.__init__`.
ACCELERATE_LOSS_SCALING_TYPES = (
    "xpu", "cuda", "npu", "xla", "mlu", "musa", "hpu", "sdaa", "mps",
)  # fmt: skip

#: Lightning's modules that choose an accelerator in a class's `__init__`. The value is
#: "pytorch" for a module of Lightning's `Trainer`, and "fabric" for one of its `Fabric`.
LIGHTNING_CONNECTORS = {
    "lightning.pytorch.trainer.connectors.accelerator_connector": "pytorch",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "pytorch",
    "lightning.fabric.connector": "fabric",
    "lightning_fabric.connector": "fabric",
}


def lightning_arguments() -> dict[str, Any]:
    """Return the local variables of the Lightning connector on the call stack.

    The local variables include the arguments that the program passed to Lightning, and the connector as
    `self`. The call stack is read because Lightning passes neither to the classes in its registries. Returns
    an empty dictionary if the call stack contains no connector.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        is_in_connector = _module_of(frame) in LIGHTNING_CONNECTORS
        if is_in_connector and frame.f_code.co_name == "__init__":
            return frame.f_locals
    return {}


def accelerate_requests_cpu(caller: str) -> bool:
    """Return whether a function of `accelerate.state` on the call stack has the argument `cpu=True`.

    The call stack is read because Accelerate's state does not contain this argument yet. `caller` is the name
    of the module that calls this function. The frames of that module are skipped.
    """
    own_modules = (__name__, caller)
    frame = sys._getframe()
    # Skip the frames of accel_train. The next frames are Accelerate's, of which one has the argument `cpu`.
    while frame.f_back is not None and _module_of(frame) in own_modules:
        frame = frame.f_back
    while frame.f_back is not None and _module_of(frame) == "accelerate.state":
        if frame.f_locals.get("cpu"):
            return True
        frame = frame.f_back
    return False


def _module_of(frame: FrameType) -> str:
    """Return the name of the module whose code runs in a stack frame."""
    return str(frame.f_globals.get("__name__"))


def accelerate_state(partial_state: Any) -> Any:
    """Return the dictionary that all of Accelerate's `PartialState` objects share."""
    return partial_state._shared_state


def set_accelerate_state(partial_state: Any, state: dict[str, Any]) -> None:
    """Make `state` the dictionary that all of Accelerate's `PartialState` objects share.

    Call this function before the first `PartialState` object is created.
    """
    partial_state._shared_state = state


def deepspeed_accelerator() -> Any:
    """Return the accelerator that DeepSpeed has chosen, or `None` if it has not chosen one."""
    module = sys.modules.get("deepspeed.accelerator.real_accelerator")
    return getattr(module, "ds_accelerator", None)


def had_process_group() -> bool:
    """Return whether this process has, or had, a torch.distributed process group.

    torch 2.13 keeps the address of the last group in `_default_pg_init_method`, which `destroy_process_group`
    does not reset. `accel_train.init_process_group` passes a store instead of an address, and records the
    group itself.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None:
        return False
    # torch keeps this value after the group is destroyed.
    had_default_group = c10d._default_pg_init_method is not None
    if c10d.is_initialized() or had_default_group:
        return True
    own_module = sys.modules.get("accel_train.launch.process_group")
    return bool(getattr(own_module, "_had_job", False))
