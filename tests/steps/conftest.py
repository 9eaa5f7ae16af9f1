"""Where the table can be read and followed."""

import importlib.util

# The table is TOML, which Python 3.10 cannot read; what it follows needs torch and every command.
NEEDED = (
    "tomllib",
    "torch",
    "accel_train",
    "accel_tools",
    "accel_testing",
    "accel_simulated",
)
collect_ignore_glob = (
    [] if all(map(importlib.util.find_spec, NEEDED)) else ["test_*.py"]
)
