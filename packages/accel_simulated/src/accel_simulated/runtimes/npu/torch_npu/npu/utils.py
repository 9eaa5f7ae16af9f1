"""`torch.npu.utils`, simulated."""

from accel_simulated.parts.dtypes import is_bf16_supported as _sim_is_bf16_supported
from accel_simulated.parts.streams import StreamContext as _sim_StreamContext
from accel_simulated.shape import fill


class StreamContext(_sim_StreamContext):
    def __init__(self, stream_ctx):
        super().__init__(stream_ctx)


def get_cann_version(module="CANN"):
    return "8.3.0"


def is_bf16_supported(including_emulation=False):
    return _sim_is_bf16_supported()


fill(globals(), "torch.npu.utils")
del fill
