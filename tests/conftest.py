"""For the core's own tests."""

import importlib.util

# The accelerators' own tests have nothing to run on without torch; all others say so themselves.
collect_ignore = [] if importlib.util.find_spec("torch") else ["accelerators"]
