"""The next steps in the messages of the code: clauses that tell somebody what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: What stands in the place of an f-string's values.
HOLE = "{}"
#: A next step begins with one of these, where a clause does.
_VERBS = (
    "accel|add|ask|call|change|choose|compare|compile|correct|declare|enable|export|fix|give|hide|import|install"
    "|join|keep|leave|let|load|make|mend|mount|move|name|pass|pip|pin|put|raise|rebuild|reinstall|remove|repair"
    "|report|run|say|see|set|show|source|start|take|uninstall|unset|update|upgrade|use|wait|write"
)
_CLAUSE = re.compile(
    rf"(?:^|[:.;?] |, or,? |, and |Or |`|Next(?: step)?: )((?:{_VERBS}) .*)", re.IGNORECASE | re.DOTALL
)
#: Arguments that a command's help prints, and calls whose texts name what is done.
_HELP = {"help", "metavar", "short_help", "epilog", "description", "title"}
_TITLES = {"stage", "step", "debug", "info", "Step", "Topic", "click.confirm", "progress"}


class Said(NamedTuple):
    """A next step, and where it is written."""

    file: str
    line: int
    step: str


def sources(root: Path) -> list[Path]:
    """The modules of every distribution; not the files that `accel new` fills in."""
    found = [*root.glob("src/**/*.py"), *root.glob("p*/*/src/**/*.py")]
    return sorted(file for file in found if "template" not in file.parts)


def said(root: Path) -> Iterator[Said]:
    """Every next step of the sources below `root`."""
    for file in sources(root):
        place = file.relative_to(root).as_posix()
        for line, text in _literals(ast.parse(file.read_text(encoding="utf-8"))):
            if found := _CLAUSE.search(text):
                yield Said(place, line, " ".join(found[1].split()))


def _literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The string literals, each whole, without docstrings and the texts of a command's help."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.Call):
            named = [keyword.value for keyword in node.keywords if keyword.arg in _HELP]
            is_title = ast.unparse(node.func).rpartition(".")[2] in _TITLES
            for value in [*named, *(node.args if is_title else ())]:
                skipped.update(map(id, ast.walk(value)))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            skipped.update(map(id, node.values))
            parts = (part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
            yield node.lineno, "".join(map(str, parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value
