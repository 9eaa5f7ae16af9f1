"""Accelerators of DeepSpeed's interface, made ours: what accel-core asks for in group `accel.adapters`.

Choosing an accelerator imports this, so it imports nothing of DeepSpeed's integration before that is needed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from accel_core import Accelerator, Backend

__all__ = ["adapt", "prepared"]


def adapt(foreign: object, backend: Backend | None) -> Accelerator | None:
    """`foreign`, an object or class of DeepSpeed's interface, as an accelerator; else `None`."""
    from accel_train.deepspeed import adapter

    return adapter.adapt(foreign, backend)


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """A context in which an imported class may import DeepSpeed, which then gets its accelerator from us."""
    finder: Any = _SeesDeepSpeed()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _SeesDeepSpeed:
    """A finder that finds nothing: DeepSpeed asks for an accelerator while it is imported."""

    def find_spec(self, name: str, *_: object) -> None:
        """Nothing."""
        if name == "deepspeed" and name not in sys.modules:
            from accel_train.deepspeed import prepare

            prepare()
