"""What runs at every `import torch`, as an entry point of torch's group `torch.backends`.

An activation (`accel_core.integrations.deepspeed.activate()`) must hold in child processes too: spawned
workers and launched ranks are new interpreters that share nothing but environment variables. This module
is how they hear of it. It does nothing unless the variable is set, and it never raises: torch refuses to
import when an entry point of this group fails.
"""

from __future__ import annotations

import importlib
import os
import warnings

__all__ = ["VARIABLE", "autoload"]

#: As in `accel_core.settings`, which is imported only where it is set.
VARIABLE = "ACCEL_INTEGRATIONS"


def autoload() -> None:
    """Prepare the integrations that `ACCEL_INTEGRATIONS` names; a failure becomes a warning.

    Preparing imports neither the framework nor a vendor, and chooses nothing.
    """
    # Read here first: nearly every process that imports torch is none of our business.
    if not os.environ.get(VARIABLE):
        return
    try:
        # By name: this module lies below what it starts, so that `torch_import` can call it.
        settings = importlib.import_module("accel_core.settings")
        for name in settings.ACCEL_INTEGRATIONS.read(os.environ):
            importlib.import_module(f"accel_core.integrations.{name}").prepare()
    except Exception as error:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # where warnings are errors this must not become one
            warnings.warn(
                f"{VARIABLE}={os.environ[VARIABLE]!r} cannot be followed: "
                f"{type(error).__name__}: {error}. Correct it, or unset {VARIABLE}.",
                RuntimeWarning,
                stacklevel=2,
            )
