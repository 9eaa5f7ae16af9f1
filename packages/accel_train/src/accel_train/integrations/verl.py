"""Provide a platform named `accel` for verl, which uses the chosen accelerator and verl's FSDP engines.

verl loads the entry points of the group `verl.plugins` while it is imported, but does not call the loaded
objects. Therefore importing the name `loaded` from this module registers the platform. verl uses the platform
if none of verl's own platforms reports a device. If `DS_ACCELERATOR` is set, the platform takes precedence,
unless verl has a platform for the device or `VERL_PLATFORM` is set.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any

import accel_core
from accel_train.integrations._warned import errors_as_warning, warn_user

__all__ = ["Members"]

_NEXT_STEP = (
    "Next step: run accel why to see the reason, or select one of verl's own platforms: "
    "export VERL_PLATFORM=nvidia"
)
#: The variable that stops Ray from setting CUDA_VISIBLE_DEVICES for its resource `GPU`
#: (2.60.0, ray/_private/accelerators/nvidia_gpu.py).
_NOSET_OF_GPU = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
#: Device types for which verl 0.9.1 has platforms (plugin/platform/platform_cuda.py:28, platform_npu.py:37).
_NATIVE_DEVICE_TYPES = ("cuda", "npu")


def _delegated_method(name: str) -> Callable[..., Any]:
    """Return a method that calls the accelerator's method `name` with the same arguments."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self.accelerator, name)(*args, **options)

    return method


class Members:
    """The members of verl's `PlatformBase` that accel-train's platform overrides."""

    current_device = _delegated_method("current_device")
    device_count = _delegated_method("device_count")
    set_device = _delegated_method("set_device")
    synchronize = _delegated_method("synchronize")
    manual_seed = _delegated_method("manual_seed")
    manual_seed_all = _delegated_method("manual_seed_all")
    empty_cache = _delegated_method("empty_cache")
    is_available = _delegated_method("is_available")
    profiler_start = profiler_stop = cudart = lambda self: None

    @cached_property
    def accelerator(self) -> accel_core.Accelerator:
        """Return this process's accelerator, after choosing one if necessary."""
        return accel_core.get_accelerator()

    device_name = property(lambda self: self.accelerator.device_type)

    @property
    def device_module(self) -> Any:
        """Return torch's module for the device type, such as `torch.cuda`.

        Raises torch's error if torch has no such module.
        """
        torch = importlib.import_module("torch")
        return torch.get_device_module(self.accelerator.device_type)

    @property
    def vendor_name(self) -> str:
        """Register verl's FSDP engines for the device type, and return the backend's name."""
        # verl reads this property just before it looks up an engine, so the engines are registered here.
        fsdp = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
        engines = {
            "language_model": fsdp.FSDPEngineWithLMHead,
            "value_model": fsdp.FSDPEngineWithValueHead,
        }
        for model_type, engine in engines.items():
            # verl raises AssertionError if the engine is registered already.
            with suppress(AssertionError):
                register_engine = fsdp.EngineRegistry.register(
                    model_type=model_type,
                    backend=["fsdp", "fsdp2"],
                    device=self.device_name,
                )
                register_engine(engine)
        return self.accelerator.name

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return whether an accelerator other than the CPU was chosen.

        Errors are reported as warnings, because verl logs errors from this method only at the DEBUG level.
        """
        with errors_as_warning("verl", _NEXT_STEP):
            return self.accelerator.is_accelerator()
        return False  # A warning has reported the error.

    def get_device_capability(
        self, device_index: int = 0
    ) -> tuple[int | None, int | None]:
        """Return the major and minor compute capability, or `(None, None)` if the vendor defines none."""
        capability = self.accelerator.device_properties(device_index).capability
        if capability is None:
            return None, None
        return capability

    def set_allocator_settings(self, settings: str) -> Any:
        """Pass `settings` to the vendor's memory allocator, or warn if the allocator accepts no settings."""
        memory: Any = getattr(self.device_module, "memory", None)
        if not hasattr(memory, "_set_allocator_settings"):
            warn_user(
                f"the memory allocator of {self.accelerator.name} accepts no settings, so "
                f"{settings} is ignored"
            )
            return None
        return memory._set_allocator_settings(settings)

    def communication_backend_name(self) -> Any:
        """Return the name of the communication backend.

        If the backend is `staged`, it is first registered with torch.
        """
        communication = importlib.import_module("accel_train.launch.communication")
        return communication.communication_of(self.accelerator)

    def visible_devices_envvar(self) -> str:
        """Return the name of the environment variable that selects the visible devices.

        If the vendor has several such variables, the result is the one that takes precedence. If the vendor
        has none, the result is an empty string.
        """
        variables = self.accelerator.visible_devices_envs()
        if not variables:
            return ""
        return variables[0]  # The first variable takes precedence.

    def nvtx_range(self, msg: str) -> AbstractContextManager[None]:
        """Return a context manager that marks a range in the vendor's profiler."""
        return self.accelerator.range(msg)

    def ray_resource_name(self) -> str:
        """Return Ray's resource name for the device, or `"GPU"` if Ray does not support the device.

        If the name is `"GPU"`, start Ray with the number of devices, such as `ray start --num-gpus 8`. Before
        it starts PPO training, verl counts only Ray's resources `GPU` and `NPU` (0.9.1,
        single_controller/ray/base.py:230).
        """
        return self.accelerator.backend.request.ray or "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Return the environment variables that stop Ray from setting the visible-devices variable."""
        request = self.accelerator.backend.request
        if not request.ray:
            return [_NOSET_OF_GPU]
        if request.ray_noset:
            return [request.ray_noset]
        return []

    def is_ipc_supported(self) -> Any:
        """Return whether processes can share tensors through memory handles, which only CUDA supports.

        On other devices, verl copies the tensors through host memory.
        """
        return self.device_name == "cuda"


def _register() -> None:
    """Register the platform with verl.

    If `DS_ACCELERATOR` names a device that verl does not support, also select the platform. Raises
    `TypeError` if this release of verl requires members that the platform lacks.
    """
    platforms = importlib.import_module("verl.plugin.platform")
    platform_class: Any = type("AccelPlatform", (Members, platforms.PlatformBase), {})
    missing_members = platform_class.__abstractmethods__
    if missing_members:
        raise TypeError(
            "the installed verl requires platform members that accel-train's platform lacks: "
            f"{', '.join(missing_members)}"
        )
    register_as_accel = platforms.PlatformRegistry.register(platform="accel")
    register_as_accel(platform_class)
    # Read here, so that accel_core's settings are not loaded in a program without a pin.
    pin = os.environ.get("DS_ACCELERATOR", "").strip(" ,")
    is_platform_named = bool(os.environ.get("VERL_PLATFORM"))
    if not pin or is_platform_named:
        return
    if not _is_native_to_verl(platform_class()):
        platforms.set_platform(platform_class())


def _is_native_to_verl(platform: Members) -> bool:
    """Return whether verl itself has a platform for the device.

    Returns False if choosing an accelerator fails. The platform then raises the error later, where verl does
    not hide it.
    """
    from accel_core.errors import AccelError

    try:
        return platform.device_name in _NATIVE_DEVICE_TYPES
    except AccelError:
        # The platform raises the error again later, where verl does not hide it.
        return False


def __getattr__(name: str) -> None:
    """Register the platform when verl imports the name `loaded`. An error becomes a warning."""
    if name != "loaded":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # verl imports this name but does not call it, so the import itself registers the platform.
    with errors_as_warning("verl", _NEXT_STEP):
        _register()
