"""The staged process group: collectives through host memory over gloo, for a device that has none.

Each tensor is copied to the host, gloo communicates there, and the result is copied back. Importing this
package does not import torch. Importing its modules runs no operator of torch's: the collectives of simulated
devices are this group too, and simulated CUDA loads them while torch is being imported.
"""

from __future__ import annotations

from accel_train.staged.table import STAGED, register, unusable_reason

__all__ = ["STAGED", "register", "unusable_reason"]
