"""Fixtures of the plugins' tests: a simulated machine to judge on, and a child.

A plugin's `conftest.py` imports those that its tests use.
"""

from __future__ import annotations

import os
import sys

import pytest

from accel_tests import children, layouts

_JUDGE = """
import json, sys
from accel_core import machine
from accel_core.machine import devices, placement
from accel_core.detection.select import discover
from accel_core.detection.probe import Prober
from accel_core.settings import Settings
bus = tuple(devices.PciDevice(*device) for device in {pci!r})
machine.on_linux = lambda: True
devices.pci_devices = lambda root="/": bus
devices.device_nodes = lambda patterns, root="/": {nodes!r} if patterns else ()
placement.placement = lambda *_: placement.Placement()
{code}
candidates = discover()
found = [c for c in candidates if c.name == {name!r}]
among = tuple(found) if {pinned!r} else candidates
said = [Prober(Settings()).probe(c, among, pinned={pinned!r}).to_dict() for c in found]
watched = ("torch", "habana_frameworks", "intel_extension_for_pytorch", "intel_extension_for_deepspeed")
print(json.dumps([said, [name for name in watched if name in sys.modules]]))
"""


@pytest.fixture
def site(tmp_path):
    """A folder of `sys.path` to install into; a simulated torch lies there already."""
    (tmp_path / "torch").symlink_to(children.SIMULATED / "torch", target_is_directory=True)
    layouts.dist_info(tmp_path, "torch", "2.99.0")
    return tmp_path


@pytest.fixture
def judge(site):
    """`judge(name, pci=..., nodes=..., code=..., pinned=...)`: a child's verdicts, and what it imported."""

    def run(name, pci=(), code="", pinned=False, nodes=()):
        source = _JUDGE.format(name=name, pci=pci, code=code, pinned=pinned, nodes=nodes)
        verdicts, imported = children.run(source, [site, *filter(None, sys.path)], traced=False).answer
        return verdicts, imported

    return run


@pytest.fixture
def child():
    """`child(code, env)`: what `code` printed; a variable that is None is taken out of the environment."""

    def run(code, env=None, timeout=120):
        environ = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
        ended = children.run_python(["-c", code], children.untraced(environ), timeout=timeout)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.strip()

    return run
