"""The documentation's site, made by Sphinx: `./dev docs` builds it into site/. It needs no network."""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import jinja2
from click.testing import CliRunner

from accel_core import Backend, __version__
from accel_core.backend import RECORDS
from accel_core.cli import accel
from accel_testing.conformance.catalogue import checks
from accel_testing.conformance.groups import LEVELS

HERE = Path(__file__).parent

project = "accel"
author = "The accel-core developers"
project_copyright = author
release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
]
# Options begin with two hyphens, which it would join to a dash.
smartquotes = False
html_theme = "furo"
html_title = "accel"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_search_scorer = str(HERE / "_static/scorer.js")
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["backends/notes"]

# The copy button copies commands without the prompt; from a block with prompts it leaves out the output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Docstrings write names between single backticks, as Markdown does.
default_role = "code"
autodoc_class_signature = "mixed"
autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Of dataclasses and enumerations, what stands above each field says what it is.
autodoc_default_options = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"


# ---------------------------------------------------------------------------- pages that show a record


def read(path: str) -> Any:
    """Read a record: JSON, by its path from this folder."""
    return json.loads((HERE / path).read_text(encoding="utf-8"))


def folder(path: str) -> dict[str, Any]:
    """Read every record of a folder, by its file's name."""
    return {file.stem: read(str(file)) for file in sorted((HERE / path).glob("*.json"))}


def rows(nested: dict[str, Any], depth: int) -> list[tuple[Any, ...]]:
    """Flatten dictionaries within dictionaries: the keys on the way, and the value."""

    def walk(value: Any, left: int) -> Iterator[tuple[Any, ...]]:
        if not left:
            yield (value,)
            return
        for key, inner in value.items():
            yield from ((key, *row) for row in walk(inner, left - 1))

    return list(walk(nested, depth))


def by_kind(made: dict[str, Any]) -> dict[str, list[Any]]:
    """The rows of generated.json by how an accelerator is broken: `"exp: NaN is 0"` by `"NaN is 0"`."""
    found: dict[str, list[Any]] = {}
    for name, row in made.items():
        found.setdefault(name.partition(": ")[2], []).append(row)
    return found


def declared() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """`Backend` and its records: each class, its first line, and its fields with their defaults."""
    return [_declared(kind) for kind in (Backend, *RECORDS.values())]


def _declared(kind: type[Any]) -> tuple[str, str, list[tuple[str, str, str]]]:
    defaults = {field.name: field.default for field in fields(kind)}
    head, _, said = inspect.cleandoc(kind.__doc__ or "").partition("Fields:\n")
    told = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", said, re.MULTILINE)
    rows = [(name, " ".join(text.split()), _default(defaults[name])) for name, text in told]
    return kind.__name__, head.partition("\n")[0], rows


def _default(value: Any) -> str:
    """Show a field's default; empty for a required one."""
    if is_dataclass(value):
        return f"`{type(value).__name__}()`"
    return "" if value is MISSING else f"`{value!r}`"


def fill_in(_app: object, _name: str, source: list[str]) -> None:
    """Fill in a page that begins with a statement of Jinja's; tables/ has the macros that draw its record."""
    if source[0].startswith("{%"):
        environment = jinja2.Environment(
            trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False,
            extensions=["jinja2.ext.do"], loader=jinja2.FileSystemLoader(HERE / "tables")
    )  # fmt: skip
        tools = {"read": read, "folder": folder, "rows": rows, "by_kind": by_kind}
        environment.globals.update(**tools, declared=declared, checks=checks, levels=LEVELS)
        source[0] = environment.from_string(source[0]).render()


# ---------------------------------------------------------------------------- the page of commands


def add_every_command(_app: object) -> None:
    """Import every command: sphinx-click documents only those that `accel.commands` contains."""
    with click.Context(accel, info_name="accel") as context:
        for name in accel.list_commands(context):
            command = accel.get_command(context, name)
            assert command is not None
            accel.add_command(command, name)


def show_examples(_app: object, _context: click.Context, lines: list[str]) -> None:
    """Show the lines that a help text keeps apart as code: a line block would lose their columns."""
    shown = []
    is_example = False
    for line in lines:
        if line.startswith("| "):
            if not is_example:
                shown += [".. code-block:: text", ""]
            is_example = True
            shown.append(f"    {line.removeprefix('| ')}")
        else:
            is_example = False
            shown.append(line)
    lines[:] = shown


def leave_out_arguments(_app: object, _context: click.Context, lines: list[str]) -> None:
    """Leave out the list of arguments, which says no more than the usage above it."""
    lines.clear()


def show_options_of_run(_app: object, context: click.Context, lines: list[str]) -> None:
    """Show the help of `accel run`, whose options a parser of its own reads."""
    if context.command_path == "accel run":
        result = CliRunner(env={"COLUMNS": "90"}).invoke(accel, ["run", "--help"], catch_exceptions=False)
        lines += [".. code-block:: text", "", *(f"    {line}" for line in result.output.splitlines()), ""]


def setup(app: Any) -> None:
    """Fill in the pages as Sphinx reads them."""
    app.connect("source-read", fill_in)
    app.connect("builder-inited", add_every_command)
    app.connect("sphinx-click-process-description", show_examples)
    app.connect("sphinx-click-process-arguments", leave_out_arguments)
    app.connect("sphinx-click-process-options", show_options_of_run)
