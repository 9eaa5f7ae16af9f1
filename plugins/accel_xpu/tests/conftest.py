"""A machine that is simulated: its distributions are real ones on disk, its hardware is what a test says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accel_testing import children, layouts

SURFACES = Path(__file__).parents[3] / "tests" / "simulated" / "surfaces"

_JUDGE = """
import json, sys
from accel_core.machine import devices, host
from accel_core.detection.discovery import discover
from accel_core.detection.probe import Group, probe
from accel_core.settings import Settings
bus = tuple(devices.PciDevice(*device) for device in {pci!r})
host.on_linux = lambda: True
devices.pci_devices = lambda root="/": bus
devices.device_nodes = lambda patterns, root="/": {nodes!r} if patterns else ()
host.in_container = lambda root="/": False
{code}
candidates = discover()
found = [c for c in candidates if c.name == {name!r}]
group = Group.of(found if {pinned!r} else candidates)
said = [probe(c, Settings(), group, pinned={pinned!r}).to_dict() for c in found]
watched = ("torch", "habana_frameworks", "intel_extension_for_pytorch", "intel_extension_for_deepspeed")
print(json.dumps([said, [name for name in watched if name in sys.modules]]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of `sys.path` to install into; a simulated torch lies there already."""
    (tmp_path / "torch").symlink_to(children.SIMULATED / "torch", target_is_directory=True)
    layouts.dist_info(tmp_path, "torch", "2.99.0")
    return tmp_path


@pytest.fixture
def judge(site: Path) -> Callable[..., Any]:
    """`judge(name, pci=..., nodes=...)`: the verdicts in a child there, and what it had imported."""

    def run(
        name: str,
        pci: tuple[tuple[str, str, str, str], ...] = (),
        code: str = "",
        pinned: bool = False,
        nodes: tuple[str, ...] = (),
    ) -> tuple[list[dict[str, Any]], list[str]]:
        source = _JUDGE.format(name=name, pci=pci, code=code, pinned=pinned, nodes=nodes)
        said, imported = children.run(source, [site, *filter(None, sys.path)]).answer
        return said, imported

    return run


@pytest.fixture
def surface() -> Callable[[str, str], dict[str, Any]]:
    """`surface(vendor, module)`: the names that the vendor's own package has there."""

    def read(vendor: str, exposed_as: str) -> dict[str, Any]:
        modules = json.loads((SURFACES / f"{vendor}.json").read_text())["modules"]
        (module,) = (m for m in modules if m["exposed_as"] == exposed_as)
        return {entry["name"]: entry for entry in module["names"]}

    return read
