"""What holds for every first-party plugin: order, hints, size, and what it ships.

That its hooks fit and its module is inert is level 0 of the kit, which accel-simulated's tests run.
"""

from __future__ import annotations

import ast
import importlib
from types import SimpleNamespace

import pytest
from accel_contracts.plugins import PLUGINS, ROOT, declared, import_plugin

from accel_core.detection.discovery import ask

#: DeepSpeed's order of detection, and after it what DeepSpeed does not know.
PRIORITIES = {
    "xpu.external": {900}, "xpu": {800, 790}, "npu": {700}, "sdaa": {600}, "mps": {500}, "hpu": {400},
    "tpu": {350}, "mlu": {300}, "supa": {250}, "klxpu": {225}, "cuda": {200, 190},
    "rbln": {175},
}  # fmt: skip
#: Of code; a declaration may have as many as it has to say.
MOST_LINES = 110
MOST_LINES_OF_CHECKS = 80
#: What `accel try` asks.
MOST_LINES_OF_A_TRIAL = 30
#: What `accel setup` installs, a row for each release.
MOST_LINES_OF_A_TABLE = 60


def test_priorities_are_deepspeeds(plugin):
    for backend in declared(plugin):
        assert backend.priority in PRIORITIES[backend.name], backend.name


def test_one_takes_anothers_place_before_it():
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    by_name = {backend.name: backend for backend in backends}
    for backend in backends:
        assert (
            not backend.in_torch.impersonates
            or by_name[backend.in_torch.impersonates].priority < backend.priority
        )


def test_what_is_behind_anothers_namespace_is_known_to_that_other():
    """Nothing else tells them apart."""
    backends = [backend for plugin in PLUGINS for backend in declared(plugin)]
    behind = [b for b in backends if b.in_torch.impersonates == b.device_type]
    assert [b.name for b in behind] == ["klxpu"]
    for backend in behind:
        for other in backends:
            if other.device_type == backend.device_type and other is not backend:
                assert set(backend.vendor_imports) <= set(other.in_torch.taken_over_by)


def test_it_explains_only_what_it_knows(plugin):
    module = import_plugin(plugin)
    for backend in declared(plugin):
        assert ask(module, "accel_explain", backend=backend, error=ValueError("nothing known")) == []


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("name", ["MLUAccelerator", "SUPAAccelerator", "XPUAccelerator"])
def test_triton_where_it_is_installed(name, installed, monkeypatch):
    module = importlib.import_module(f"accel_{name.removesuffix('Accelerator').lower()}.accelerator")
    monkeypatch.setattr(module, "is_installed", lambda package: installed)
    for available in (True, False):
        asked = getattr(module, name).is_triton_supported(SimpleNamespace(is_available=lambda: available))  # noqa: B023
        assert asked is (installed and available)


def _lines_of_code(source: str) -> int:
    """Lines that are neither blank nor of a docstring, a declaration or its table of hints."""
    passed_over: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            passed_over |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if isinstance(node, ast.ImportFrom):
            passed_over |= set(range(node.lineno + 1, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.Assign) and _is_data(node):
            passed_over |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) and number not in passed_over for number, line in lines)


def _is_data(node: ast.Assign) -> bool:
    """Whether this is `NAME = Backend(...)`, `NAME = replace(OTHER, ...)` or `_HINTS = (...)`."""
    if isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) in ("Backend", "replace")
    return ast.unparse(node.targets[0]) == "_HINTS" and isinstance(node.value, ast.Tuple)


def test_it_is_short(plugin):
    """Of what is declared and what differs; what `accel doctor` asks, if anything, and tables are apart."""
    lines = {path.name: _lines_of_code(path.read_text()) for path in (plugin / "src").rglob("*.py")}
    assert lines.pop("checks.py", 0) <= MOST_LINES_OF_CHECKS
    assert lines.pop("recipes.py", 0) <= MOST_LINES_OF_A_TABLE
    assert lines.pop("trial.py", 0) <= MOST_LINES_OF_A_TRIAL
    assert sum(lines.values()) <= MOST_LINES


def test_it_imports_only_the_public_root_of_the_core(plugin):
    for path in (plugin / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("accel_core."), path
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("accel_core.") for alias in node.names), path


def test_it_ships_what_a_distribution_needs(plugin):
    assert (plugin / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (plugin / "src" / plugin.name / "py.typed").exists()
    project = (plugin / "pyproject.toml").read_text()
    assert f'name = "{plugin.name.replace("_", "-")}"' in project
    assert f'= "{plugin.name}"' in project.partition('[project.entry-points."accel.backends"]')[2]
    assert (plugin / "README.md").read_text().count("pip install ") >= 2
