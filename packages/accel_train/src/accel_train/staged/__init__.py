"""The staged process group: collectives through host memory over gloo, for a device without collectives.

Each tensor is copied to the host, gloo communicates, and the result is copied back to the device. Importing
this package does not import torch. Importing its modules runs no torch operators, because simulated CUDA,
which also uses this group, imports the modules while torch is being imported.
"""

from __future__ import annotations

from accel_train.staged.table import STAGED, register, unusable_reason

__all__ = ["STAGED", "register", "unusable_reason"]
