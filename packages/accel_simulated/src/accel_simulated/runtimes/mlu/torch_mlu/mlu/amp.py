"""`torch.mlu.amp`, simulated."""

from torch import float16 as _sim_float16
from torch.amp import GradScaler as _sim_GradScaler
from torch.amp import autocast as _sim_autocast


class GradScaler(_sim_GradScaler):
    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        super().__init__(
            "mlu", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


class autocast(_sim_autocast):
    def __init__(self, enabled=True, dtype=_sim_float16, cache_enabled=True):
        super().__init__(
            "mlu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled
        )
