"""`torch.hpu.graphs`, simulated. The vendor's module exists in lazy mode only."""

from accel_simulated.parts.graphs import BareGraph as _sim_Graph
from accel_simulated.parts.graphs import Capture as _sim_Capture
from accel_simulated.surface import add_vendor_names


class HPUGraph(_sim_Graph):
    def capture_begin(self, dry_run=False):
        self._sim_graph.capture_begin()

    def replay(self, asynchronous=False):
        super().replay()


class graph(_sim_Capture):
    def __init__(self, hpu_graph, stream=None, dry_run=False):
        super().__init__(hpu_graph, {"dry_run": dry_run}, stream)


add_vendor_names(globals(), "torch.hpu.graphs")
del add_vendor_names
