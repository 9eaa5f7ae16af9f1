"""The `accel` command in a child process, in a world of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accel_core import Environment, Visibility
from accel_tests import children
from accel_tests.children import SIMULATED, Ended
from accel_tests.plugins import arguments, declaring, hook

_RUN = """
import sys
from accel_core.cli import main
sys.argv = ["accel", *{arguments!r}]
try:
    main()
finally:
    loaded = sorted({watched!r} & set(sys.modules))
    if {watched!r}:
        sys.stderr.write(f"loaded: {{loaded}}")
"""


#: A vendor's accelerator that answers everything.
CARD = """
import torch
from accel_core import Accelerator, DeviceProperties
from accel_core.accelerators.streams import HostStream

class Card(Accelerator):
    def device_count(self):
        return 2
    def current_device(self):
        return 0
    def device_properties(self, device_index=None):
        return DeviceProperties(
            name=f"Card {device_index}", total_memory=80 * 2**30, capability=(9, 0),
            uuid=f"CARD-{device_index}", pci_address="0000:3b:00.0", multiprocessors=132,
        )
    def total_memory(self, device_index=None):
        return 80 * 2**30
    def available_memory(self, device_index=None):
        return 60 * 2**30
    def supported_dtypes(self):
        return ["torch.float32", "torch.bfloat16"]
    def communication_backend_version(self):
        return (2, 27, 3)
    def op_builders(self):
        return {"FusedAdamBuilder": "somewhere:FusedAdamBuilder"}
    @property
    def Stream(self):
        return torch.Stream
"""
FIELDS = {
    "accelerator": "card_device:Card",
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "environment": Environment(("CARD", "CCL")),
    "description": "somebody's card",
}


class Accel:
    """Runs `accel` where only the plugins of this test are installed, and a simulated torch."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def __call__(
        self,
        *args: str,
        torch: bool = True,
        watched: frozenset[str] = frozenset(),
        cwd: Path | None = None,
        **env: str,
    ) -> Ended:
        code = _RUN.format(arguments=args, watched=watched)
        variables = {"COLUMNS": "", "NO_COLOR": "", **env}
        path = [*self.world.path, *([SIMULATED] if torch else [])]
        return children.run(code, path, variables, cwd=cwd)

    def json(
        self, *args: str, status: int = 0, torch: bool = True, cwd: Path | None = None, **env: str
    ) -> dict[str, Any]:
        """The one document that the command prints, ending with this exit status."""
        done = self(*args, "--json", torch=torch, cwd=cwd, **env)
        assert done.returncode == status, done.stderr
        document = json.loads(done.stdout)  # all of stdout: nothing else may be there
        assert isinstance(document, dict)
        return document

    def install(
        self, name: str, answer: str = "ProbeResult(True, devices=2)", priority: int = 990, **more: Any
    ) -> None:
        """Install a backend whose probe gives this answer."""
        version, distribution = more.pop("version", "1.5"), more.pop("distribution", "")
        source = declaring(arguments(name, priority, **more)) + hook(
            "accel_probe", "backend", f"return {answer}"
        )
        self.world.plugin(name, source, distribution=distribution, version=version)

    def install_card(self, more: str = "", extra: str = "") -> None:
        """Install a backend with a whole accelerator, `more` as a line of its class, `extra` hooks."""
        self.world.module("card_device", f"{CARD}    {more}\n")
        self.world.backend("card", 990, extra=extra, **FIELDS)


@pytest.fixture
def accel(world: Any) -> Accel:
    """The command."""
    return Accel(world)


def backend(document: dict[str, Any], name: str, distribution: str = "") -> dict[str, Any]:
    """The one backend of that name in the document of `accel list`."""
    found = [b for b in document["backends"] if b["name"] == name and distribution in ("", b["distribution"])]
    assert len(found) == 1, found
    only: dict[str, Any] = found[0]
    return only


@pytest.fixture(name="backend")
def _backend() -> Any:
    return backend
