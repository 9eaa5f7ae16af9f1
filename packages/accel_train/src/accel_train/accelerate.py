"""Hugging Face Accelerate on accel_core's choice: `partial_state` makes Accelerate's `PartialState` first.

    from accel_train.accelerate import partial_state

    partial_state()
    accelerator = accelerate.Accelerator()

Accelerate keeps one state in a process. All `PartialState` and `Accelerator` objects share it, and the first
one decides the device. Accelerate alone picks from a fixed list of vendors; `partial_state` makes the state
for any backend. It passes arguments of the constructor and sets the variable that Accelerate reads. The
variable stays set, so child processes and code that makes the state again (Transformers' `TrainingArguments`)
get the same device. If they could not, resetting the state raises an error. No function of Accelerate is
replaced. Importing this module does not import Accelerate.

`accel run` and `ACCEL_INTEGRATIONS=auto` call `prepare`: then the first `Accelerator()` makes that state, and
so does all that stands on Accelerate. `Accelerator(cpu=True)` still means the CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import accel_core
from accel_core.errors import IntegrationError, IntegrationMissingError
from accel_core.interface.devices import current_torch_accelerator
from accel_train.import_hook import ImportHook
from accel_train.launch.communication import communication_of
from accel_train.launch.launchers import adopt_launcher
from accel_train.launch.variables import LOCAL_RANK
from accel_train.moving import keep_parameters
from accel_train.private_names import (
    ACCELERATE_RANKS,
    TRANSFORMERS_LADDER,
    accelerate_asks_for_cpu,
    accelerate_state,
    set_accelerate_state,
)

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["partial_state", "prepare"]

#: Read by `PartialState`: the device of this process, before any rule of its own.
_DEVICE = "ACCELERATE_TORCH_DEVICE"


def partial_state(name: str | None = None, **kwargs: Any) -> Any:
    """Return Accelerate's `PartialState` for the backend `name`, or for the chosen accelerator.

    Call it before the first `accelerate.Accelerator()`. If a launcher started several ranks (`accel run`,
    torchrun), it selects this rank's device and starts the process group with the backend's communication
    library. `kwargs` go to `PartialState`, which passes `timeout` to `init_process_group`. If Accelerate
    already has a state for the same device, that state is returned unchanged. Sets `ACCELERATE_TORCH_DEVICE`
    for this process and its children, and calls `keep_parameters`.

    Raises `IntegrationMissingError` if Accelerate is not installed. Raises `IntegrationError` if Accelerate
    has already chosen another device, or cannot use this one. Also raises what `accel_core.accelerator(name)`
    raises.
    """
    accelerate = _accelerate()
    ours = (
        accel_core.get_accelerator() if name is None else accel_core.accelerator(name)
    )
    shared = accelerate_state(accelerate.PartialState)
    if shared:
        return _as_chosen(accelerate.PartialState(), ours)
    if isinstance(shared, _Waiting):
        shared.ours = ours
    else:
        set_accelerate_state(accelerate.PartialState, _State(ours))
    if ours.device().type == "cpu":
        state = accelerate.PartialState(
            cpu=True, **kwargs
        )  # by its own rules, which number the ranks' CPUs
        os.environ[_DEVICE] = "cpu"
        return _as_chosen(state, ours)
    adopt_launcher()
    is_rank = bool(os.environ.get(LOCAL_RANK.name, "").strip())
    index = _index_of_rank(ours) if is_rank else ours.current_device()
    ours.set_device(index)
    if is_rank:
        kwargs.setdefault("backend", communication_of(ours))
    device = str(ours.device(index))
    if (
        is_rank and ":" not in device
    ):  # a rank has one, Gaudi's; DistributedDataParallel is given its number
        device = f"{device}:{ours.current_device()}"
    os.environ[_DEVICE] = device
    try:
        state = accelerate.PartialState(**kwargs)
    except ValueError as error:
        if kwargs.get("backend") is None or kwargs["backend"] not in str(error):
            raise
        raise IntegrationError(
            f"Accelerate {accelerate.__version__} does not start {ours.name}'s ranks: {error}. Hide "
            "the devices of any vendor that it prefers. If there are none, this release is too old: "
            "pip install -U accelerate"
        ) from error
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
    if state.device.type == ours.device().type:
        keep_parameters(ours)
        return state
    shared = accelerate_state(state)
    if isinstance(shared, _State) and shared.ours is not ours:
        raise IntegrationError(
            f"partial_state() was called for {shared.ours.name}, and now for {ours.name}: "
            "a process has one of Accelerate's states. Name the same backend, or start another process"
        )
    raise IntegrationError(
        f"Accelerate has chosen {state.device}, and accel_core {ours.name} (device type "
        f"{ours.device().type}): the first to make Accelerate's state decides. Call "
        "accel_train.accelerate.partial_state() before accelerate.Accelerator(), "
        "accelerate.PartialState(), and libraries that make one"
    )


def _index_of_rank(ours: Accelerator) -> int:
    rank, count = LOCAL_RANK.read(os.environ), ours.device_count()
    if rank < count:
        return rank
    raise IntegrationError(
        f"rank {rank} on this host needs a device of its own, and sees {count} of {ours.name}. Accelerate "
        "gives the n-th rank of a host its n-th device: start at most as many ranks as devices, and "
        "do not show each rank one device (accel run --one-device-per-rank)"
    )


class _State(dict[str, Any]):
    """State shared by all of Accelerate's objects; it is not rebuilt for another device."""

    def __init__(self, ours: Accelerator) -> None:
        super().__init__()
        self.ours = ours

    def clear(self) -> None:
        """Forget the state, as `TrainingArguments` do. Raises `IntegrationError` where ours would be lost."""
        problem = self._would_be_lost()
        if problem:
            raise IntegrationError(
                f"Accelerate's state, which partial_state() made for {self.ours.name}, is being reset: "
                f"{problem}. With Transformers or TRL put AcceleratorArguments of "
                "accel_train.transformers before their class: "
                "class Arguments(AcceleratorArguments, TrainingArguments)"
            )
        super().clear()

    def _would_be_lost(self) -> str:
        import torch

        ours = self.ours.device().type
        is_rank = (
            torch.distributed.is_available() and torch.distributed.is_initialized()
        )
        if is_rank and ours not in ("cpu", *ACCELERATE_RANKS):
            return f"by its own rules each rank would train by itself, as they do not know {ours}"
        other = next(
            (
                kind
                for kind in TRANSFORMERS_LADDER
                if kind != ours and _is_available(torch, kind)
            ),
            None,
        )
        return f"by its own rules it would be made for {other}" if other else ""


