"""Hugging Face Accelerate on accel_core's choice: its `PartialState`, made before anything else asks for it.

    from accel_core.integrations.accelerate import partial_state

    partial_state()
    accelerator = accelerate.Accelerator()

Accelerate keeps one state a process, which all `PartialState` and `Accelerator` objects share, and whoever
makes it first decides. Its own rules are a ladder of vendors; `partial_state` makes it for any backend, by
what its constructor takes and the variable that it reads. Nothing of Accelerate is replaced. Importing this
module imports no Accelerate.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from accel_core import current
from accel_core.distributed.communication import communication_of
from accel_core.errors import IntegrationError, IntegrationMissingError
from accel_core.settings import LOCAL_RANK

if TYPE_CHECKING:
    import torch

    from accel_core.accelerators.interface import Accelerator

__all__ = ["partial_state"]

#: Read by `PartialState`: the device of this process, before any rule of its own.
_DEVICE = "ACCELERATE_TORCH_DEVICE"


def partial_state(name: str | None = None, **kwargs: Any) -> Any:
    """Accelerate's `PartialState` for the backend `name`; without a name, for the one this process chose.

    Call it before the first `accelerate.Accelerator()`. Where a launcher started several ranks (`accel run`,
    torchrun), it selects this rank's device and starts the process group with the backend's communication
    library. `kwargs` go to `PartialState`, and so to `init_process_group`: `timeout`. Where Accelerate's
    state is there already and says the same device, it is returned as it is.

    Raises `IntegrationMissingError` without Accelerate, `IntegrationError` where Accelerate has chosen
    another device or cannot be given this one, and what `accel_core.accelerator(name)` raises.
    """
    accelerate = _accelerate()
    ours = current.get_accelerator() if name is None else current.accelerator(name)
    if accelerate.PartialState._shared_state:
        return _as_chosen(accelerate.PartialState(), ours)
    if ours.device().type == "cpu":
        return _as_chosen(accelerate.PartialState(cpu=True, **kwargs), ours)
    is_rank = bool(os.environ.get(LOCAL_RANK.name, "").strip())
    device = _device_of_rank(ours) if is_rank else ours.device(ours.current_device())
    ours.set_device(device.index)
    if is_rank:
        kwargs.setdefault("backend", communication_of(ours))
    with _variable(_DEVICE, str(device)):
        state = accelerate.PartialState(**kwargs)
    kinds = accelerate.DistributedType
    if is_rank and state.distributed_type == kinds.NO:
        # The list of kinds is closed. Of those, MULTI_GPU is the one that means "a process per device, by
        # torch.distributed" and nothing else; a vendor that Accelerate knows has one of its own.
        own = f"MULTI_{ours.device().type.upper()}"
        state.distributed_type = getattr(kinds, own, kinds.MULTI_GPU)
    return _as_chosen(state, ours)


def _accelerate() -> Any:
    try:
        return importlib.import_module("accelerate")
    except ModuleNotFoundError as error:
        if error.name != "accelerate":
            raise
        raise IntegrationMissingError(
            "Hugging Face Accelerate is not installed in this environment: pip install accelerate"
        ) from None


def _as_chosen(state: Any, ours: Accelerator) -> Any:
    if state.device.type != ours.device().type:
        raise IntegrationError(
            f"Accelerate has chosen {state.device}, and accel_core {ours.name} (device type "
            f"{ours.device().type}): the first to make Accelerate's state decides. Call "
            "accel_core.integrations.accelerate.partial_state() before accelerate.Accelerator(), "
            "accelerate.PartialState(), and libraries that make one"
        )
    return state


def _device_of_rank(ours: Accelerator) -> torch.device:
    rank, count = LOCAL_RANK.read(os.environ), ours.device_count()
    if rank < count:
        return ours.device(rank)
    raise IntegrationError(
        f"rank {rank} on this host needs a device of its own, and sees {count} of {ours.name}. Accelerate "
        "gives the n-th rank of a host its n-th device: start at most as many ranks as devices, and "
        "do not show each rank one device (accel run --one-device-per-rank)"
    )


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
