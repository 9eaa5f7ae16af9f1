"""`torch.supa.graphs`, simulated."""

from accel_simulated.parts.graphs import Capture as _sim_Capture
from accel_simulated.parts.graphs import VendorGraph as _sim_Graph
from accel_simulated.surface import add_vendor_names


class SUPAGraph(_sim_Graph):
    def capture_begin(self, pool=None, capture_error_mode="global"):
        self._sim_capture_begin(pool, capture_error_mode)


class graph(_sim_Capture):
    def __init__(self, supa_graph, pool=None, stream=None, capture_error_mode="global"):
        super().__init__(
            supa_graph, {"pool": pool, "capture_error_mode": capture_error_mode}, stream
        )


add_vendor_names(globals(), "torch.supa.graphs")
del add_vendor_names
