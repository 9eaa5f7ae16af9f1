"""Child processes whose `sys.path` and environment are exactly what a test says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIMULATED = Path(__file__).parents[1] / "simulated"

_PRELUDE = """
import sys
path, code, flags = sys.argv[1:]
sys.path[:] = path.split("|")
del sys.argv[1:]
if "bare" in flags:
    import accel_core.machine.vendors
    accel_core.machine.vendors.known_hardware = lambda *root: ()
if "strict" in flags:
    import warnings
    warnings.simplefilter("error")
exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> Any:
        """The last line of stdout, which a child prints as JSON."""
        assert self.returncode == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without anything that steers a choice, and with `variables`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ACCEL_", "DS_")) and k != "PYTHONPATH"}
    return {**kept, **variables}


def run(
    code: str,
    path: Sequence[str | Path],
    variables: Mapping[str, str] | None = None,
    *,
    bare: bool = True,
    strict: bool = True,
    timeout: float = 60,
    cwd: Path | None = None,
) -> Ended:
    """Run `code`; `bare`: no accelerator hardware is seen; `strict`: warnings are errors."""
    flags = f"{'bare ' if bare else ''}{'strict' if strict else ''}"
    process = subprocess.Popen(
        [sys.executable, "-c", _PRELUDE, "|".join(map(str, path)), code, flags],
        env=clean_environment(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        with contextlib.suppress(OSError):  # what it forked must not outlive a test that fails
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
    return Ended(process.returncode, stdout, stderr)
