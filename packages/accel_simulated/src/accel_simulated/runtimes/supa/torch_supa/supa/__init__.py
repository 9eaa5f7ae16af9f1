"""`torch.supa`, simulated with the names in its surface file; a test compares the parameters."""

from types import SimpleNamespace as _sim_SimpleNamespace

from accel_simulated.host_memory import HostMemory as _sim_HostMemory
from accel_simulated.parts.dtypes import is_bf16_supported as _sim_is_bf16_supported
from accel_simulated.parts.lifecycle import _lazy_call as _sim_lazy_call
from accel_simulated.parts.streams import StreamContext as _sim_StreamContext
from accel_simulated.surface import add_vendor_names
from torch_supa.supa import bccl, brtx, graphs, memory, random, streams
from torch_supa.supa.graphs import SUPAGraph, graph

# `_initialized` is missing in the surface file, which was copied by hand; torch reads it in every module.
_initialized = False
default_generators = ()  # filled when the runtime starts


class StreamContext(_sim_StreamContext):
    def __init__(self, stream_ctx):
        super().__init__(stream_ctx)


def _lazy_call(callable):
    _sim_lazy_call(callable)


def is_bf16_supported(including_emulation=True):
    return _sim_is_bf16_supported()


_sim_host = _sim_HostMemory()


def supart():
    return _sim_SimpleNamespace(
        supaHostRegister=_sim_host.register, supaHostUnregister=_sim_host.unregister
    )


def check_error(res):
    if res != 0:
        raise RuntimeError(f"SUPA error {res}")


add_vendor_names(globals(), "torch.supa")
del add_vendor_names
