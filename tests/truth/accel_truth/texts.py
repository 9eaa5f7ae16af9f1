"""Every text that a user may read: string literals of the code, and the documents, with their places."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

#: What stands in the place of an f-string's values.
HOLE = "{}"
#: Blocks of these languages hold commands; one that opens with the prompt holds what they print too.
COMMANDS = {"sh", "bash", "console"}
FENCE = re.compile(r"^[ ]*```[ ]*(?:\{?([\w-]*)\}?.*)$")


class Text(NamedTuple):
    """`body` as it stands in `file` from `line` on; `code`: lines that are typed into a shell as they are."""

    file: Path
    line: int
    body: str
    code: bool = False


def sources(root):
    """The modules of every distribution here."""
    return sorted([*root.glob("src/**/*.py"), *root.glob("p*/*/src/**/*.py")])


def documents(root):
    """What people read; not the changelog and its fragments, which tell of their day.

    docs/backends/notes are the sources of docs/backends, whose links start there.
    """
    places = ("docs", "tests", "examples", "benchmarks", "lab")
    found = [file for place in places for file in (root / place).rglob("*.md")]
    found = [file for file in found if file.parent != root / "docs/backends/notes"]
    found += (root / "docs/tables").glob("*.jinja")  # what pages take their tables from
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
    return sorted(
        [*(root / name for name in names), *root.glob("p*/*/README.md"), *found]
    )


def _names_of_threads(node):
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Thread"):
        return [keyword.value for keyword in node.keywords if keyword.arg == "name"]
    return []


def of_source(file, source, left_out=_names_of_threads):
    """The string literals of a module, f-strings among them, each whole, but what is left out at a node."""
    tree = ast.parse(source)
    values = [value for node in ast.walk(tree) for value in left_out(node)]
    parts = {id(node) for value in values for node in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in parts:
            parts.update(map(id, node.values))
            body = "".join(
                part.value if isinstance(part, ast.Constant) else HOLE
                for part in node.values
            )
            yield Text(file, node.lineno, body)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in parts
        ):
            yield Text(file, node.lineno, node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            "install_command"
        ):
            yield Text(file, node.lineno, _install_command(node))


def _install_command(call):
    """The command that a call of `accel_core.hardware.vendors.install_command` returns."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    names = [
        argument.value if isinstance(argument, ast.Constant) else HOLE
        for argument in call.args
    ]
    if "option" in keywords:
        names.insert(0, keywords["option"].value)
    extra = f"[{keywords['extra'].value}]" if "extra" in keywords else ""
    return f"pip install {' '.join(names)}{extra}"


def of_document(file, source):
    """A document's paragraphs, the blocks of commands in it line by line, and its other blocks."""
    lines = source.splitlines()
    at, start, paragraph = 0, 1, list[str]()

    while at < len(lines):
        line = lines[at]
        fence = FENCE.match(line)
        indented = line.startswith("    ") and not paragraph
        if (not line.strip() or fence or indented) and paragraph:
            yield Text(file, start, "\n".join(paragraph))
            paragraph = []
        if fence:
            end = next(
                (n for n in range(at + 1, len(lines)) if "```" in lines[n]), len(lines)
            )
            yield from _block(file, at + 2, lines[at + 1 : end], fence[1])
            at = end
        elif indented:
            yield Text(file, at + 1, line.strip(), code=True)
        elif line.strip():
            start = start if paragraph else at + 1
            paragraph.append(line)
        at += 1
    if paragraph:
        yield Text(file, start, "\n".join(paragraph))


def _block(file, line, lines, language):
    """The lines of a block, those that go on behind a backslash as one."""
    if language not in COMMANDS:
        yield Text(file, line, "\n".join(lines))
        return
    prompt = any(part.startswith("$ ") for part in lines)
    whole = ""
    for number, part in enumerate(lines, line):
        whole += part.removesuffix("\\")
        if not part.endswith("\\"):
            code = whole.startswith("$ ") if prompt else True
            yield Text(file, number, whole.removeprefix("$ "), code=code)
            whole = ""
