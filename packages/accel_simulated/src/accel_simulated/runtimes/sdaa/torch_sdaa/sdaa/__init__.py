"""`torch.sdaa`, simulated with the names in its surface file; a test makes the calls listed there."""

from accel_simulated.parts.dtypes import get_amp_supported_dtype
from accel_simulated.parts.lifecycle import _is_in_bad_fork, _lazy_init
from accel_simulated.surface import add_vendor_names
from torch_sdaa.sdaa import amp

# torch uses `_initialized` and the three functions imported above in every device module, although no public
# code for this vendor was found to use them.
_initialized = False
default_generators = ()  # filled when the runtime starts


def get_device_name(device=None):
    return (
        "/dev/tcaicard0"  # the name according to the vendor's note in the surface file
    )


add_vendor_names(globals(), "torch.sdaa")
del add_vendor_names
