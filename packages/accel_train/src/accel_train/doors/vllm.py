"""vLLM: the members of a vendor's `Platform` that concern devices, made from the backend's declaration.

    from accel_train.doors.vllm import DeviceMembers
    from vllm.platforms.interface import Platform, PlatformEnum

    class AcmePlatform(DeviceMembers, Platform):
        backend = ACME  # the plugin's `accel_core.Backend`
        _enum = PlatformEnum.OOT

The vendor writes the rest: attention, quantization, workers, configuration. A member that the class itself
defines takes precedence. Importing this module imports neither vLLM nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import accel_core
from accel_core.errors import InvalidBackendError, UnsupportedError
from accel_train.launch.communication import communication_of
from accel_train.loading import can_pin_memory

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceMembers"]


class DeviceMembers:
    """The device members of vLLM's `Platform` for the backend `backend`; put it before `Platform`.

    Facts from the declaration are set when the class is made. The other members ask the accelerator, which
    starts at the first call.
    """

    backend: accel_core.Backend

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        declared = getattr(cls, "backend", None)
        if not isinstance(declared, accel_core.Backend):
            raise InvalidBackendError(
                f"{cls.__name__}.backend is {declared!r}, expected an accel_core.Backend"
            )
        facts: dict[str, Any] = {
            "device_name": declared.name,
            "device_type": declared.device_type,
            "dispatch_key": "PrivateUse1"
            if declared.in_torch.private_use1
            else declared.device_type.upper(),
            "ray_device_key": declared.granted.ray,
            "ray_noset_device_env_vars": list(
                filter(None, [declared.granted.ray_noset])
            ),
        }
        if declared.visibility.variables:
            facts["device_control_env_var"] = declared.visibility.variables[0]
        for name in facts.keys() - vars(cls).keys():
            setattr(cls, name, facts[name])

    @classmethod
    def _ours(cls) -> accel_core.Accelerator:
        return accel_core.accelerator(cls.backend.name)

    @classmethod
    def _fact(cls, name: str, device_id: int) -> Any:
        if (value := getattr(cls._ours().device_properties(device_id), name)) is None:
            raise UnsupportedError(
                f"{cls.backend.name} does not report the {name} of its devices"
            )
        return value

    dist_backend = property(lambda self: communication_of(self._ours()))
    simple_compile_backend = property(lambda self: self._ours().get_compile_backend())
    get_compile_backend = classmethod(lambda cls: cls._ours().get_compile_backend())
    supports_fp8 = classmethod(lambda cls: cls._ours().is_fp8_supported())
    is_pin_memory_available = classmethod(lambda cls: can_pin_memory(cls._ours()))
    manual_seed_all = classmethod(lambda cls, seed: cls._ours().manual_seed_all(seed))
    set_device = classmethod(lambda cls, device: cls._ours().set_device(device))
    get_device_name = classmethod(lambda cls, device_id=0: cls._fact("name", device_id))
    get_device_uuid = classmethod(lambda cls, device_id=0: cls._fact("uuid", device_id))
    num_compute_units = classmethod(
        lambda cls, device_id=0: cls._fact("multiprocessors", device_id)
    )
    get_device_total_memory = classmethod(
        lambda cls, device_id=0: cls._ours().total_memory(device_id)
    )

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the data types that models may use on this device, in vLLM's order of preference."""
        torch, held = importlib.import_module("torch"), self._ours().supported_dtypes()
        return [
            dtype
            for dtype in (torch.bfloat16, torch.float16, torch.float32)
            if dtype in held
        ]

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Raise `ValueError` for a data type that the device does not support."""
        if dtype not in (held := cls._ours().supported_dtypes()):
            raise ValueError(
                f"{cls.backend.name} does not support {dtype}, expected one of {', '.join(map(str, held))}"
            )

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        """Return CUDA's compute capability; `None` for other vendors, since vLLM expects CUDA's."""
        found = cls._ours().device_properties(device_id).capability
        if found is None or cls.backend.device_type != "cuda":
            return None
        return importlib.import_module("vllm.platforms.interface").DeviceCapability(
            *found
        )

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """Reset the memory peak, and return the new peak in bytes: the memory in use now."""
        cls._ours().reset_peak_memory_stats(device)
        return float(cls._ours().max_memory_allocated(device))

    @classmethod
    def is_integrated_gpu(cls, device_id: int = 0) -> bool:
        """Return whether the device shares the host's memory."""
        return bool(cls._ours().device_properties(device_id).integrated)

    @classmethod
    def get_all_gpu_pci_bus_ids(cls) -> dict[int, str]:
        """Return the PCI address of each device, by index."""
        return {
            index: cls._fact("pci_address", index)
            for index in range(cls._ours().device_count())
        }
