"""Every vendor name in a plugin's source is in its vendor's surface, and every call fits."""

from __future__ import annotations

import ast
from pathlib import Path

from accel_contracts.plugins import PLUGINS, ROOT, declared, everything
from accel_contracts.static import Report, Use, scan
from accel_tests import surfaces

from accel_core.accelerators.torch_device import ROWS

ACCELERATORS = ROOT / "src" / "accel_core" / "accelerators"


def reports(plugin: Path) -> dict[Path, Report]:
    whole, device = everything(plugin)
    sources = sorted((plugin / "src").rglob("*.py"))
    return {path: scan(path.read_text(), whole, device, str(path.relative_to(ROOT))) for path in sources}


def test_names_and_calls_are_the_vendors(plugin):
    assert [v for report in reports(plugin).values() for v in report.violations] == []


def test_the_vendor_import_is_the_surfaces_package(plugin):
    for backend in declared(plugin):
        found = surfaces.for_backend(backend)
        tops = {module.partition(".")[0] for module in backend.vendor_imports}
        assert found is not None
        # A package that takes a namespace over below Python has no names there: those are the namespace's.
        behind = {
            name
            for every in PLUGINS
            for other in declared(every)
            if other.device_type == backend.device_type == backend.in_torch.impersonates
            for name in other.in_torch.taken_over_by
        }
        assert tops <= {"torch", *found.packages, *behind}


def test_misspelling_any_one_name_fails(plugin):
    """Mutation: every name that a plugin takes for granted, one at a time."""
    uses = [each for each in _uses(plugin) if not each[1].tested and not each[1].is_call]
    survivors = [use for path, use in uses if not _found(plugin, path, use.end, "_misspelt")]
    assert survivors == []


def test_one_argument_too_many_fails(plugin):
    """Mutation: every call of a vendor's function, one at a time, with a keyword that it does not take."""
    calls = [each for each in _uses(plugin) if each[1].is_call and not each[1].takes_anything]
    survivors = [use for path, use in calls if not _found(plugin, path, use.end, "surplus=0")]
    assert survivors == []


def _uses(plugin: Path) -> list[tuple[Path, Use]]:
    return [(path, use) for path, report in reports(plugin).items() for use in report.uses]


def _found(plugin: Path, path: Path, end: tuple[int, int], text: str) -> bool:
    """Whether the fault that `text`, put into a copy of the source at `end`, makes is found."""
    whole, device = everything(plugin)
    source = path.read_text()
    comma = "" if not text.endswith("=0") or _char_before(source, end) in "(," else ", "
    return any(
        text.strip("=0") in v for v in scan(_insert(source, end, comma + text), whole, device).violations
    )


def _insert(source: str, end: tuple[int, int], text: str) -> str:
    lines = source.splitlines(keepends=True)
    line = lines[end[0] - 1].encode()
    lines[end[0] - 1] = (line[: end[1]] + text.encode() + line[end[1] :]).decode()
    planted = "".join(lines)
    ast.parse(planted)
    return planted


def _char_before(source: str, end: tuple[int, int]) -> str:
    lines = source.splitlines(keepends=True)
    before = "".join(lines[: end[0] - 1]) + lines[end[0] - 1].encode()[: end[1]].decode()
    return before.rstrip()[-1]


def test_every_name_of_torch_accelerator_itself_is_some_vendors():
    """What `TorchAccelerator` looks for under a name that no vendor has is a misspelling."""
    sources = [ast.parse(path.read_text()) for path in ACCELERATORS.glob("*.py")]
    asked = {name for tree in sources for name in _asked(tree)} | ROWS.keys()
    in_torch = set(ROWS.values()) - {""}
    vendors = [surfaces.load(name) for name in surfaces.files() if name != "torch_accelerator"]
    known = {name for vendor in vendors for names in vendor.modules.values() for name in names}
    # The word that is still asked for, beside those for bfloat16 and 8 bits that vendors do give; and what
    # torch does for all of them.
    assert asked - known == {"is_fp16_supported", "empty_host_cache"}
    # What is newer than the surface: tests/test_member_page.py holds it against the torch that is here.
    newer = {"random.initial_seed", "random.get_rng_state"}
    assert in_torch - newer <= surfaces.load("torch_accelerator").modules["torch.accelerator"].keys()
    assert len(asked) > 30


def _asked(tree: ast.Module) -> set[str]:
    """Names that are looked up in the vendor's module."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    asking = ("self._lookup", "self._part", "self._computes")
    names = (call.args[0] for call in calls if ast.unparse(call.func) in asking)
    return {name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)}
