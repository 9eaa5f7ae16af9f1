"""Child processes in which the real torch_npu runs, each with exactly the environment that a test says.

torch_npu takes torch's PrivateUse1 slot for good, so every state of it needs a process of its own; and
pytest's process must not have its torch broken by torch_npu's autoload.
"""

import os
from pathlib import Path

from accel_tests.children import run_python, without

#: Variables that would decide what a child sees.
_STEERING = (
    "ACCEL_",
    "ASCEND",
    "DS_",
    "HCCL",
    "STANDIN_",
    "TORCH_",
    "PYTORCH_",
    "LD_LIBRARY_PATH",
    "LOCAL_",
)
#: Where the children find `stand_in` and `checks`, and what all tests share.
_OURS = (Path(__file__).parents[1], Path(__file__).parents[5] / "tests" / "support")


def variables(cann):
    """The environment of a child; `cann`: where CANN's libraries are, as after `source set_env.sh`."""
    libraries = {"LD_LIBRARY_PATH": str(cann)} if cann is not None else {}
    return {
        **without(*_STEERING),
        "PYTHONPATH": os.pathsep.join(map(str, _OURS)),
        **libraries,
    }


def run(code, *, cann=None, timeout=300, **more):
    """Run `code` with this Python, with `more` variables."""
    return run_python(["-c", code], {**variables(cann), **more}, timeout=timeout)
