"""`torch.npu.amp`, simulated."""

import warnings as _sim_warnings

from torch import float16 as _sim_float16
from torch.amp import GradScaler as _sim_GradScaler
from torch.amp import autocast as _sim_autocast
from torch.amp import custom_bwd as _sim_custom_bwd
from torch.amp import custom_fwd as _sim_custom_fwd


class GradScaler(_sim_GradScaler):
    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        dynamic=True,
        enabled=True,
    ):
        super().__init__(
            "npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        if not dynamic:  # the vendor's scaler then keeps its initial scale
            self._growth_factor = self._backoff_factor = 1.0


class autocast(_sim_autocast):
    def __init__(self, enabled=True, dtype=_sim_float16, cache_enabled=True):
        super().__init__(
            "npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled
        )


def _sim_warn_deprecated(name):
    _sim_warnings.warn(
        f"torch_npu.npu.amp.{name} is deprecated", FutureWarning, stacklevel=3
    )


def custom_fwd(fwd=None, *, cast_inputs=None):
    _sim_warn_deprecated("custom_fwd")
    return _sim_custom_fwd(fwd, device_type="npu", cast_inputs=cast_inputs)


def custom_bwd(bwd):
    _sim_warn_deprecated("custom_bwd")
    return _sim_custom_bwd(bwd, device_type="npu")
