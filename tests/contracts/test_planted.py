"""A wrong name, or a call that does not fit, planted into a copy of any plugin, fails both contracts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from accel_contracts.plugins import PLUGINS, declared, everything
from accel_contracts.static import scan

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
#: What running could miss; an error that comes out is seen anyway.
SWALLOWED = {name: fault for name, fault in FAULTS.items() if "swallowed" in name}
MARKED = "getattr(self.device_module, 'empty_casket', bool)()"


def plant(plugin: Path, copy: Path, *faults: str) -> Path:
    """A copy of the plugin whose `empty_cache` does the `faults`; returns the file that they are in."""
    shutil.copytree(plugin / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    module, _, _ = declared(plugin)[0].accelerator.partition(":")
    kinds = {backend.accelerator.partition(":")[2] for backend in declared(plugin)}
    path = copy / f"{module.replace('.', '/')}.py"
    body = "\n    ".join(faults)
    planted = f"\n\nimport contextlib\n\ndef _planted(self):\n    {body}\n\n"
    planted += "".join(f"{kind}.empty_cache = _planted\n" for kind in sorted(kinds))
    path.write_text(path.read_text() + planted)
    return path


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_reading_the_source_finds_it(plugin, fault, tmp_path):
    whole, device = everything(plugin)
    found = scan(plant(plugin, tmp_path / "src", fault).read_text(), whole, device).violations
    assert any("empty_cashe is not in" in v or "nothing" in v or "too many" in v for v in found)


def test_reading_passes_over_what_is_looked_for(plugin, tmp_path):
    whole, device = everything(plugin)
    found = scan(plant(plugin, tmp_path / "src", MARKED).read_text(), whole, device).violations
    assert not any("empty_casket" in violation for violation in found)


@pytest.fixture(scope="module")
def planted_runs(run, once, tmp_path_factory):
    """Every fault whose error is swallowed, and what is none, in one copy of each plugin: what was kept."""

    def planted() -> dict[str, list[Any]]:
        copies = {}
        for plugin in PLUGINS:
            copies[plugin.name] = copy = tmp_path_factory.mktemp(plugin.name) / "src"
            plant(plugin, copy, *SWALLOWED.values(), MARKED)
        found = run(copies.values())
        return {
            name: [each.get("violations", []) for each in found if each["folder"] == str(copy)]
            for name, copy in copies.items()
        }

    return once("planted", planted)


@pytest.mark.slow
def test_running_finds_each_and_passes_over_what_is_looked_for(plugin, planted_runs):
    kept = planted_runs[plugin.name]
    assert kept
    for violations in kept:
        assert any("empty_cashe is not in" in v for v in violations)
        assert any("device_count" in v for v in violations)
        assert not any("empty_casket" in v for v in violations)
