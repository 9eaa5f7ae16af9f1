"""Adapt accelerators of DeepSpeed's interface to accel_core's; entry points of group `accel.adapters`.

Choosing an accelerator imports this module, so it imports DeepSpeed's integration only when that is needed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from accel_core import Accelerator, Backend

__all__ = ["adapt", "prepared"]


def adapt(foreign: object, backend: Backend | None) -> Accelerator | None:
    """Return an accelerator for `foreign`, an object or class of DeepSpeed's interface; else `None`."""
    from accel_train.deepspeed import adapter

    return adapter.adapt(foreign, backend)


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Return a context manager in which importing DeepSpeed gives it accel_core's accelerator."""
    finder: Any = _DeepSpeedWatcher()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _DeepSpeedWatcher:
    """A finder that finds nothing, and prepares the integration when `deepspeed` is about to be imported."""

    def find_spec(self, name: str, *_: object) -> None:
        """Prepare DeepSpeed's integration if `name` is `deepspeed`; return `None`."""
        if name == "deepspeed" and name not in sys.modules:
            from accel_train.deepspeed import prepare

            prepare()