class _Waiting(_State):
    """A state that is made when Accelerate first asks whether there is one, for the accelerator chosen then.

    Accelerate asks by comparing it with an empty dict. It is made again after a reset.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type] # nothing is chosen yet
        self._is_made = False
        #: What we have set.
        self._device: str | None = None

    def __eq__(self, other: object) -> bool:
        if not self and not self._is_made:
            self._is_made = True
            try:
                self._make()
            finally:
                self._is_made = False
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def clear(self) -> None:
        """Forget the state; the next who asks has it made."""
        dict.clear(self)

    def _make(self) -> None:
        is_ours = os.environ.get(_DEVICE) in (None, self._device)
        if is_ours and accelerate_asks_for_cpu(__name__):
            os.environ.pop(_DEVICE, None)  # it would count more than what is asked for
        elif is_ours:
            partial_state()
            self._device = os.environ[_DEVICE]


@contextlib.contextmanager
def _waiting(module: ModuleType) -> Iterator[None]:
    """Right after `accelerate.state` is executed: nobody has made a state."""
    yield
    set_accelerate_state(module.PartialState, _Waiting())


_hook = ImportHook({"accelerate.state": _waiting}, {})


def prepare() -> None:
    """Have Accelerate's state made for our accelerator when it is first needed; until then none is chosen."""
    _hook.install()


def _is_available(torch: Any, kind: str) -> bool:
    if kind == "tpu":  # asked so by Transformers too: its module cannot be
        current = current_torch_accelerator(torch)
        return (
            current is not None
            and current.type == kind
            and bool(torch.accelerator.is_available())
        )
    module = getattr(torch, kind, None)
    return module is not None and bool(module.is_available())
