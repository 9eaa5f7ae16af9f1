"""Entry points of group `accel.adapters`: they turn accelerators of DeepSpeed's interface into ours.

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
    """Return a context manager in which an imported class may import DeepSpeed with our accelerator."""
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
