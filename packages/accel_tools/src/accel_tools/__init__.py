"""Commands that examine a machine and its accelerators: `accel doctor`, `accel info` and `accel bench`.

Importing this package imports neither torch nor a vendor's package.
"""

from __future__ import annotations

__all__: list[str] = []
