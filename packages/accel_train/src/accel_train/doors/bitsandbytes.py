"""bitsandbytes: add the chosen accelerator's device type to its set of supported device types.

bitsandbytes calls the functions that entry points of group `bitsandbytes.backends` name, while it is
imported. Its kernels in plain torch work on any device type, but libraries such as Transformers check the set
before they call them. The accelerator is chosen when somebody first asks for the set, not at the import.
"""

from __future__ import annotations

import importlib

import accel_core
from accel_train.doors._warned import warned

__all__ = ["register"]


_SET = "supported_torch_devices"
_STEP = "See why: accel why"


def register() -> None:
    """Add the accelerator's device type to bitsandbytes' set of devices, at the first look at that set.

    An error becomes a warning, as it would stop the import of bitsandbytes.
    """
    with warned("bitsandbytes", _STEP):
        module = importlib.import_module("bitsandbytes")
        supported: set[str] = vars(module).pop(_SET)

        def resolve(name: str) -> set[str]:
            if name != _SET:
                raise AttributeError(
                    f"module 'bitsandbytes' has no attribute {name!r}",
                    name=name,
                    obj=module,
                )
            vars(module)[name] = supported
            with warned("bitsandbytes", _STEP):
                supported.add(accel_core.get_accelerator().device_type)
            return supported

        vars(module)["__getattr__"] = resolve
