"""The staged process group: collectives of a device that has none, through host memory over gloo.

Each tensor is copied to the host, gloo does the work there, and the result is copied back. Importing this
package imports no torch.
"""

from __future__ import annotations

from accel_train.staged.table import STAGED, obstacle, register

__all__ = ["STAGED", "obstacle", "register"]
