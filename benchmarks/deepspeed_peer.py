"""The whole first `get_accelerator()` against DeepSpeed's, torch imported and no vendor installed.

`./dev bench_deepspeed` runs it in an environment of its own. Only DeepSpeed's module
`deepspeed.accelerator.real_accelerator` is measured, not the import of the whole of DeepSpeed; its parent
package is entered into `sys.modules` as a bare namespace so that its `__init__` does not run.
"""

from __future__ import annotations

import sys

from benchmarks.harness import child_seconds, in_turns, ratio_row, show

_PARENT = """
import importlib.util, sys, types
package = types.ModuleType("deepspeed")
package.__path__ = list(importlib.util.find_spec("deepspeed").submodule_search_locations)
sys.modules["deepspeed"] = package
"""
_PREPARE = "import json, sys, time, warnings, torch\nwarnings.simplefilter('ignore')\n"
_OURS = (
    _PREPARE
    + """
start = time.perf_counter()
import accel_core
found = accel_core.get_accelerator()
seconds = time.perf_counter() - start
assert found.name == "cpu", found
print(json.dumps(seconds))
"""
)
_PEER = (
    _PREPARE
    + _PARENT
    + """
start = time.perf_counter()
from deepspeed.accelerator.real_accelerator import get_accelerator
found = get_accelerator()
seconds = time.perf_counter() - start
assert found._name == "cpu", found
print(json.dumps(seconds))
"""
)

if __name__ == "__main__":
    pairs = in_turns(lambda: child_seconds(_OURS), lambda: child_seconds(_PEER), 9)
    sys.exit(show("against DeepSpeed", [ratio_row("first get_accelerator()", "DeepSpeed's own", pairs, 1.0)]))
