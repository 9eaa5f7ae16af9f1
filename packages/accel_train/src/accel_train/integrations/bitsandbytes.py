"""Add the chosen accelerator's device type to bitsandbytes' set of supported device types.

While bitsandbytes is imported, it calls the functions that entry points of the group `bitsandbytes.backends`
name. Its kernels in pure torch work on any device type, but libraries such as Transformers check the set of
supported types before they call these kernels. The accelerator is chosen when the set is first read, not on
import.
"""

from __future__ import annotations

import importlib

import accel_core
from accel_train.integrations._warned import errors_as_warning

__all__ = ["register"]


_DEVICES_ATTRIBUTE = "supported_torch_devices"
_NEXT_STEP = "Next step: run accel why"


def register() -> None:
    """Add the accelerator's device type to bitsandbytes' set of supported types when the set is first read.

    An error is reported as a warning, because it would otherwise stop the import of bitsandbytes.
    """
    with errors_as_warning("bitsandbytes", _NEXT_STEP):
        module = importlib.import_module("bitsandbytes")
        # Python calls a module's __getattr__ only for an attribute that the module does not have.
        supported: set[str] = vars(module).pop(_DEVICES_ATTRIBUTE)

        def module_getattr(name: str) -> set[str]:
            """Add the device type to bitsandbytes' set of supported types, and return the set."""
            if name != _DEVICES_ATTRIBUTE:
                raise AttributeError(
                    f"module 'bitsandbytes' has no attribute {name!r}",
                    name=name,
                    obj=module,
                )
            # From now on, the module itself has the attribute.
            vars(module)[name] = supported
            with errors_as_warning("bitsandbytes", _NEXT_STEP):
                supported.add(accel_core.get_accelerator().device_type)
            return supported

        vars(module)["__getattr__"] = module_getattr
