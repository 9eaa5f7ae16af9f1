"""Adapt accelerators of DeepSpeed's interface to accel_core's interface.

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
    """Return an accelerator that adapts `foreign`, which is a class of DeepSpeed's interface or its instance.

    Returns `None` if `foreign` is neither. `backend` is the declaration of the accelerator. If `backend` is
    `None`, a declaration is made from the values that `foreign` reports. Raises `InvalidAcceleratorError` if
    no instance can be created, or if `foreign` is for a different device type than `backend`.
    """
    from accel_train.deepspeed import adapter

    return adapter.adapt(foreign, backend)


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Return a context manager that prepares DeepSpeed if it is imported within the block.

    The imported DeepSpeed then uses accel_core's accelerator.
    """
    finder: Any = _DeepSpeedImportFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _DeepSpeedImportFinder:
    """A finder that finds no module. It prepares the integration just before `deepspeed` is imported."""

    def find_spec(self, name: str, *_: object) -> None:
        """Prepare the DeepSpeed integration if `name` is `deepspeed`. Always return `None`."""
        if name == "deepspeed" and name not in sys.modules:
            from accel_train.deepspeed import prepare

            prepare()
