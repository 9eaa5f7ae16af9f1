"""verl's platform for the simulated device, member by member: what `test_verl` compares."""

from __future__ import annotations

import inspect
import logging
import os
from typing import Any


def platform() -> dict[str, Any]:
    """Every member of the contract, called."""
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry, get_platform

    ours = get_platform()
    with ours.nvtx_range("step"):
        pass
    ours.set_device(1)
    answers = {
        "registered": PlatformRegistry.registered_names(),
        "abstract": len(PlatformBase.__abstractmethods__),
        "members": sorted(n for n in vars(PlatformBase) if not n.startswith("_")),
        "class": type(ours).__name__,
        "device_name": ours.device_name,
        "device_module": ours.device_module is torch.acme,
        "current_device": ours.current_device(),
        "device_count": ours.device_count(),
        "available": [ours.is_available(), ours.is_platform_available(use_smi_check=True)],
        "capability": ours.get_device_capability(),
        "communication": ours.communication_backend_name(),
        "ray": [ours.ray_resource_name(), ours.ray_noset_envvars(), ours.ray_resource_options(2)],
        "visible": ours.visible_devices_envvar(),
        "uuid": ours.get_device_uuid(0),
        "none": [ours.cudart(), ours.profiler_start(), ours.profiler_stop(), ours.empty_cache()],
        "ipc": ours.is_ipc_supported(),
    }
    ours.manual_seed(3)
    first = torch.rand(2, device="acme").tolist()
    ours.manual_seed_all(3)
    ours.synchronize()
    answers["seeded"] = torch.rand(2, device="acme").tolist() == first
    unlike = [
        name
        for name in PlatformBase.__abstractmethods__
        if callable(theirs := getattr(PlatformBase, name))
        and not _takes_what(getattr(ours, name), inspect.signature(theirs))
    ]
    return {**answers, "unlike": unlike}


def _takes_what(member: Any, theirs: inspect.Signature) -> bool:
    """Whether our member can be called as verl's is declared."""
    names = [name for name in theirs.parameters if name != "self"]
    inspect.signature(member).bind(*names)
    return True


def engine() -> str:
    """The class that verl's registry has for this device."""
    from verl.workers.engine import EngineRegistry

    found = [EngineRegistry.get_engine_cls(kind, "fsdp2") for kind in ("language_model", "value_model")]
    return [cls.__name__ for cls in found]  # type: ignore[return-value]


def failing() -> list[str]:
    """The warnings of a verl whose choice fails; its own log is at INFO, above that error."""
    import warnings

    logging.basicConfig(level=logging.INFO)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        import verl.plugin.platform as found

        name = ""
        try:
            name = found.get_platform().device_name
        except Exception as error:
            name = f"{type(error).__name__}: {error}"
    said = [str(one.message) for one in seen if "accel's accelerator" in str(one.message)]
    return [name, *said, os.environ.get("VERL_PLATFORM", "")]


def contract_changed() -> list[str]:
    """A verl with a member that ours lacks: the warning names it."""
    import abc
    import warnings

    from verl.plugin.platform import PlatformBase, PlatformRegistry

    import accel_train.doors.verl as door

    PlatformBase.newcomer = abc.abstractmethod(lambda self: None)
    abc.update_abstractmethods(PlatformBase)
    PlatformRegistry._platforms.pop("accel")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        door.loaded  # noqa: B018 - as an entry point is loaded
    return [str(one.message) for one in seen if "accel" in str(one.message)] + list(
        PlatformRegistry._platforms
    )
