"""Child processes in which the real torch_npu runs, each with exactly the environment that a test says.

torch_npu takes torch's PrivateUse1 slot for good, so every state of it needs a process of its own; and
pytest's process must not have its torch broken by torch_npu's autoload.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Ended", "Run", "run"]

#: Variables that would decide what a child sees.
_STEERING = ("ACCEL_", "ASCEND", "DS_", "HCCL", "STANDIN_", "TORCH_", "PYTORCH_", "LD_LIBRARY_PATH", "LOCAL_")
#: Where the children find `stand_in` and `checks`, and what all tests share.
_OURS = (Path(__file__).parents[1], Path(__file__).parents[2] / "support")


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> Any:
        """The last line of stdout, as JSON."""
        assert self.returncode == 0, self.stdout + self.stderr
        return json.loads(self.stdout.splitlines()[-1])


Run = Callable[..., Ended]


def run(code: str, *, cann: Path | None = None, timeout: float = 300, **variables: str) -> Ended:
    """Run `code` with this Python; `cann`: where CANN's libraries are, as after `source set_env.sh`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    libraries = {"LD_LIBRARY_PATH": str(cann)} if cann is not None else {}
    environ = {**kept, "PYTHONPATH": os.pathsep.join(map(str, _OURS)), **libraries, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
