"""For those who must know why: `accel doctor`, `accel info` and `accel bench`.

Importing this imports neither torch nor a vendor.
"""

from __future__ import annotations

__all__: list[str] = []
