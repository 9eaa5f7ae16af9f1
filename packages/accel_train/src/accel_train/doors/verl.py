"""verl: the chosen accelerator as a platform named `accel`, with verl's FSDP engines for its device type.

verl imports the entry points of group `verl.plugins` while it is imported, but calls none: importing `loaded`
registers the platform. Our platform is used if none of verl's own reports a device. If `DS_ACCELERATOR` is
set, ours comes first, unless verl has a platform for that device or `VERL_PLATFORM` names one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from typing import Any

import accel_core
from accel_train.doors._warned import warned, warning

__all__ = ["Members"]

_STEP = (
    "See why: accel why; or name a platform of verl's own: export VERL_PLATFORM=nvidia"
)
#: Device types that verl 0.9.1 has platforms for (plugin/platform/platform_cuda.py:28, platform_npu.py:37).
_OWN = ("cuda", "npu")


def _same(name: str) -> Callable[..., Any]:
    return lambda self, *given, **named: getattr(self.ours, name)(*given, **named)


class Members:
    """verl's `PlatformBase` for any accelerator; verl's defaults stay."""

    current_device, device_count, set_device = map(
        _same, ("current_device", "device_count", "set_device")
    )
    synchronize, manual_seed, manual_seed_all = map(
        _same, ("synchronize", "manual_seed", "manual_seed_all")
    )
    empty_cache, is_available = map(_same, ("empty_cache", "is_available"))
    profiler_start = profiler_stop = cudart = lambda self: None

    @cached_property
    def ours(self) -> accel_core.Accelerator:
        """Return the accelerator that this process chose."""
        return accel_core.get_accelerator()

    device_name = property(lambda self: self.ours.device_type)

    @property
    def device_module(self) -> Any:
        """Return `torch.<device type>`, which verl calls often. Raises torch's error if torch has none."""
        return importlib.import_module("torch").get_device_module(self.ours.device_type)

    @property
    def vendor_name(self) -> str:
        """Return the backend's name. verl reads it to look up an engine: ours are registered by then."""
        fsdp = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
        add = fsdp.EngineRegistry.register
        for kind, made in (
            ("language", fsdp.FSDPEngineWithLMHead),
            ("value", fsdp.FSDPEngineWithValueHead),
        ):
            with suppress(AssertionError):  # verl's word for one that is registered
                add(
                    model_type=f"{kind}_model",
                    backend=["fsdp", "fsdp2"],
                    device=self.device_name,
                )(made)
        return self.ours.name

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Return whether an accelerator was chosen; an error becomes a warning (verl logs it at DEBUG)."""
        with warned("verl", _STEP):
            return self.ours.is_accelerator()
        return False

    def get_device_capability(
        self, device_index: int = 0
    ) -> tuple[int | None, int | None]:
        """Return the compute capability, major and minor; `None` for both if the vendor defines none."""
        return self.ours.device_properties(device_index).capability or (None, None)

    def set_allocator_settings(self, settings: str) -> Any:
        """Pass the settings to the vendor's allocator. Warns if it has no settings."""
        memory: Any = getattr(self.device_module, "memory", None)
        if not hasattr(memory, "_set_allocator_settings"):
            return warning(
                f"{self.ours.name} has no allocator settings: {settings} is ignored"
            )
        return memory._set_allocator_settings(settings)

    def communication_backend_name(self) -> Any:
        """Return the name of torch.distributed's backend; `staged` is registered by then."""
        launch = importlib.import_module("accel_train.launch.communication")
        return launch.communication_of(self.ours)

    def visible_devices_envvar(self) -> str:
        """Return the visible-devices variable that takes precedence; empty if the device has none."""
        return next(iter(self.ours.visible_devices_envs()), "")

    def nvtx_range(self, msg: str) -> AbstractContextManager[None]:
        """Return a context manager that marks a range in the vendor's profiler."""
        return self.ours.range(msg)

    def ray_resource_name(self) -> str:
        """Return Ray's name for the device, else the backend's name, for `ray start --resources`."""
        return self.ours.backend.granted.ray or self.ours.name

    def ray_noset_envvars(self) -> list[str]:
        """Return the variables that stop Ray from setting the visible-devices variable."""
        return list(filter(None, [self.ours.backend.granted.ray_noset]))

    def is_ipc_supported(self) -> Any:
        """Return whether tensors can be shared by handle: only on CUDA; else verl copies via the host."""
        return self.device_name == "cuda"


def _register() -> None:
    platforms = importlib.import_module("verl.plugin.platform")
    made: Any = type("AccelPlatform", (Members, platforms.PlatformBase), {})
    if made.__abstractmethods__:
        raise TypeError(
            f"this verl needs members that accel-train lacks: {', '.join(made.__abstractmethods__)}"
        )
    platforms.PlatformRegistry.register(platform="accel")(made)
    # Not by our settings' own reader, which is not loaded for a program that pins nothing.
    pinned = os.environ.get("DS_ACCELERATOR", "").strip(" ,")
    if pinned and not os.environ.get("VERL_PLATFORM") and not _is_verls(made()):
        platforms.set_platform(made())


def _is_verls(platform: Members) -> bool:
    from accel_core.errors import AccelError

    try:
        return platform.device_name in _OWN
    except (
        AccelError
    ):  # a pin that cannot be followed: ours raises it where verl does not hide it
        return False


def __getattr__(name: str) -> None:
    if name != "loaded":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with warned("verl", _STEP):
        _register()
