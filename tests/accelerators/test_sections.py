"""The sections of the interface stand side by side. That each inherits what it uses, mypy checks."""

from __future__ import annotations

import sys

from accel_tests.forks import forked

from accel_core import Accelerator
from accel_core.accelerators.devices import Base


def test_no_member_has_two_homes():
    """In an order of sections that nobody has to know, none may hide another's member."""
    homes: dict[str, list[str]] = {}
    for section in [Base, *Accelerator.__bases__]:
        for name in vars(section):
            if not (name.startswith("__") and name.endswith("__")):
                homes.setdefault(name, []).append(section.__name__)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
    assert len(homes) > 100


@forked("torch")
def test_the_cpu_is_constructed_without_what_it_may_never_need():
    for name in [name for name in sys.modules if name.partition(".")[0] == "accel_core"]:
        del sys.modules[name]
    from accel_core import Backend
    from accel_core.accelerators.cpu import CPUAccelerator

    CPUAccelerator(Backend(name="cpu", priority=0, device_type="cpu"))
    needless = {"accel_core.accelerators.records", "accel_core.accelerators.torch_device", "psutil"}
    assert needless & set(sys.modules) == set()
