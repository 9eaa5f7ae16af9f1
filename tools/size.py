"""Sizes of the checkout against their bounds: lines of code without blanks, comments and docstrings.

A place that is over its bound may only shrink: the exit status is 1 where one is larger than its bound and
than `STANDS`. `size.py FOLDER…` prints the lines of folders or files.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = "src/accel_core"
#: The most lines of code in each place.
LINES = {
    CORE: 5500,
    f"{CORE}/detection": 1600,
    f"{CORE}/_support": 500,
    f"{CORE}/cli": 600,
    "noxfile.py": 350,
}
FILES, TESTS = 50, 32_000
#: What is over its bound, as it stands: lower these when you shorten it.
STANDS: dict[str, int] = {}
_LAYOUT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
)  # fmt: skip
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code(path: Path) -> int:
    """Count the lines of code of one file."""
    source = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def files(place: Path) -> list[Path]:
    """List the Python files at a place, without those of environments."""
    return [place] if place.is_file() else [file for file in place.rglob("*.py") if ".nox" not in file.parts]


def sizes(root: Path = ROOT) -> list[tuple[str, int, int]]:
    """List what is bounded: its name, its size now, its bound."""
    rows = [(place, sum(map(code, files(root / place))), most) for place, most in LINES.items()]
    tests = [
        f for place in ("tests", "plugins", "packages") for f in files(root / place) if "tests" in f.parts
    ]
    rows.append(("files of the core", len(files(root / CORE)), FILES))
    rows.append(("tests", sum(map(code, tests)), TESTS))
    return rows


def main(places: list[str]) -> int:
    """Print the sizes; 1 where one is over its bound and has grown."""
    if places:
        for place in places:
            print(f"{sum(map(code, files(Path(place)))):7} {place}")
        return 0
    rows = sizes()
    for what, now, most in rows:
        print(f"{what:24} {now:7}   at most {most}{'   OVER' if now > most else ''}")
    return int(any(now > max(most, STANDS.get(what, 0)) for what, now, most in rows))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
