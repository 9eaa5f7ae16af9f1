"""The modules, classes and members that pages for contributors name in code font exist."""

import importlib
import re

import pytest
import tomllib
from accel_tests.tools import TREE

ARCHITECTURE = "CONTRIBUTING.md"
CORE = (
    "accel_core",
    "accel_core.interface",
    "accel_core.interface.cpu",
    "accel_core.interface.torch_device",
    "accel_core.backend",
    "accel_core.cli",
    "accel_core.sandbox",
    "accel_core.explain",
    "accel_core.verdict",
    "accel_core.probe",
    "accel_core.checks",
)
#: Of each section: the modules in which its names are.
SECTIONS = {
    (ARCHITECTURE, "The stages"): CORE,
    (ARCHITECTURE, "The distributions"): (
        "accel_testing",
        "accel_tools",
        "accel_train",
    ),
    (ARCHITECTURE, "The layers of the core"): CORE,
    (ARCHITECTURE, "To add"): (
        *CORE,
        "accel_core.interface.Accelerator",
        "accel_train.commands",
        "accel_train.commands.ops",
        "accel_train.accelerate",
    ),
}
#: What else is in code font.
NO_NAMES = {"accel", "pyproject.toml"}


def code_names(page, heading):
    """The identifiers between single backticks below a heading, without a call's parentheses."""
    text = (TREE / page).read_text(encoding="utf-8")
    section = text.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    assert section, f"{page} has no section {heading!r}"
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", section)
    names = [span.removesuffix("()") for span in spans]
    return [
        name
        for name in names
        if re.fullmatch(r"[A-Za-z_][\w.*]*", name) and name not in NO_NAMES
    ]


def exists(dotted):
    """Whether the dotted name is a module, or an attribute of one."""
    package, _, name = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        return bool(package) and exists(package) and hasattr(resolved(package), name)
    return True


def resolved(dotted):
    """The module, or the attribute of one, that `exists`."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        package, _, name = dotted.rpartition(".")
        return getattr(resolved(package), name)


def is_in(name, modules):
    return exists(name) or any(exists(f"{module}.{name}") for module in modules)


@pytest.mark.parametrize(("page", "heading"), SECTIONS)
def test_what_a_page_for_contributors_names_exists(page, heading):
    pytest.importorskip("torch")
    names = code_names(page, heading)
    assert len(names) > 5
    missing = [name for name in names if not is_in(name, SECTIONS[page, heading])]
    # An entry-point group is named as a module is; test_messages_true.py knows the groups.
    assert [name for name in missing if not name.startswith("accel.")] == []


def test_every_path_with_a_rule_in_pyproject_is_there():
    settings = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    gone = [
        pattern
        for pattern in patterns
        if not any(TREE.glob(pattern.removesuffix("/**")))
    ]
    assert gone == []


@pytest.mark.parametrize(
    "name", ["built_in", "accel_core.explain.autoloads", "accel_core.toolkit"]
)
def test_a_name_that_is_nowhere_is_missing(name):
    assert not is_in(name, CORE)
