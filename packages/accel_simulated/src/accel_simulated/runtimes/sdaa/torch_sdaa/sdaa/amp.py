"""`torch.sdaa.amp`, simulated."""

from functools import partial as _sim_partial

from torch.amp import GradScaler as _sim_GradScaler
from torch.amp import autocast as _sim_autocast

GradScaler = _sim_partial(_sim_GradScaler, "sdaa")
autocast = _sim_partial(_sim_autocast, "sdaa")
