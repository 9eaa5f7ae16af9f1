"""Make Hugging Face Accelerate use the accelerator that accel_core chose.

    from accel_train.accelerate import partial_state

    partial_state()
    accelerator = accelerate.Accelerator()

Accelerate keeps one state per process. All `PartialState` and `Accelerator` objects share this state, and the
first such object selects the device. Without this module, Accelerate chooses from a fixed list of vendors.
`partial_state` creates the state for any backend, with constructor arguments and the environment variable
that Accelerate reads. The variable stays set. Child processes therefore get the same device, as does code
that creates the state again (Transformers' `TrainingArguments`). If Accelerate would choose a different
device after a reset of the state, the reset raises an error. None of Accelerate's functions are replaced.
Importing this module does not import Accelerate.

`accel run` and `ACCEL_INTEGRATIONS=auto` call `prepare`. The first `Accelerator()` then creates the state for
the chosen accelerator, even if a library creates that object. `Accelerator(cpu=True)` still selects the CPU.
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
from accel_train.launch.launchers import set_torchrun_variables
from accel_train.launch.variables import LOCAL_RANK
from accel_train.moving import keep_parameters
from accel_train.private_names import (
    ACCELERATE_RANK_TYPES,
    TRANSFORMERS_DEVICE_ORDER,
    accelerate_requests_cpu,
    accelerate_state,
    set_accelerate_state,
)

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["partial_state", "prepare"]

#: The variable from which `PartialState` takes this process's device, before its own rules.
_DEVICE_VARIABLE = "ACCELERATE_TORCH_DEVICE"


def partial_state(name: str | None = None, **kwargs: Any) -> Any:
    """Return Accelerate's `PartialState` for the backend named `name`, or for the chosen accelerator.

    Call this function before the first `accelerate.Accelerator()`. In a rank started by a launcher (`accel
    run` or torchrun), the function also selects the rank's device and starts the process group with the
    backend's communication library. The keyword arguments are passed to `PartialState`, which passes
    `timeout` to `init_process_group`. If Accelerate already has a state for the same device, that state is
    returned unchanged. The function sets the variable `ACCELERATE_TORCH_DEVICE` for this process and its
    child processes. The function also makes `module.to()` keep the parameter objects on every device.

    Raises `IntegrationMissingError` if Accelerate is not installed. Raises `IntegrationError` if Accelerate
    has already chosen a different device, or cannot use the accelerator's device. Also raises the same errors
    as `accel_core.accelerator(name)`.
    """
    accelerate = _import_accelerate()
    if name is None:
        accelerator = accel_core.get_accelerator()
    else:
        accelerator = accel_core.accelerator(name)
    shared_state = accelerate_state(accelerate.PartialState)
    if shared_state:  # Accelerate has created its state already.
        return _finish_state(accelerate.PartialState(), accelerator)
    if isinstance(shared_state, _StateOnDemand):
        shared_state.accelerator = accelerator
    else:
        set_accelerate_state(accelerate.PartialState, _FixedState(accelerator))
    if accelerator.device().type == "cpu":
        # On the CPU, Accelerate sets each rank's number itself.
        state = accelerate.PartialState(cpu=True, **kwargs)
        os.environ[_DEVICE_VARIABLE] = "cpu"
        return _finish_state(state, accelerator)
    set_torchrun_variables()
    is_rank = bool(os.environ.get(LOCAL_RANK.name, "").strip())
    device = _select_device(accelerator, is_rank=is_rank)
    if is_rank:
        kwargs.setdefault("backend", communication_of(accelerator))
    os.environ[_DEVICE_VARIABLE] = device
    state = _create_state(accelerate, accelerator, kwargs)
    distributed_types = accelerate.DistributedType
    if is_rank and state.distributed_type == distributed_types.NO:
        # Accelerate has a type for each vendor that it supports. MULTI_GPU is right for any other vendor,
        # because it only means one process per device with torch.distributed.
        vendor_type = f"MULTI_{accelerator.device().type.upper()}"
        state.distributed_type = getattr(
            distributed_types, vendor_type, distributed_types.MULTI_GPU
        )
    return _finish_state(state, accelerator)


def _select_device(accelerator: Accelerator, *, is_rank: bool) -> str:
    """Select this process's device and return the device's name in Accelerate's format, such as `npu:1`.

    With `is_rank`, this is the device with the index `LOCAL_RANK`. Otherwise, it is the current device.
    """
    if is_rank:
        index = _device_index_of_rank(accelerator)
    else:
        index = accelerator.current_device()
    accelerator.set_device(index)
    device = str(accelerator.device(index))
    has_index = ":" in device
    if is_rank and not has_index:
        # A Gaudi device has no index in torch. DistributedDataParallel needs an index.
        device = f"{device}:{accelerator.current_device()}"
    return device


def _create_state(
    accelerate: Any, accelerator: Accelerator, options: dict[str, Any]
) -> Any:
    """Return a new `PartialState`, created with the keyword arguments `options`.

    Raises `IntegrationError` if Accelerate cannot start a process group with `options["backend"]`.
    """
    try:
        return accelerate.PartialState(**options)
    except ValueError as error:
        # Accelerate's message contains the name of a communication backend that it does not support.
        backend = options.get("backend")
        is_about_backend = backend is not None and backend in str(error)
        if not is_about_backend:
            raise
        raise IntegrationError(
            f"Accelerate {accelerate.__version__} cannot start ranks on {accelerator.name}: {error}. Next "
            "step: hide the devices of other vendors, because Accelerate chooses these first. If this host "
            "has no such devices, update Accelerate: pip install -U accelerate"
        ) from error


def _import_accelerate() -> Any:
    """Import and return Accelerate. Raises `IntegrationMissingError` if it is not installed."""
    try:
        return importlib.import_module("accelerate")
    except ModuleNotFoundError as error:
        if error.name != "accelerate":
            raise
        raise IntegrationMissingError(
            "Hugging Face Accelerate is not installed in this environment: pip install accelerate"
        ) from None


def _finish_state(state: Any, accelerator: Accelerator) -> Any:
    """Check Accelerate's `state`, prepare torch for moving modules to the device, and return the state.

    Raises `IntegrationError` if the state does not have the accelerator's device type.
    """
    _require_same_device(state, accelerator)
    keep_parameters(accelerator)
    return state


def _require_same_device(state: Any, accelerator: Accelerator) -> None:
    """Raise `IntegrationError` if Accelerate's `state` does not have the device type of `accelerator`."""
    if state.device.type == accelerator.device().type:
        return
    shared_state = accelerate_state(state)
    if isinstance(shared_state, _FixedState):
        earlier_accelerator = shared_state.accelerator
        if earlier_accelerator is not accelerator:
            raise IntegrationError(
                f"partial_state() was called for {earlier_accelerator.name} first, and now for "
                f"{accelerator.name}, but a process can have only one Accelerate state. Next step: name the "
                "same backend in both calls, or start another process."
            )
    raise IntegrationError(
        f"Accelerate has chosen {state.device}, but accel-core has chosen {accelerator.name} (device type "
        f"{accelerator.device().type}). Accelerate's state was created before accel-train could set the "
        "device. Next step: call accel_train.accelerate.partial_state() before the first "
        "accelerate.Accelerator() or accelerate.PartialState(), including those that libraries create."
    )


