"""Provide the device members of a vendor's vLLM `Platform`, based on the backend's declaration.

    from accel_train.integrations.vllm import DeviceMembers
    from vllm.platforms.interface import Platform, PlatformEnum

    class AcmePlatform(DeviceMembers, Platform):
        backend = ACME  # the plugin's `accel_core.Backend`
        _enum = PlatformEnum.OOT

The vendor writes the other members: attention, quantization, workers and configuration. A member that the
vendor's class itself defines takes precedence. Importing this module imports neither vLLM nor torch.
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
    """A mixin with the device members of vLLM's `Platform`, to put before `Platform` in the base classes.

    `backend` is the declaration of the vendor's backend. The mixin sets attributes from this declaration when
    a subclass is created. The other members call the accelerator, which is created on the first call.
    """

    backend: accel_core.Backend

    def __init_subclass__(cls, **options: Any) -> None:
        """Set the attributes from `backend`, except those that the class itself defines.

        Raises `InvalidBackendError` if `backend` is not an `accel_core.Backend`.
        """
        super().__init_subclass__(**options)
        backend = getattr(cls, "backend", None)
        if not isinstance(backend, accel_core.Backend):
            raise InvalidBackendError(
                f"{cls.__name__}.backend is {backend!r}, expected an accel_core.Backend"
            )
        dispatch_key = backend.device_type.upper()
        if backend.torch_integration.private_use1:
            dispatch_key = "PrivateUse1"
        ray_variables = []
        if backend.request.ray_noset:
            ray_variables.append(backend.request.ray_noset)
        attributes: dict[str, Any] = {
            "device_name": backend.name,
            "device_type": backend.device_type,
            "dispatch_key": dispatch_key,
            "ray_device_key": backend.request.ray,
            "ray_noset_device_env_vars": ray_variables,
        }
        if backend.visibility.variables:
            attributes["device_control_env_var"] = backend.visibility.variables[0]
        for name, value in attributes.items():
            is_defined_by_vendor = name in vars(cls)
            if not is_defined_by_vendor:
                setattr(cls, name, value)

    @classmethod
    def _accelerator(cls) -> accel_core.Accelerator:
        return accel_core.accelerator(cls.backend.name)

    @classmethod
    def _device_property(cls, name: str, device_id: int) -> Any:
        """Return the property `name` of the device `device_id`.

        Raises `UnsupportedError` if the vendor does not report the property.
        """
        value = getattr(cls._accelerator().device_properties(device_id), name)
        if value is None:
            raise UnsupportedError(
                f"{cls.backend.name} does not report the {name} of its devices"
            )
        return value

    dist_backend = property(lambda self: communication_of(self._accelerator()))
    simple_compile_backend = property(
        lambda self: self._accelerator().get_compile_backend()
    )
    get_compile_backend = classmethod(
        lambda cls: cls._accelerator().get_compile_backend()
    )
    supports_fp8 = classmethod(lambda cls: cls._accelerator().is_fp8_supported())
    is_pin_memory_available = classmethod(
        lambda cls: can_pin_memory(cls._accelerator())
    )
    manual_seed_all = classmethod(
        lambda cls, seed: cls._accelerator().manual_seed_all(seed)
    )
    set_device = classmethod(lambda cls, device: cls._accelerator().set_device(device))
    get_device_name = classmethod(
        lambda cls, device_id=0: cls._device_property("name", device_id)
    )
    get_device_uuid = classmethod(
        lambda cls, device_id=0: cls._device_property("uuid", device_id)
    )
    num_compute_units = classmethod(
        lambda cls, device_id=0: cls._device_property("multiprocessors", device_id)
    )
    get_device_total_memory = classmethod(
        lambda cls, device_id=0: cls._accelerator().total_memory(device_id)
    )

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the data types that models may use on this device, in vLLM's order of preference."""
        import torch

        supported = self._accelerator().supported_dtypes()
        preferred = (torch.bfloat16, torch.float16, torch.float32)
        return [dtype for dtype in preferred if dtype in supported]

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Raise `ValueError` if the device does not support the data type."""
        supported = cls._accelerator().supported_dtypes()
        if dtype not in supported:
            expected = ", ".join(str(supported_dtype) for supported_dtype in supported)
            raise ValueError(
                f"{cls.backend.name} does not support {dtype}, expected one of {expected}"
            )

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        """Return the compute capability of a CUDA device, or `None` for other vendors' devices.

        vLLM interprets every compute capability as that of a CUDA device.
        """
        capability = cls._accelerator().device_properties(device_id).capability
        if capability is None or cls.backend.device_type != "cuda":
            return None
        vllm_interface = importlib.import_module("vllm.platforms.interface")
        return vllm_interface.DeviceCapability(*capability)

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """Return the memory allocated on the device, in bytes.

        Also resets the device's peak memory to this value.
        """
        # After the reset, the peak is the memory that is allocated now.
        cls._accelerator().reset_peak_memory_stats(device)
        return float(cls._accelerator().max_memory_allocated(device))

    @classmethod
    def is_integrated_gpu(cls, device_id: int = 0) -> bool:
        """Return whether the device shares memory with the host."""
        return bool(cls._accelerator().device_properties(device_id).integrated)

    @classmethod
    def get_all_gpu_pci_bus_ids(cls) -> dict[int, str]:
        """Return the PCI address of each device, by the device's index."""
        return {
            index: cls._device_property("pci_address", index)
            for index in range(cls._accelerator().device_count())
        }
