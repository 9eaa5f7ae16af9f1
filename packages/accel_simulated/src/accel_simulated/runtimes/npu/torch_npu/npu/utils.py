"""`torch.npu.utils`, simulated."""

from accel_simulated.parts.dtypes import is_bf16_supported as _sim_is_bf16_supported
from accel_simulated.parts.streams import StreamContext as _sim_StreamContext
from accel_simulated.surface import add_vendor_names


class StreamContext(_sim_StreamContext):
    def __init__(self, stream_ctx):
        super().__init__(stream_ctx)


def get_cann_version(module="CANN"):
    return "8.3.0"


def is_bf16_supported(including_emulation=False):
    return _sim_is_bf16_supported()


add_vendor_names(globals(), "torch.npu.utils")
del add_vendor_names
