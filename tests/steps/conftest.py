"""Finding the package of this folder."""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

# The table is TOML, which Python 3.10 cannot read; what it follows needs torch and every command.
NEEDED = ("tomllib", "torch", "accel_train", "accel_tools", "accel_testing", "accel_simulated")
collect_ignore_glob = [] if all(map(importlib.util.find_spec, NEEDED)) else ["test_*.py"]
