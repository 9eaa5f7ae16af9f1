"""`torch.npu.graphs`, simulated. The vendor's graph has no debug mode."""

from accel_simulated.parts.graphs import Capture as _sim_Capture
from accel_simulated.parts.graphs import PooledGraph as _sim_Graph
from accel_simulated.surface import add_vendor_names


class NPUGraph(_sim_Graph):
    def capture_begin(self, pool=None, capture_error_mode="global"):
        self._sim_capture_begin(pool, capture_error_mode)


class graph(_sim_Capture):
    # The vendor adds `auto_dispatch_capture`, for updates of captured operators, which are not simulated.
    def __init__(
        self,
        npu_graph,
        pool=None,
        stream=None,
        auto_dispatch_capture=False,
        capture_error_mode="global",
    ):
        super().__init__(
            npu_graph, {"pool": pool, "capture_error_mode": capture_error_mode}, stream
        )


add_vendor_names(globals(), "torch.npu.graphs")
del add_vendor_names
