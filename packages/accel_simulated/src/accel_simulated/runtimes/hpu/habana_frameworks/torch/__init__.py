"""A simulation of Habana's bridge for tests, with the names in its surface file.

The vendor's package rejects lazy mode, its default, on every torch except Habana's build. The simulation
treats the installed torch as Habana's build, unless `ACCEL_SIMULATE_STOCK_TORCH=1`.
"""

import os

from accel_simulated import vendor_package

__version__ = "1.19.0+simulated"

_lazy = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"
assert not (_lazy and os.environ.get("ACCEL_SIMULATE_STOCK_TORCH") == "1"), (
    "lazy mode needs Habana's build of torch"
)

vendor_package.load_device("hpu")

from habana_frameworks.torch import hpu

vendor_package.register_module(hpu)
