"""`torch.sdaa`, simulated. Its names are those of its surface file; a test makes the calls seen there."""

from accel_simulated.parts.dtypes import get_amp_supported_dtype
from accel_simulated.parts.lifecycle import _is_in_bad_fork, _lazy_init
from accel_simulated.shape import fill
from torch_sdaa.sdaa import amp

# Nobody was seen to use this one and the three imported above, but torch asks them of every device module.
_initialized = False
default_generators = ()  # filled when the runtime starts


def get_device_name(device=None):
    return "/dev/tcaicard0"  # as the vendor's note in the surface file has it


fill(globals(), "torch.sdaa")
del fill
