"""A simulated torch: as much as finding, choosing and building an accelerator touches, and no more.

It starts in a millisecond, and its devices are what a test says: a vendor's package adds itself with
`torch.<device> = module`, as torch_npu does.
"""

import os
import types

__version__ = "2.99.0+simulated"
version = types.ModuleType("torch.version")
version.__version__, version.cuda, version.hip, version.xpu = (
    __version__,
    None,
    None,
    None,
)

#: What autoload was set to while this was imported: the real torch reads it then.
autoload_was = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")


class Tensor: ...


class OutOfMemoryError(RuntimeError): ...


class device:
    def __init__(self, type, index=None):  # noqa: A002
        self.type, _, number = type.partition(":")
        self.index = int(number) if number else index


class Stream: ...


class Event: ...


class Generator: ...


class _Accelerator(types.ModuleType):
    current = None

    def current_accelerator(self, check_available=False):
        return None if self.current is None else device(self.current)


accelerator = _Accelerator("torch.accelerator")

cpu = types.ModuleType("torch.cpu")
cpu.Stream, cpu.Event = Stream, Event

_C = types.ModuleType("torch._C")
_C.private_use1 = "privateuseone"
_C._get_privateuse1_backend_name = lambda: _C.private_use1
