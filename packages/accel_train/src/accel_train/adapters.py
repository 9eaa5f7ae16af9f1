"""Adapt accelerators with DeepSpeed's interface to accel_core's interface.

An entry point of the group `accel.adapters` names this module. Choosing an accelerator imports this module.
To keep that fast, the module imports the DeepSpeed integration only when it is needed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from accel_core import Accelerator, Backend

__all__ = ["adapt", "prepared"]


def adapt(foreign: object, backend: Backend | None) -> Accelerator | None:
    """Return an accel_core accelerator that adapts `foreign`, an accelerator with DeepSpeed's interface.

    `foreign` is an accelerator class or an instance of one. Returns `None` if `foreign` does not have
    DeepSpeed's interface. `backend` is the accelerator's declaration. If `backend` is `None`, a declaration
    is made from the values that `foreign` reports. Raises `InvalidAcceleratorError` if the class cannot be
    instantiated, or if `foreign` and `backend` have different device types.
    """
    from accel_train.deepspeed import adapter

    return adapter.adapt(foreign, backend)


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Make DeepSpeed use accel_core's accelerator if DeepSpeed is imported within a `with` block.

    The program need not call `accel_train.deepspeed.activate()`.
    """
    watcher: Any = _DeepSpeedImportWatcher()
    sys.meta_path.insert(0, watcher)
    try:
        yield
    finally:
        sys.meta_path.remove(watcher)


class _DeepSpeedImportWatcher:
    """An import finder that prepares the DeepSpeed integration right before DeepSpeed is imported.

    The finder itself finds no module.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Prepare the DeepSpeed integration if the imported module is `deepspeed`. Always return `None`."""
        if name == "deepspeed" and name not in sys.modules:
            from accel_train.deepspeed import prepare

            prepare()
