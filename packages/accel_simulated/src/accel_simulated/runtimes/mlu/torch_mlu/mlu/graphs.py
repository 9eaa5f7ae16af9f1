"""`torch.mlu.graphs`, simulated."""

from accel_simulated.parts.graphs import Capture as _sim_Capture
from accel_simulated.parts.graphs import VendorGraph as _sim_Graph
from accel_simulated.surface import add_vendor_names


class MLUGraph(_sim_Graph):
    def capture_begin(self, pool=None, capture_error_mode="relaxed"):
        self._sim_capture_begin(pool, capture_error_mode)


class graph(_sim_Capture):
    def __init__(self, mlu_graph, pool=None, stream=None, capture_error_mode="relaxed"):
        super().__init__(
            mlu_graph, {"pool": pool, "capture_error_mode": capture_error_mode}, stream
        )


add_vendor_names(globals(), "torch.mlu.graphs")
del add_vendor_names
