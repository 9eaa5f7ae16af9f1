"""Copies of plugins with wrong names and calls in them."""

from __future__ import annotations

import shutil
from pathlib import Path

from accel_contracts.plugins import declared

__all__ = ["FAULTS", "MARKED", "plant"]

FAULTS = {
    "a wrong name": "self.device_module.empty_cashe()",
    "a wrong name whose error is swallowed": (
        "with contextlib.suppress(Exception):\n        self.device_module.empty_cashe()"
    ),
    "a call that does not fit": "self.device_module.device_count(1, 2, nothing=3)",
    "a call that does not fit whose error is swallowed": (
        "with contextlib.suppress(Exception):\n        self.device_module.device_count(1, 2, nothing=3)"
    ),
}
MARKED = "getattr(self.device_module, 'empty_casket', bool)()"


def plant(plugin: Path, copy: Path, *faults: str) -> Path:
    """A copy of the plugin whose `empty_cache` does the `faults`; returns the file that they are in."""
    shutil.copytree(plugin / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    module, _, _ = declared(plugin)[0].accelerator.partition(":")
    module = module or f"{plugin.name}.__init__"  # one without a class of its own: the function alone is read
    kinds = {backend.accelerator.partition(":")[2] for backend in declared(plugin)} - {""}
    path = copy / f"{module.replace('.', '/')}.py"
    body = "\n    ".join(faults)
    planted = f"\n\nimport contextlib\n\ndef _planted(self):\n    {body}\n\n"
    planted += "".join(f"{kind}.empty_cache = _planted\n" for kind in sorted(kinds))
    path.write_text(path.read_text() + planted)
    return path
