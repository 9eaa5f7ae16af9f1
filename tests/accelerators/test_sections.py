"""The sections of the interface stand side by side. That each inherits what it uses, mypy checks."""

from __future__ import annotations

import subprocess
import sys

from accel_core import Accelerator
from accel_core.accelerators.devices import Base


def test_no_member_has_two_homes() -> None:
    """In an order of sections that nobody has to know, none may hide another's member."""
    homes: dict[str, list[str]] = {}
    for section in [Base, *Accelerator.__bases__]:
        for name in vars(section):
            if not (name.startswith("__") and name.endswith("__")):
                homes.setdefault(name, []).append(section.__name__)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert len(homes) > 100


FIRST_CPU = """
import sys
from accel_core import Backend
from accel_core.accelerators.cpu import CPUAccelerator
CPUAccelerator(Backend(name="cpu", priority=0, device_type="cpu"))
ours = {f"accel_core.accelerators.{name}" for name in ("records", "torch_device")}
early = (ours | {"psutil"}) & set(sys.modules)
sys.exit(f"imported {early}" if early else 0)
"""


def test_the_cpu_is_constructed_without_what_it_may_never_need() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_CPU], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
