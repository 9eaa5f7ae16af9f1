"""Give verl the chosen accelerator as a platform named `accel`, with verl's FSDP engines for its device.

verl imports the entry points of group `verl.plugins` while it is imported, but calls none: importing `loaded`
registers the platform. Our platform is used if none of verl's own reports a device. If `DS_ACCELERATOR` is
set, accelerator comes first, unless verl has a platform for that device or `VERL_PLATFORM` names one.
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
    "See accel why, or name one of verl's platforms: export VERL_PLATFORM=nvidia"
)
#: Device types that verl 0.9.1 has platforms for (plugin/platform/platform_cuda.py:28, platform_npu.py:37).
_NATIVE_DEVICE_TYPES = ("cuda", "npu")


def _delegated_method(name: str) -> Callable[..., Any]:
    """Return a method that calls the accelerator's method `name` with the same arguments."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self.accelerator, name)(*args, **options)

    return method


class Members:
    """verl's `PlatformBase` for any accelerator; verl's defaults stay."""

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
        """Return the accelerator that this process chose."""
        return accel_core.get_accelerator()

    device_name = property(lambda self: self.accelerator.device_type)

    @property
    def device_module(self) -> Any:
        """Return `torch.<device type>`, which verl calls often. Raises torch's error if torch has none."""
        return importlib.import_module("torch").get_device_module(
            self.accelerator.device_type
        )

    @property
    def vendor_name(self) -> str:
        """Register verl's FSDP engines for the device type, and return the backend's name.

        verl reads this name when it is about to look up an engine.
        """
        fsdp = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
        engines = {
            "language_model": fsdp.FSDPEngineWithLMHead,
            "value_model": fsdp.FSDPEngineWithValueHead,
        }
        for model_type, engine in engines.items():
            with suppress(AssertionError):  # raised if the engine is registered already
                register_engine = fsdp.EngineRegistry.register(
                    model_type=model_type,
                    backend=["fsdp", "fsdp2"],
                    device=self.device_name,
                )
                register_engine(engine)
        return self.accelerator.name

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return whether an accelerator was chosen; an error becomes a warning (verl logs it at DEBUG)."""
        with errors_as_warning("verl", _NEXT_STEP):
            return self.accelerator.is_accelerator()
        return False

    def get_device_capability(
        self, device_index: int = 0
    ) -> tuple[int | None, int | None]:
        """Return the compute capability, major and minor; `None` for both if the vendor defines none."""
        return self.accelerator.device_properties(device_index).capability or (
            None,
            None,
        )

    def set_allocator_settings(self, settings: str) -> Any:
        """Pass the settings to the vendor's allocator; warn if that allocator accepts none."""
        memory: Any = getattr(self.device_module, "memory", None)
        if not hasattr(memory, "_set_allocator_settings"):
            return warn_user(
                f"{self.accelerator.name} has no allocator settings: {settings} is ignored"
            )
        return memory._set_allocator_settings(settings)

    def communication_backend_name(self) -> Any:
        """Return the name of torch.distributed's backend; `staged` is registered by then."""
        launch = importlib.import_module("accel_train.launch.communication")
        return launch.communication_of(self.accelerator)

    def visible_devices_envvar(self) -> str:
        """Return the visible-devices variable that takes precedence; empty if the device has none."""
        return next(iter(self.accelerator.visible_devices_envs()), "")

    def nvtx_range(self, msg: str) -> AbstractContextManager[None]:
        """Return a context manager that marks a range in the vendor's profiler."""
        return self.accelerator.range(msg)

    def ray_resource_name(self) -> str:
        """Return Ray's name for the device, else the backend's name, for `ray start --resources`."""
        return self.accelerator.backend.request.ray or self.accelerator.name

    def ray_noset_envvars(self) -> list[str]:
        """Return the variables that stop Ray from setting the visible-devices variable."""
        return list(filter(None, [self.accelerator.backend.request.ray_noset]))

    def is_ipc_supported(self) -> Any:
        """Return whether tensors can be shared by handle: only on CUDA; else verl copies via the host."""
        return self.device_name == "cuda"


def _register() -> None:
    """Register the platform with verl, and select it if a pin names a device that verl does not support.

    Raises `TypeError` if this release of verl requires members that the platform lacks.
    """
    platforms = importlib.import_module("verl.plugin.platform")
    platform_class: Any = type("AccelPlatform", (Members, platforms.PlatformBase), {})
    missing_members = platform_class.__abstractmethods__
    if missing_members:
        raise TypeError(
            "the installed verl needs platform members that accel-train does not have: "
            f"{', '.join(missing_members)}"
        )
    platforms.PlatformRegistry.register(platform="accel")(platform_class)
    # Read here: accel_core's settings are not loaded for a program that pins nothing.
    pin = os.environ.get("DS_ACCELERATOR", "").strip(" ,")
    if not pin or os.environ.get("VERL_PLATFORM"):
        return
    if not _is_native_to_verl(platform_class()):
        platforms.set_platform(platform_class())


def _is_native_to_verl(platform: Members) -> bool:
    """Return whether verl has a platform of its own for the device; False if the choice fails.

    The platform then raises the error of the choice later, where verl does not hide it.
    """
    from accel_core.errors import AccelError

    try:
        return platform.device_name in _NATIVE_DEVICE_TYPES
    except AccelError:
        return False


def __getattr__(name: str) -> None:
    """Register the platform when verl imports `loaded`; an error becomes a warning."""
    if name != "loaded":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with errors_as_warning("verl", _NEXT_STEP):
        _register()
