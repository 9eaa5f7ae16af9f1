"""The next steps in the messages of the code: clauses that tell somebody what to do."""

import ast
import re
from typing import NamedTuple

from accel_truth.texts import of_source, sources

#: A next step begins with one of these, where a clause does.
_VERBS = (
    "accel|add|ask|call|change|choose|compare|compile|correct|declare|enable|export|fix|give|hide|import|install"
    "|join|keep|leave|let|load|make|mend|mount|move|name|pass|pip|pin|put|raise|rebuild|reinstall|remove|repair"
    "|report|run|say|see|set|show|source|start|take|uninstall|unset|update|upgrade|use|wait|write"
)
_CLAUSE = re.compile(
    rf"(?:^|[:.;?] |, or,? |, and |Or |`|Next(?: step)?: )((?:{_VERBS}) .*)",
    re.IGNORECASE | re.DOTALL,
)
#: Arguments that a command's help prints, and calls whose texts name what is done.
_HELP = {"help", "metavar", "short_help", "epilog", "description", "title"}
_TITLES = {
    "stage",
    "step",
    "debug",
    "info",
    "Step",
    "Topic",
    "click.confirm",
    "progress",
}


class Said(NamedTuple):
    """A next step, and where it is written."""

    file: str
    line: int
    step: str


def said(root):
    """Every next step of the sources below `root`; not of the files that `accel new` fills in."""
    for file in sources(root):
        if "template" in file.parts:
            continue
        for text in of_source(file, file.read_text(encoding="utf-8"), _no_message):
            if found := _CLAUSE.search(text.body):
                yield Said(
                    file.relative_to(root).as_posix(),
                    text.line,
                    " ".join(found[1].split()),
                )


def _no_message(node):
    """Docstrings, the texts of a command's help, and what names the step that is being done."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return [node.value]
    if not isinstance(node, ast.Call):
        return []
    is_title = ast.unparse(node.func).rpartition(".")[2] in _TITLES
    return [
        *(each.value for each in node.keywords if each.arg in _HELP),
        *(node.args if is_title else ()),
    ]
