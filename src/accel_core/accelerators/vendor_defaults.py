"""Variables that a vendor wants set, for what starts ranks and for `activate()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core.backend import Backend

__all__ = ["missing_defaults"]


def missing_defaults(backend: Backend, environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables of `Backend.environment` that are not set in `environ`, with the vendor's values."""
    wanted = (assignment.partition("=") for assignment in backend.environment)
    return {name: value for name, _, value in wanted if name not in environ}