def _device_index_of_rank(accelerator: Accelerator) -> int:
    """Return the index of this rank's device. Raises `IntegrationError` if the rank has no device."""
    rank = LOCAL_RANK.read(os.environ)
    count = accelerator.device_count()
    if rank >= count:
        raise IntegrationError(
            f"rank {rank} of this host needs the {accelerator.name} device with index {rank}, because "
            "Accelerate gives each rank of a host the device with the rank's number. The number of devices "
            f"that this rank can use is only {count}. Next step: start at most as many ranks as devices, and "
            "do not limit each rank to one device (accel run --one-device-per-rank)."
        )
    return rank


class _FixedState(dict[str, Any]):
    """Accelerate's shared state for one accelerator. A reset that would change the device raises an error."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__()
        self.accelerator = accelerator

    def clear(self) -> None:
        """Reset Accelerate's shared state, as Transformers' `TrainingArguments` does.

        Raises `IntegrationError` if, after the reset, Accelerate would choose a different device or each rank
        would train alone.
        """
        problem = self._reset_problem()
        if problem:
            raise IntegrationError(
                f"Accelerate's state, which partial_state() created for {self.accelerator.name}, cannot be "
                f"reset, because after the reset {problem}. Next step, with Transformers or TRL: put "
                "AcceleratorArguments of accel_train.transformers before TrainingArguments: "
                "class Arguments(AcceleratorArguments, TrainingArguments)"
            )
        super().clear()

    def _reset_problem(self) -> str:
        """Return a clause that states what would go wrong after a reset of the state.

        Returns an empty string if nothing would go wrong.
        """
        import torch

        device_type = self.accelerator.device().type
        distributed = torch.distributed
        is_rank = distributed.is_available() and distributed.is_initialized()
        types_with_ranks = ("cpu", *ACCELERATE_RANK_TYPES)
        if is_rank and device_type not in types_with_ranks:
            return f"each rank would train alone, because Accelerate does not support {device_type}"
        for other_type in TRANSFORMERS_DEVICE_ORDER:
            if other_type != device_type and _is_device_available(torch, other_type):
                return f"Accelerate would choose the device {other_type}"
        return ""


class _StateOnDemand(_FixedState):
    """A shared state that is filled for the chosen accelerator when Accelerate checks whether it is empty.

    For this check, Accelerate compares the state with an empty dict. The first check after a reset fills the
    state again.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type] # nothing is chosen yet
        self._is_being_filled = False
        #: The value that this object has set for `ACCELERATE_TORCH_DEVICE`, or `None` if it has set none.
        self._device_variable_value: str | None = None

    def __eq__(self, other: object) -> bool:
        is_empty = len(self) == 0
        # While the state is filled, Accelerate makes the same check.
        if is_empty and not self._is_being_filled:
            self._is_being_filled = True
            try:
                self._fill()
            finally:
                self._is_being_filled = False
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def clear(self) -> None:
        """Empty Accelerate's shared state.

        The next comparison of the state with an empty dict fills it again.
        """
        dict.clear(self)

    def _fill(self) -> None:
        """Fill the state for the chosen accelerator, unless the program itself has chosen a device."""
        variable_value = os.environ.get(_DEVICE_VARIABLE)
        own_values = (None, self._device_variable_value)
        is_set_by_program = variable_value not in own_values
        if is_set_by_program:
            return
        if accelerate_requests_cpu(__name__):
            # The variable would take precedence over the program's `cpu=True`.
            os.environ.pop(_DEVICE_VARIABLE, None)
        else:
            partial_state()
            self._device_variable_value = os.environ[_DEVICE_VARIABLE]


@contextlib.contextmanager
def _set_state_on_demand(module: ModuleType) -> Iterator[None]:
    """Set a `_StateOnDemand` right after `accelerate.state` is imported, before any state exists."""
    yield
    set_accelerate_state(module.PartialState, _StateOnDemand())


_hook = ImportHook(contexts={"accelerate.state": _set_state_on_demand}, callbacks={})


def prepare() -> None:
    """Install an import hook that makes Accelerate create its state for the chosen accelerator.

    No accelerator is chosen until Accelerate needs this state.
    """
    _hook.install()


def _is_device_available(torch: Any, device_type: str) -> bool:
    """Return whether torch has a device of the type `device_type`."""
    # torch.tpu has no `is_available`. For TPUs, Transformers makes the same check as the code here.
    if device_type == "tpu":
        current = current_torch_accelerator(torch)
        if current is None or current.type != device_type:
            return False
        return bool(torch.accelerator.is_available())
    module = getattr(torch, device_type, None)
    return module is not None and bool(module.is_available())
